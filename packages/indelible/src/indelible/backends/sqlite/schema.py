"""The file: create it, check its format, migrate it, or refuse it untouched."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import apsw

from indelible.backends.sqlite.connection import (
    BEGIN_READ,
    BEGIN_WRITE,
    COMMIT,
    END_READ,
    ROLLBACK,
    Rows,
    SqliteConnection,
)
from indelible.core import fork
from indelible.core.cursors import SECRET_BYTES, create_secret
from indelible.errors import (
    BusyError,
    FormatError,
    MemoryStoreBackendError,
    MemoryStoreError,
    UnavailableError,
    UnsupportedError,
    UsageError,
)

APPLICATION_ID = 0x696E646C  # "indl"
FORMAT = 1

_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
# The parts of SQL text that whitespace and comments are told from. These are SQLite's own spaces.
_TOKENS = re.compile(
    r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|(?:--[^\n]*|/\*.*?(?:\*/|\Z)|[ \t\n\f\r])+""", re.DOTALL
)

# While a thread of this process creates a file and closes it, no other may lock it: closing a file
# drops every lock that the process has on it.
_creating = threading.Lock()


def _forget_creating_threads() -> None:
    """In a forked child: no thread of the parent creates a file here."""
    global _creating  # noqa: PLW0603 (the lock of the parent may be held for ever)
    _creating = threading.Lock()


fork.register(after_in_child=_forget_creating_threads)


def create_file(path: Path) -> None:
    """Make an empty file that only its owner can read; one that is there is left alone."""
    with _creating:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            if path.is_dir():
                raise UsageError(f"{path} is a directory, not a database file") from None
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MemoryStoreBackendError(
                f"{path} cannot be created, since there is no folder {path.parent}: make it first;"
                " nothing was written"
            ) from error
        except OSError as error:
            raise UnavailableError(
                f"{path} cannot be created: {error.strerror}; nothing was written"
            ) from error
        else:
            _sync_directory(path.parent)


def prepare(connection: SqliteConnection, *, busy_timeout_s: float) -> None:
    """Make sure that the file is indelible's and up to date, or refuse it untouched."""
    try:
        # In one state: another process may be creating the file right now.
        connection.execute(BEGIN_READ)
        found = _read_format(connection)
        connection.execute(END_READ)
        _switch_to_wal(connection, busy_timeout_s)
        if found < FORMAT:
            _migrate(connection)
    except MemoryStoreError:
        if connection.in_transaction:
            connection.execute(ROLLBACK)
        raise


def _read_format(db: SqliteConnection) -> int:
    """Return the file's format, 0 if it is empty; refuse a file that is not for this code."""
    ((application_id,),) = db.execute("PRAGMA application_id")
    ((version,),) = db.execute("PRAGMA user_version")
    if application_id == APPLICATION_ID:
        about = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'about'")
        rows = about and db.execute("SELECT value FROM about WHERE name = 'oldest_format'")
        oldest = rows[0][0] if rows else None
        if not isinstance(oldest, int) or version < 1:
            raise FormatError(f"{db.path} does not say its oldest format; it was left as it is")
        if oldest > FORMAT:
            raise FormatError(
                f"{db.path} was made by a newer indelible (format {version}, readable from format"
                f" {oldest} on; this one knows {FORMAT}); it was left as it is. Upgrade to use it.",
                format=version,
                oldest=oldest,
            )
        differences = compare_schema(db)
        if differences:
            raise FormatError(
                f"{db.path} {differences[0]}. What else is in a file can run when it is"
                " written to, so it was left as it is. Restore it from a backup, or remove what"
                " was added with the sqlite3 command.",
            )
        return int(version)
    ((tables,),) = db.execute("SELECT count(*) FROM sqlite_schema")
    if application_id or version or tables:
        raise FormatError(f"{db.path} belongs to another program; it was left as it is")
    return 0


class SchemaObject(NamedTuple):
    """A row of `sqlite_schema`, its SQL without comments and needless spaces."""

    type: str
    name: str
    table: str
    sql: str | None


# Tables that ANALYZE creates. Everything else in a schema is created by a migration, or refused.
_STATISTICS = {
    SchemaObject("table", name, name, f"CREATE TABLE {name}({columns})")
    for name, columns in {
        "sqlite_stat1": "tbl,idx,stat",
        "sqlite_stat4": "tbl,idx,neq,nlt,ndlt,sample",
    }.items()
}


def compare_schema(db: SqliteConnection) -> list[str]:
    """Say how the file's schema differs from the one that its format has."""
    ((version,),) = db.execute("PRAGMA user_version")
    found = _build_objects(db.execute(_SCHEMA))
    expected = build_schema(min(version, FORMAT))
    tables = {thing.table for thing in expected}
    added = [
        thing
        for thing in found - expected - _STATISTICS
        if not (version > FORMAT and _is_apart(thing, tables))
    ]
    known = {(thing.type, thing.name) for thing in found}
    missing = [thing for thing in expected - found if (thing.type, thing.name) not in known]
    return [
        *(
            f"holds the {thing.type} {thing.name!r}, which indelible did not make so"
            for thing in sorted(added, key=repr)
        ),
        *(
            f"lacks the {thing.type} {thing.name!r}: it is missing"
            for thing in sorted(missing, key=repr)
        ),
    ]


def _is_apart(thing: SchemaObject, tables: set[str]) -> bool:
    """Return whether an object of a newer format cannot affect our tables."""
    virtual = (thing.sql or "").upper().startswith("CREATE VIRTUAL")
    return thing.type in ("table", "index") and thing.table not in tables and not virtual


@cache
def build_schema(version: int) -> frozenset[SchemaObject]:
    """Build the schema that the migrations up to a format create."""
    db = apsw.Connection(":memory:")
    try:
        for number in range(1, version + 1):
            db.execute(_read_migration(number))
        rows: Rows = db.execute(_SCHEMA).fetchall()
    finally:
        db.close()
    return frozenset(_build_objects(rows))


def _build_objects(rows: Rows) -> set[SchemaObject]:
    return {SchemaObject(kind, name, table, _normalize(sql)) for kind, name, table, sql in rows}


@lru_cache(64)
def _normalize(sql: str | None) -> str | None:
    return None if sql is None else _TOKENS.sub(lambda found: found[1] or " ", str(sql)).strip()


def _read_migration(version: int) -> str:
    return files(__package__).joinpath("migrations", f"{version:04}.sql").read_text("utf-8")


def _migrate(db: SqliteConnection) -> None:
    """Bring the file to this format in one transaction; a second process finds it done."""
    db.execute(BEGIN_WRITE)
    found = _read_format(db)
    for version in range(found + 1, FORMAT + 1):
        db.execute(_read_migration(version))
    if found < FORMAT:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {FORMAT}")
    db.execute(COMMIT)


def read_secret(db: SqliteConnection) -> bytes | None:
    """Return the secret that signs the file's cursors, or None while it has none."""
    rows = db.execute("SELECT value FROM about WHERE name = 'secret'")
    if not rows:
        return None
    ((secret,),) = rows
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise FormatError("the secret that signs this file's cursors is damaged")
    return secret


def ensure_secret(db: SqliteConnection) -> bytes:
    """Return the file's secret, and create it if there is none; outside of any transaction."""
    db.execute("INSERT OR IGNORE INTO about VALUES ('secret', ?)", (create_secret(),))
    secret = read_secret(db)
    assert secret is not None
    return secret


def _switch_to_wal(connection: SqliteConnection, busy_timeout_s: float) -> None:
    """Switch the file to WAL mode. SQLite does not wait for other openers here, so we do."""
    deadline = time.monotonic() + busy_timeout_s
    while True:
        try:
            ((mode,),) = connection.execute("PRAGMA journal_mode = WAL")
        except BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0, 0.005))  # noqa: S311 (spreads the openers)
            continue
        if mode != "wal":
            raise UnsupportedError(
                f"{connection.path} cannot be shared between connections here (journal mode"
                f" {mode}): its file system lacks shared memory"
            )
        return


def _sync_directory(directory: Path) -> None:
    """Make the new file's name survive a power cut, as its contents will."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
