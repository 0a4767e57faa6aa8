"""Goldens on disk: where they are, whole or not, copied out, and replaced all at once."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from pytest_snapshot_db import manifest as manifests
from pytest_snapshot_db.errors import GoldenError, TouchedError
from pytest_snapshot_db.manifest import Manifest, sha256_of, signature
from pytest_snapshot_db.taking import SIDE_FILES, TakingError, take, with_log, without_log

FOLDER: Final = "__snapshot_dbs__"
OBTAINED: Final = ".obtained"
NAME: Final = re.compile(r"\w[\w\-\[\]=,+ .]*")
NAME_CHARS_MAX: Final = 120
# The ioctl by which Linux lets two files share their blocks until one is written to.
FICLONE: Final = 0x40049409

# Replacing a golden takes two renames: whoever holds the lock for longer does not let go.
LOCK_S_MAX: Final = 60.0

# Others may ignore all databases; these are sources.
GITIGNORE: Final = """\
# Goldens are kept; what a failed test obtained is not.
!*.db
*.obtained.db
.writing-*
"""


@dataclass(frozen=True, slots=True)
class Golden:
    """One golden of a test module: a file and its manifest, which may not be there yet."""

    folder: Path
    name: str

    @property
    def path(self) -> Path:
        """The database."""
        return self.folder / f"{self.name}.db"

    @property
    def manifest_path(self) -> Path:
        """What is written down beside it."""
        return self.folder / f"{self.name}.json"

    @property
    def obtained_path(self) -> Path:
        """Where what a failed test obtained is put."""
        return self.folder / f"{self.name}{OBTAINED}.db"

    def exists(self) -> bool:
        """Whether it was ever written."""
        return self.path.exists() and self.manifest_path.exists()


def golden_of(module: Path, name: str) -> Golden:
    """The golden that a test module calls by this name."""
    if not isinstance(name, str):
        raise GoldenError(f"the name of a golden comes first, and is a text, not {name!r}")
    if not NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX or name.endswith(OBTAINED):
        raise GoldenError(
            f"{name!r} cannot be the name of a golden: letters, digits and - _ [ ] = , + . alone,"
            f" beginning with a letter, at most {NAME_CHARS_MAX}"
        )
    return Golden(module.parent / FOLDER / module.stem, name)


@contextmanager
def locked(golden: Golden, *, exclusive: bool) -> Iterator[None]:
    """Keep others from replacing a golden, or from looking at it while it is replaced.

    The lock is on its folder: it needs no file of its own, and goes with the process.
    """
    if exclusive:
        _make(golden.folder)
    descriptor = os.open(golden.folder, os.O_RDONLY)
    try:
        _wait_for(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, golden)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, lock: int, golden: Golden) -> None:
    deadline = time.monotonic() + LOCK_S_MAX
    while True:
        try:
            fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise GoldenError(
                    f"another process has kept {golden.folder} locked for {LOCK_S_MAX:g} s"
                ) from None
            time.sleep(0.002)
        except OSError:
            return  # Some file systems have no locks.
        else:
            return


def _make(folder: Path) -> None:
    """Make the folder of a module's goldens; beside the first, say what git is to keep."""
    root = folder.parent
    new = not root.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if new:
        (root / ".gitignore").write_text(GITIGNORE, "utf-8")


_whole: dict[Path, tuple[tuple[int, ...], Manifest]] = {}


def checked(golden: Golden, *, locked_already: bool = False) -> Manifest:
    """The manifest of a golden whose bytes are those that it names; hashed once, then looked at."""
    with nullcontext() if locked_already else locked(golden, exclusive=False):
        seen = (*signature(golden.path), *signature(golden.manifest_path))
        known = _whole.get(golden.path)
        if known is not None and known[0] == seen:
            return known[1]
        found = manifests.read(golden.manifest_path)
        if sha256_of(golden.path) != found.sha256:
            raise TouchedError(f"{golden.path} is not the file that was written: {_why(golden)}")
        _whole[golden.path] = (seen, found)
        return found


def _why(golden: Golden) -> str:
    with golden.path.open("rb") as file:
        begins = file.read(64)
    if begins.startswith(b"version https://git-lfs"):
        return "it is a pointer of Git LFS. Fetch the file itself: git lfs pull"
    return (
        "somebody has changed it since. Bring it back from version control, or make it again:\n"
        f"  git checkout -- {shlex.quote(str(golden.path))}\n"
        "  pytest --snapshot-db-update-only=changed"
    )


def copy_out(golden: Golden, into: Path) -> Manifest:
    """A writable copy, in the journal mode of the original."""
    found = checked(golden)
    with locked(golden, exclusive=False):
        clone(golden.path, into)
    into.chmod(0o600)
    if found.journal_mode == "wal":
        with_log(into)
    return found


def clone(path: Path, into: Path) -> None:
    """Copy a file: by sharing its blocks where the file system can, else at the kernel's speed."""
    with path.open("rb") as source, into.open("xb") as target:
        try:
            fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
        except OSError:
            pass
        else:
            return
    shutil.copyfile(path, into)


def canonical(path: Path, into: Path) -> None:
    """Write the same contents in the one form that SQLite gives them."""
    into.unlink(missing_ok=True)
    with closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as database:
        try:
            database.execute("VACUUM INTO ?", (str(into),))
        except apsw.SQLError:
            # It needs a function or a collation of its own program: its pages are as good.
            into.unlink(missing_ok=True)
            shutil.copyfile(path, into)
        except apsw.Error as error:
            raise GoldenError(f"{path} cannot be written anew: {error}") from None
    if into.stat().st_size == 0:
        raise GoldenError("the database is empty: nothing was written to it")


def put(golden: Golden, fresh: Path, manifest: Manifest) -> None:
    """Replace a golden by a file beside it; a reader sees the old pair or the new one."""
    fresh.chmod(0o644)
    written = fresh.with_suffix(".json")
    manifests.write(manifest, written)
    # The manifest first: a database without one was put there by hand.
    written.replace(golden.manifest_path)
    fresh.replace(golden.path)
    forget_obtained(golden)


def forget_obtained(golden: Golden) -> None:
    """Remove what an earlier run obtained; goldens may lie where nothing can be written."""
    if golden.obtained_path.exists():
        with suppress(OSError):
            golden.obtained_path.unlink()


@contextmanager
def workbench(golden: Golden) -> Iterator[Path]:
    """A folder on the golden's own file system, in which its next form is put together."""
    _make(golden.folder)
    with tempfile.TemporaryDirectory(dir=golden.folder, prefix=".writing-") as folder:
        yield Path(folder)


def taken(path: Path, into: Path) -> str:
    """A copy of a file as a new process would see it, and the journal mode of the original."""
    try:
        return take(path, into)
    except TakingError as error:
        raise GoldenError(str(error)) from None


def adopted(golden: Golden, workbench: Path) -> str:
    """Look at a file that somebody put where a golden belongs; it is kept as it is.

    Gives its journal mode, which is taken out of its header: a golden needs no log.
    """
    beside = [f"{golden.path.name}{end}" for end in SIDE_FILES]
    left = [name for name in beside if (golden.folder / name).exists()]
    if left:
        raise GoldenError(
            f"{golden.path} has {' and '.join(left)} beside it: close whoever has it open, or merge"
            f" them first (sqlite3 {golden.path} 'PRAGMA wal_checkpoint(TRUNCATE)')"
        )
    fresh = workbench / golden.path.name
    shutil.copyfile(golden.path, fresh)
    return without_log(fresh)
