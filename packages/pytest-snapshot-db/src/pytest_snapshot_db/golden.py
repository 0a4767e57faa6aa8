"""Goldens on disk: their names and manifests, locks, copies and replacement.

The manifest beside a golden has its hash, and a description that makes a diff readable.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import inspect
import json
import os
import re
import shlex
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import apsw

from pytest_snapshot_db.copy_live import set_wal_mode, translate_errors
from pytest_snapshot_db.database import Database, Table, quote_name
from pytest_snapshot_db.errors import GoldenError, TouchedError
from pytest_snapshot_db.version import __version__

Build = Callable[[Path], Any]
Manifest = dict[str, Any]

FORMAT: Final = 1
FOLDER: Final = "__snapshot_dbs__"
NAME: Final = re.compile(r"\w[\w\-\[\]=,+ .]*")
NAME_BYTES_MAX: Final = 120
# A project may ignore *.db; goldens are sources.
GITIGNORE: Final = """\
!*.db
.writing-*
"""
# Goldens that this process has hashed, with their `stat` at that time.
_checked: dict[Path, tuple[tuple[int, ...], Manifest]] = {}


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

    def exists(self) -> bool:
        """Whether it was written; raise GoldenError for a file without a manifest."""
        if self.path.exists() and not self.manifest_path.exists():
            raise GoldenError(
                f"{self.path} has no manifest, so it is not a golden. It was not changed. To make a"
                " golden of a file, move it elsewhere, and let build= copy it"
            )
        return self.path.exists()

    @contextmanager
    def lock(self, *, exclusive: bool = False) -> Iterator[None]:
        """Lock the folder: shared to read, exclusive to replace.

        A lock on the folder needs no file of its own, and ends with the process.
        """
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # Some file systems have no locks.
                fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)

    def check(self) -> Manifest:
        """Return the manifest; raise TouchedError if the file, which is locked, has another hash.

        A process hashes a file once, and again if its `stat` has changed.
        """
        seen = (*stat_file(self.path), *stat_file(self.manifest_path))
        known = _checked.get(self.path)
        if known is not None and known[0] == seen:
            return known[1]
        manifest = read_manifest(self.manifest_path)
        if hash_file(self.path) != manifest["sha256"]:
            raise TouchedError(
                f"{self.path} is not the file that was written: {_explain_touched(self.path)}"
            )
        _checked[self.path] = (seen, manifest)
        return manifest

    def copy(self, into: Path) -> Manifest:
        """Make a writable copy, in the journal mode of the original."""
        with self.lock():
            manifest = self.check()
            with translate_errors(into, "written"):
                shutil.copyfile(self.path, into)
        into.chmod(0o600)
        if manifest["journal_mode"] == "wal":
            set_wal_mode(into)
        return manifest

    @contextmanager
    def stage(self) -> Iterator[Path]:
        """Make a folder on the same file system, for the files that replace the golden."""
        with translate_errors(self.path, "written"):
            is_first = not self.folder.parent.exists()
            self.folder.mkdir(parents=True, exist_ok=True)
            if is_first:
                (self.folder.parent / ".gitignore").write_text(GITIGNORE, "utf-8")
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=".writing-") as staging:
                yield Path(staging)

    def replace(self, fresh: Path, manifest: Manifest) -> None:
        """Replace the golden, which is locked, by a file in a staging folder."""
        fresh.chmod(0o644)
        # The manifest first: a database without one is refused.
        self.replace_manifest(manifest, fresh.parent)
        fresh.replace(self.path)

    def replace_manifest(self, manifest: Manifest, staging: Path) -> None:
        """Replace the manifest of the golden, which is locked, by a rename."""
        written = staging / "manifest.json"
        text = json.dumps(manifest, indent=2, ensure_ascii=False)
        written.write_text(text + "\n", "utf-8")
        written.replace(self.manifest_path)


def find_golden(module: Path, name: str) -> Golden:
    """Return the golden that a test module calls by this name."""
    if not isinstance(name, str):
        raise GoldenError(f"the name of a golden comes first, and is a text, not {name!r}")
    is_short = len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX
    if not NAME.fullmatch(name) or not is_short:
        raise GoldenError(
            f"{name!r} cannot be the name of a golden: letters, digits, spaces and - _ [ ] = , + ."
            f" alone, beginning with a letter, a digit or _, at most {NAME_BYTES_MAX} bytes"
        )
    return Golden(module.parent / FOLDER / module.stem, name)


def build_manifest(path: Path, *, journal_mode: str, builder: Build | None = None) -> Manifest:
    """Describe a file: `sha256`, `journal_mode` and `builder` are used, the rest is for people."""
    with Database(path) as database:
        schema = sorted(database.read_schema().items())
        tables = sorted(database.tables.values(), key=lambda table: table.name)
        return {
            "format": FORMAT,
            "sha256": hash_file(path),
            "journal_mode": journal_mode,
            "user_version": database.read_pragma("user_version"),
            "application_id": database.read_pragma("application_id"),
            "schema": hashlib.sha256(repr(schema).encode()).hexdigest(),
            "tables": {table.name: _describe_table(database, table) for table in tables},
            "sqlite": apsw.sqlite_lib_version(),
            "pytest_snapshot_db": __version__,
            "builder": builder and hash_builder(builder),
            "built_by": builder and name_builder(builder),
        }


def _describe_table(database: Database, table: Table) -> dict[str, int | str]:
    table.check_width()
    digest = hashlib.blake2b(repr(table.columns).encode(), digest_size=16)
    rows = 0
    for row in database.read_rows(map(quote_name, table.columns), table.source):
        digest.update(repr(row).encode())
        rows += 1
    return {"rows": rows, "digest": digest.hexdigest()}


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; raise GoldenError if it is not valid."""
    try:
        manifest: Manifest = json.loads(path.read_text("utf-8"))
        if manifest["format"] > FORMAT:
            raise GoldenError(
                f"{path} was written by a newer pytest-snapshot-db"
                f" ({manifest['pytest_snapshot_db']}): upgrade to use it"
            )
        return manifest | {name: manifest[name] for name in ("sha256", "journal_mode", "builder")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise GoldenError(f"{path} is not the manifest of a golden: {error}") from None


def hash_file(path: Path) -> str:
    """Hash the bytes of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stat_file(path: Path) -> tuple[int, ...]:
    """Return the times, size and inode of a file, which change when it is written to."""
    found = os.stat(path)  # noqa: PTH116 (called after each test)
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _explain_touched(path: Path) -> str:
    with path.open("rb") as file:
        if file.read(64).startswith(b"version https://git-lfs"):
            return "it is a pointer of Git LFS. Fetch the file itself: git lfs pull"
    return (
        "somebody has changed it since. Bring it back from version control, or make it again:\n"
        f"  git checkout -- {shlex.quote(str(path))}\n"
        "  pytest --snapshot-db-update-only=changed"
    )


def hash_builder(builder: Build) -> str | None:
    """Hash the code of a function without comments and spaces; None if there is no source."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(builder)))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return None
    # The names and constants of each node, which are the same on each version of Python.
    nodes = []
    for node in ast.walk(tree):
        values = [value for _, value in ast.iter_fields(node)]
        plain = [value for value in values if not isinstance(value, (ast.AST, list))]
        nodes.append((type(node).__name__, *plain))
    return hashlib.sha256(repr(nodes).encode()).hexdigest()[:16]


def name_builder(builder: Build) -> str:
    """Return the module and the name of a function."""
    name = getattr(builder, "__qualname__", type(builder).__name__)
    return f"{getattr(builder, '__module__', '?')}:{name}"


def write_canonical(path: Path, into: Path) -> None:
    """Write a database anew, so that the same contents give the same bytes."""
    into.unlink(missing_ok=True)
    with (
        translate_errors(into, "written"),
        closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as database,
    ):
        try:
            database.execute("VACUUM INTO ?", (str(into),))
        except apsw.SQLError:
            # It needs a function or a collation of its program: copy its pages instead.
            into.unlink(missing_ok=True)
            shutil.copyfile(path, into)
