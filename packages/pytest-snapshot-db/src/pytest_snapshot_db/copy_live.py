"""Copies a database that others may have open, as a new process would read it.

Closing a file drops every lock that the process holds on it, also those of another SQLite library
in the same process. A test that uses `sqlite3` has such a library. So a file that this process has
open is copied by another process, which runs this module.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import apsw

from pytest_snapshot_db.errors import GoldenError

# How long to wait for a writer that holds the whole file.
BUSY_MS = 10_000
# Copying a local file takes seconds; a process that takes this long hangs.
COPY_S_MAX = 300
# The versions of the write and read format in the header: 2 for WAL, 1 otherwise.
HEADER = slice(18, 20)
WAL, NO_WAL = b"\x02\x02", b"\x01\x01"
SIDE_FILES = ("-wal", "-shm", "-journal")


def copy_database(path: Path, into: Path) -> str:
    """Copy the database at `path` to the new file `into`; return the original's journal mode.

    Neither the file nor its log is changed, and the copy needs no log.
    """
    if not path.exists():
        raise GoldenError(f"there is no file {path}")
    if not path.is_file():
        raise GoldenError(f"{path} is not a file")
    if _is_open_here(path):
        _copy_in_other_process(path, into)
    else:
        _copy(path, into)
    mode = read_journal_mode(into)
    if mode == "wal":
        set_wal_mode(into, wal=False)
    return mode


def _copy(path: Path, into: Path) -> None:
    with translate_errors(path):
        try:
            _backup(path, into, apsw.SQLITE_OPEN_READONLY)
        except (apsw.ReadOnlyError, apsw.CantOpenError):
            _recover_copy(path, into)


@contextmanager
def translate_errors(path: Path, done: str = "read") -> Iterator[None]:
    """Raise errors of SQLite and of the file system as GoldenError, with the name of the file."""
    try:
        yield
    except apsw.BusyError:
        raise GoldenError(f"{path} is locked by a writer that does not commit or close") from None
    except apsw.NotADBError:
        raise GoldenError(f"{path} is not a SQLite database, or is encrypted") from None
    except apsw.FullError:
        # The error of a backup does not say so itself.
        raise GoldenError(f"{path} cannot be {done}: the disk is full") from None
    except (apsw.Error, UnicodeDecodeError) as error:
        raise GoldenError(f"{path} cannot be {done}: {error}") from error
    except OSError as error:
        raise GoldenError(f"{path} cannot be {done}: {error.strerror}") from None


def _recover_copy(path: Path, into: Path) -> None:
    """Copy the files first, and let SQLite recover the copy: recovery changes a file."""
    with tempfile.TemporaryDirectory(dir=into.parent) as folder:
        left = Path(folder) / path.name
        for end in ("", "-wal", "-journal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{end}", f"{left}{end}")
        _backup(left, into, apsw.SQLITE_OPEN_READWRITE)


def _backup(source: Path, into: Path, flags: int) -> None:
    into.unlink(missing_ok=True)
    # A database in WAL mode without a log is complete. Opening it as immutable creates no log.
    complete = not any(Path(f"{source}{end}").exists() for end in SIDE_FILES)
    name = to_uri(source, immutable=complete and read_journal_mode(source) == "wal")
    with closing(apsw.Connection(name, flags | apsw.SQLITE_OPEN_URI)) as theirs:
        theirs.set_busy_timeout(BUSY_MS)
        theirs.execute("BEGIN; SELECT count(*) FROM sqlite_schema")
        with closing(apsw.Connection(str(into))) as ours:
            ours.execute("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")
            with ours.backup("main", theirs, "main") as backup:
                while not backup.done:
                    backup.step()


def to_uri(path: Path, *, immutable: bool) -> str:
    """Return a URI for SQLite; a path may hold any character."""
    return f"file:{quote(str(path.absolute()))}" + ("?immutable=1" if immutable else "")


def read_journal_mode(path: Path) -> str:
    """Return `wal`, or `delete` for all other modes."""
    with path.open("rb") as file:
        return "wal" if file.read(HEADER.stop)[HEADER] == WAL else "delete"


def set_wal_mode(path: Path, *, wal: bool = True) -> None:
    """Set the header of a complete database, which nobody has open, to WAL mode or to another."""
    with path.open("r+b") as file:
        file.seek(HEADER.start)
        file.write(WAL if wal else NO_WAL)


def _is_open_here(path: Path) -> bool:
    """Whether this process has the file open; true if that cannot be known."""
    try:
        descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208 (names are numbers here)
    except OSError:
        return True
    wanted = path.stat()
    for each in descriptors:
        with suppress(OSError):
            if os.path.samestat(os.fstat(int(each)), wanted):
                return True
    return False


def _copy_in_other_process(path: Path, into: Path) -> None:
    command = [sys.executable, "-P", "-m", __name__, str(path.absolute()), str(into.absolute())]
    try:
        done = subprocess.run(  # noqa: S603 (this module)
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COPY_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GoldenError(f"{path} could not be copied within {COPY_S_MAX} s") from None
    if done.returncode:
        raise GoldenError(done.stdout.strip() or f"{path} could not be copied: {done.stderr}")


def main() -> None:
    """Copy as a process of its own, and print the error if it fails."""
    try:
        _copy(Path(sys.argv[1]), Path(sys.argv[2]))
    except GoldenError as error:
        sys.stdout.write(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
