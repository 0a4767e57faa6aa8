"""What is written down beside a golden: its hash, and what is in it, for people and for git."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import textwrap
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import apsw

from pytest_snapshot_db.errors import GoldenError
from pytest_snapshot_db.reading import Database, Tally, packed
from pytest_snapshot_db.version import __version__

FORMAT: Final = 1
# A line for each table: no manifest of a real database comes near.
MANIFEST_BYTES_MAX: Final = 64 << 20
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

    sha256: str
    """Of the file: whoever touches it is found out."""
    journal_mode: str
    """Of the file that it was made of; its copies get it back."""
    user_version: int
    application_id: int
    schema: str
    tables: Mapping[str, Tally]
    sqlite: str
    pytest_snapshot_db: str = __version__
    builder: str | None = None
    """A digest of the code that built it."""
    built_by: str | None = None
    format: int = field(default=FORMAT)


def manifest_of(
    path: Path, *, journal_mode: str, builder: Callable[..., Any] | None = None
) -> Manifest:
    """Look at a file, and write down what is in it."""
    with Database(path) as database:
        schema = [(kind, name, sql) for (kind, name), sql in sorted(database.schema().items())]
        return Manifest(
            sha256=sha256_of(path),
            journal_mode=journal_mode,
            user_version=database.pragma("user_version"),
            application_id=database.pragma("application_id"),
            schema=hashlib.sha256(b"".join(map(packed, schema))).hexdigest(),
            tables={table.name: database.tally(table) for table in database.tables.values()},
            sqlite=apsw.sqlite_lib_version(),
            builder=digest_of(builder),
            built_by=name_of(builder),
        )


def sha256_of(path: Path) -> str:
    """The hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(manifest: Manifest, path: Path) -> None:
    """Write it as JSON that changes no more than it must."""
    said = {"format": manifest.format, **asdict(manifest)}
    said["tables"] = {name: tally._asdict() for name, tally in sorted(manifest.tables.items())}
    path.write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read(path: Path) -> Manifest:
    """Read one; an error says what is wrong with it."""
    try:
        said = json.loads(_read_text(path))
        if said["format"] > FORMAT:
            raise GoldenError(
                f"{path} was written by a newer pytest-snapshot-db"
                f" ({said['pytest_snapshot_db']}): upgrade to use it"
            )
        tables = {name: Tally(**tally) for name, tally in said.pop("tables").items()}
        found = Manifest(**said, tables=tables)
        _require_types(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise GoldenError(f"{path} is not the manifest of a golden: {error}") from None
    return found


def _read_text(path: Path) -> str:
    with path.open("rb") as file:
        text = file.read(MANIFEST_BYTES_MAX + 1)
    if len(text) > MANIFEST_BYTES_MAX:
        raise ValueError(f"it has over {MANIFEST_BYTES_MAX} bytes")
    return text.decode("utf-8")


def _require_types(found: Manifest) -> None:
    texts = [found.sha256, found.journal_mode, found.schema, found.sqlite, found.pytest_snapshot_db]
    texts += [text for text in (found.builder, found.built_by) if text is not None]
    texts += [tally.digest for tally in found.tables.values()]
    numbers = [found.format, found.user_version, found.application_id]
    numbers += [tally.rows for tally in found.tables.values()]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a field that is a text holds something else")
    if not all(type(number) is int for number in numbers):
        raise ValueError("a field that is a whole number holds something else")


def digest_of(builder: Callable[..., Any] | None) -> str | None:
    """A digest of a function's code without comments; None if there is no source to be had."""
    if builder is None:
        return None
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(builder)))
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        # Without spaces: whoever formats the code does not change it.
        code = "".join("".join(t.string.split()) for t in tokens if t.type not in _NOT_CODE)
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        return None
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def name_of(builder: Callable[..., Any] | None) -> str | None:
    """The function's name, for whoever looks for it."""
    if builder is None:
        return None
    name = getattr(builder, "__qualname__", type(builder).__name__)
    return f"{getattr(builder, '__module__', '?')}:{name}"


def signature(path: Path) -> tuple[int, ...]:
    """What a look at a file shows that was written to; cheap enough for after each test."""
    found = os.stat(path)  # noqa: PTH116 (called after each test)
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
