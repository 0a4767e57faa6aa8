"""Goldens on disk: their names, locks, copies and replacement."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from pytest_snapshot_db.copy_live import set_wal_mode
from pytest_snapshot_db.errors import GoldenError, TouchedError
from pytest_snapshot_db.manifest import (
    Manifest,
    hash_file,
    read_manifest,
    stat_file,
    write_manifest,
)

FOLDER: Final = "__snapshot_dbs__"
OBTAINED: Final = ".obtained"
NAME: Final = re.compile(r"\w[\w\-\[\]=,+ .]*")
NAME_CHARS_MAX: Final = 120
# A project may ignore all databases; goldens are sources.
GITIGNORE: Final = """\
# Goldens are kept; what a failed test obtained is not.
!*.db
*.obtained.db
.writing-*
"""


@dataclass(frozen=True, slots=True)
class Golden:
    """One golden of a test module: a file and its manifest, which need not exist yet."""

    folder: Path
    name: str

    @property
    def path(self) -> Path:
        """The database."""
        return self.folder / f"{self.name}.db"

    @property
    def manifest_path(self) -> Path:
        """Its manifest."""
        return self.folder / f"{self.name}.json"

    @property
    def obtained_path(self) -> Path:
        """The copy of what a failed test obtained."""
        return self.folder / f"{self.name}{OBTAINED}.db"

    def exists(self) -> bool:
        """Whether it was written."""
        return self.path.exists() and self.manifest_path.exists()


def find_golden(module: Path, name: str) -> Golden:
    """Return the golden that a test module calls by this name."""
    if not isinstance(name, str):
        raise GoldenError(f"the name of a golden comes first, and is a text, not {name!r}")
    if not NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX or name.endswith(OBTAINED):
        raise GoldenError(
            f"{name!r} cannot be the name of a golden: letters, digits and - _ [ ] = , + . alone,"
            f" beginning with a letter, at most {NAME_CHARS_MAX}"
        )
    return Golden(module.parent / FOLDER / module.stem, name)


@contextmanager
def lock(golden: Golden, *, exclusive: bool) -> Iterator[None]:
    """Lock the folder of a golden: shared to read, exclusive to replace.

    A lock on the folder needs no file of its own, and ends with the process.
    """
    if exclusive:
        _make_folder(golden.folder)
    descriptor = os.open(golden.folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # Some file systems have no locks.
            fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _make_folder(folder: Path) -> None:
    """Make the folder of a module's goldens, with a .gitignore beside the first."""
    is_first = not folder.parent.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if is_first:
        (folder.parent / ".gitignore").write_text(GITIGNORE, "utf-8")


_checked: dict[Path, tuple[tuple[int, ...], Manifest]] = {}


def check_golden(golden: Golden, *, is_locked: bool = False) -> Manifest:
    """Return the manifest of a golden, and raise TouchedError if its file has other bytes.

    A file is hashed once in each process, and again if it was written to.
    """
    with nullcontext() if is_locked else lock(golden, exclusive=False):
        seen = (*stat_file(golden.path), *stat_file(golden.manifest_path))
        known = _checked.get(golden.path)
        if known is not None and known[0] == seen:
            return known[1]
        manifest = read_manifest(golden.manifest_path)
        if hash_file(golden.path) != manifest.sha256:
            raise TouchedError(
                f"{golden.path} is not the file that was written: {_explain(golden)}"
            )
        _checked[golden.path] = (seen, manifest)
        return manifest


def _explain(golden: Golden) -> str:
    with golden.path.open("rb") as file:
        if file.read(64).startswith(b"version https://git-lfs"):
            return "it is a pointer of Git LFS. Fetch the file itself: git lfs pull"
    return (
        "somebody has changed it since. Bring it back from version control, or make it again:\n"
        f"  git checkout -- {shlex.quote(str(golden.path))}\n"
        "  pytest --snapshot-db-update-only=changed"
    )


def copy_golden(golden: Golden, into: Path) -> Manifest:
    """Make a writable copy, in the journal mode of the original."""
    manifest = check_golden(golden)
    with lock(golden, exclusive=False):
        shutil.copyfile(golden.path, into)
    into.chmod(0o600)
    if manifest.journal_mode == "wal":
        set_wal_mode(into)
    return manifest


def write_canonical(path: Path, into: Path) -> None:
    """Write the contents of a database in the one form that SQLite gives them."""
    into.unlink(missing_ok=True)
    with closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as database:
        try:
            database.execute("VACUUM INTO ?", (str(into),))
        except apsw.SQLError:
            # It needs a function or a collation of its program: copy its pages instead.
            into.unlink(missing_ok=True)
            shutil.copyfile(path, into)
        except apsw.Error as error:
            raise GoldenError(f"{path} cannot be written anew: {error}") from None
    if into.stat().st_size == 0:
        raise GoldenError("the database is empty: nothing was written to it")


def replace_golden(golden: Golden, fresh: Path, manifest: Manifest) -> None:
    """Replace a golden, which is locked, by a file on the same file system."""
    fresh.chmod(0o644)
    written = fresh.with_suffix(".json")
    write_manifest(manifest, written)
    # The manifest first: a database without one was put there by hand.
    written.replace(golden.manifest_path)
    fresh.replace(golden.path)
    remove_obtained(golden)


def remove_obtained(golden: Golden) -> None:
    """Remove what an earlier run obtained, if the folder can be written to."""
    if golden.obtained_path.exists():
        with suppress(OSError):
            golden.obtained_path.unlink()


@contextmanager
def make_workspace(golden: Golden) -> Iterator[Path]:
    """Make a temporary folder on the golden's own file system."""
    _make_folder(golden.folder)
    with tempfile.TemporaryDirectory(dir=golden.folder, prefix=".writing-") as folder:
        yield Path(folder)
