"""The manifest beside a golden: its hash, and what is in it, for people and for git."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import textwrap
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import apsw

from pytest_snapshot_db.database import Database, TableDigest, pack_row
from pytest_snapshot_db.errors import GoldenError
from pytest_snapshot_db.version import __version__

FORMAT: Final = 1
_NOT_CODE: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """A golden in short."""

    format: int = FORMAT
    sha256: str
    """Of the file, so that every change of it is found."""
    journal_mode: str
    """Of the original; copies of the golden get it back."""
    user_version: int
    application_id: int
    schema: str
    tables: Mapping[str, TableDigest]
    sqlite: str
    pytest_snapshot_db: str = __version__
    builder: str | None = None
    """A digest of the code that built it."""
    built_by: str | None = None

    def __post_init__(self) -> None:
        digests = self.tables.values()
        optional = [text for text in (self.builder, self.built_by) if text is not None]
        texts = [self.sha256, self.journal_mode, self.schema, self.sqlite, self.pytest_snapshot_db]
        texts += [*optional, *(each.digest for each in digests)]
        numbers = [self.format, self.user_version, self.application_id]
        numbers += [each.rows for each in digests]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a field that is a text holds something else")
        if not all(type(number) is int for number in numbers):
            raise ValueError("a field that is a whole number holds something else")


def build_manifest(
    path: Path, *, journal_mode: str, builder: Callable[..., Any] | None = None
) -> Manifest:
    """Describe a file."""
    with Database(path) as database:
        schema = [(kind, name, sql) for (kind, name), sql in sorted(database.read_schema().items())]
        return Manifest(
            sha256=hash_file(path),
            journal_mode=journal_mode,
            user_version=database.read_pragma("user_version"),
            application_id=database.read_pragma("application_id"),
            schema=hashlib.sha256(b"".join(map(pack_row, schema))).hexdigest(),
            tables=compute_digests(database),
            sqlite=apsw.sqlite_lib_version(),
            builder=hash_builder(builder),
            built_by=name_builder(builder),
        )


def compute_digests(database: Database) -> dict[str, TableDigest]:
    """Compute the digests of all tables."""
    return {table.name: database.compute_digest(table) for table in database.tables.values()}


def hash_file(path: Path) -> str:
    """Hash the bytes of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Write a manifest so that git shows no more than what changed."""
    fields = asdict(manifest)
    fields["tables"] = {name: each._asdict() for name, each in sorted(manifest.tables.items())}
    path.write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; raise GoldenError if it is none."""
    try:
        fields = json.loads(path.read_text("utf-8"))
        if fields["format"] > FORMAT:
            raise GoldenError(
                f"{path} was written by a newer pytest-snapshot-db"
                f" ({fields['pytest_snapshot_db']}): upgrade to use it"
            )
        tables = {name: TableDigest(**digest) for name, digest in fields.pop("tables").items()}
        return Manifest(**fields, tables=tables)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise GoldenError(f"{path} is not the manifest of a golden: {error}") from None


def hash_builder(builder: Callable[..., Any] | None) -> str | None:
    """Hash the code of a function without comments and spaces; None if there is no source."""
    if builder is None:
        return None
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(builder)))
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        code = "".join("".join(t.string.split()) for t in tokens if t.type not in _NOT_CODE)
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        return None
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def name_builder(builder: Callable[..., Any] | None) -> str | None:
    """Return the module and the name of a function."""
    if builder is None:
        return None
    name = getattr(builder, "__qualname__", type(builder).__name__)
    return f"{getattr(builder, '__module__', '?')}:{name}"


def stat_file(path: Path) -> tuple[int, ...]:
    """Return what shows that a file was written to, without reading it."""
    found = os.stat(path)  # noqa: PTH116 (called after each test)
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
