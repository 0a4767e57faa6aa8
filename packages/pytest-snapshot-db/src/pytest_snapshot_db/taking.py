"""Takes a whole copy of a database that others may have open: what a new process would see.

Closing a file drops every lock that its process holds on it, also those of another SQLite in the
same process: a test that uses `sqlite3` has one, and this room has its own. So a file that this
process has open is copied by another process, which runs this module as a script. It imports only
what it needs, since each comparison may have to wait for it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import apsw

# How long to wait for a writer that holds the whole file.
BUSY_MS = 10_000
# The copy is a local file: whoever takes longer than this will not come back.
COPY_S_MAX = 300
# Where the header of a database says how it is written and read: 1 with a rollback journal, 2 WAL.
HEADER = slice(18, 20)
WAL, PLAIN = b"\x02\x02", b"\x01\x01"
PAGES_AT_A_TIME = 4096
SIDE_FILES = ("-wal", "-shm", "-journal")


class TakingError(Exception):
    """The database cannot be read; neither it nor anything else was changed."""


def take(path: Path, into: Path) -> str:
    """Copy the database at `path` to the new file `into`; gives the journal mode of the original.

    Neither the file nor its log are changed, and the copy needs no log.
    """
    if not path.exists():
        raise TakingError(f"there is no file {path}")
    if not path.is_file():
        raise TakingError(f"{path} is not a file")
    if _open_in_this_process(path):
        _take_in_another_process(path, into)
    else:
        copy(path, into)
    return without_log(into)


def copy(path: Path, into: Path) -> None:
    """Copy it here and now."""
    try:
        try:
            _backup(path, into, apsw.SQLITE_OPEN_READONLY)
        except (apsw.ReadOnlyError, apsw.CantOpenError):
            _backup_of_what_a_dead_writer_left(path, into)
    except apsw.BusyError:
        raise TakingError(f"{path} is locked by a writer that does not commit or close") from None
    except apsw.NotADBError:
        raise TakingError(f"{path} is not a SQLite database") from None
    except apsw.Error as error:
        raise TakingError(f"{path} cannot be read: {error}") from None
    except OSError as error:
        raise TakingError(f"{path} cannot be copied: {error.strerror}") from None


def _backup_of_what_a_dead_writer_left(path: Path, into: Path) -> None:
    """Whoever opens a file next rolls back what its last writer left undone: here, in a copy."""
    with tempfile.TemporaryDirectory(dir=into.parent) as folder:
        beside = Path(folder) / path.name
        for end in ("", "-wal", "-journal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{end}", f"{beside}{end}")
        _backup(beside, into, apsw.SQLITE_OPEN_READWRITE)


def _backup(source: Path, into: Path, flags: int) -> None:
    into.unlink(missing_ok=True)
    # A database in WAL mode of which nobody has a log open needs none: reading it leaves nothing.
    alone = not any(Path(f"{source}{end}").exists() for end in SIDE_FILES)
    name = uri(source, immutable=alone and _is_wal(source))
    with closing(apsw.Connection(name, flags | apsw.SQLITE_OPEN_URI)) as theirs:
        theirs.set_busy_timeout(BUSY_MS)
        theirs.execute("BEGIN; SELECT count(*) FROM sqlite_schema")
        with closing(apsw.Connection(str(into))) as ours:
            ours.execute("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")
            with ours.backup("main", theirs, "main") as backup:
                while not backup.done:
                    backup.step(PAGES_AT_A_TIME)


def uri(path: Path, *, immutable: bool) -> str:
    """A name for SQLite that says whether the file can change; any character may stand in it."""
    return f"file:{quote(str(path.absolute()))}" + ("?immutable=1" if immutable else "")


def _is_wal(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(HEADER.stop)[HEADER] == WAL


def without_log(path: Path) -> str:
    """Make a database one that needs no log beside it; says which journal mode it was in."""
    with path.open("r+b") as file:
        if file.read(HEADER.stop)[HEADER] != WAL:
            return "delete"
        file.seek(HEADER.start)
        file.write(PLAIN)
    return "wal"


def with_log(path: Path) -> None:
    """Put a database that nobody has open into WAL mode, as it was before it was taken."""
    with path.open("r+b") as file:
        file.seek(HEADER.start)
        file.write(WAL)


def _open_in_this_process(path: Path) -> bool:
    """Whether this process has the file open; where that cannot be known, it may have."""
    wanted = path.stat()
    try:
        descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208 (names are numbers here)
    except OSError:
        return True
    for each in descriptors:
        with suppress(OSError):
            found = os.stat(int(each))  # noqa: PTH116 (a descriptor has no path)
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    return False


def _take_in_another_process(path: Path, into: Path) -> None:
    # -P: this file's folder holds modules of ours, which are not for import by their bare names.
    command = [sys.executable, "-P", __file__, json.dumps([str(path.absolute()), str(into)])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(  # noqa: S603 (this very module)
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COPY_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TakingError(f"{path} could not be copied within {COPY_S_MAX} s") from None
    if done.returncode:
        raise TakingError(done.stdout.strip() or f"{path} could not be copied: {done.stderr}")


def main() -> None:
    """As a script: copy, and say on stdout what went wrong."""
    path, into = map(Path, json.loads(sys.argv[1]))
    try:
        copy(path, into)
    except TakingError as error:
        sys.stdout.write(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
