"""The tables: creating, migrating and checking them; the secret that signs cursors."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from indelible.backends.postgres.arrays import IntArray
from indelible.backends.postgres.connection import HANDLERS, PostgresConnection
from indelible.backends.postgres.sessions import build_checksum
from indelible.backends.postgres.statements import format_milliseconds
from indelible.backends.postgres.transaction import CHECKSUMS, ORPHANS
from indelible.core.cursors import SECRET_BYTES, create_secret, derive_key
from indelible.core.deadline import Deadline
from indelible.core.operations import CheckEngine, ReadCursorKey, Scrub
from indelible.errors import FormatError

FORMAT: Final = 1
# The key of the advisory lock that a migration holds: "indl" twice.
MIGRATION_LOCK: Final = 0x696E646C696E646C

_SCHEMA: Final = """
    SELECT to_regclass('indelible.about') IS NOT NULL, to_regnamespace('indelible') IS NOT NULL,
        EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('indelible'))"""

# `about` holds integers, so the secret that signs cursors is stored as four of them.
_WORDS_COUNT: Final = SECRET_BYTES // 8
_SELECT_WORDS: Final = "SELECT value FROM indelible.about WHERE name LIKE 'secret%' ORDER BY name"
_INSERT_WORDS: Final = """
    INSERT INTO indelible.about (name, value)
    SELECT 'secret_' || nth, word FROM unnest($1::bigint[]) WITH ORDINALITY AS words (word, nth)
    ORDER BY nth
    ON CONFLICT DO NOTHING"""


def prepare(db: PostgresConnection, place: str, deadline: Deadline) -> None:
    """Create or migrate the tables. Tables that cannot be used are refused and left unchanged."""
    found, _ = _read_format(db, place)
    if found >= FORMAT:
        return
    db.begin(writes=True)
    # The files rely on it, but server or role may have another default.
    db.do("SET LOCAL standard_conforming_strings = on")
    db.do("SELECT set_config('lock_timeout', $1, true)", (format_milliseconds(deadline.left_s()),))
    db.do("SELECT pg_advisory_xact_lock($1::bigint)", (MIGRATION_LOCK,))
    # Another process may have migrated them while this one waited for the lock.
    found, has_schema = _read_format(db, place)
    if not has_schema:
        db.do("CREATE SCHEMA indelible")
    for version in range(found + 1, FORMAT + 1):
        db.run_script(read_migration(version))
    db.commit()


def read_migration(version: int) -> str:
    """Read the script that migrates the tables to a format from the one before it."""
    return files(__package__).joinpath("migrations", f"{version:04}.sql").read_text("utf-8")


@HANDLERS.handles(ReadCursorKey)
def read_cursor_key(db: PostgresConnection, op: ReadCursorKey) -> bytes:
    """Return the key for cursors; the first store that needs it writes the secret."""
    context = db.context
    if context.cursor_key is None or op.again:
        secret = _read_secret(db) or _create_secret(db)
        context.cursor_key = derive_key(secret, context.namespace.decode())
    return context.cursor_key


def _read_secret(db: PostgresConnection) -> bytes | None:
    rows = db.query(_SELECT_WORDS)
    if not rows:
        return None
    if len(rows) != _WORDS_COUNT:
        raise FormatError("the secret that signs the cursors of these tables is damaged")
    return b"".join(value.to_bytes(8, "big", signed=True) for (value,) in rows)


def _create_secret(db: PostgresConnection) -> bytes:
    new = create_secret()
    words = IntArray(
        int.from_bytes(new[at : at + 8], "big", signed=True) for at in range(0, SECRET_BYTES, 8)
    )
    db.begin(writes=True)
    # Another process that does the same waits here, and then reads these words.
    db.do(_INSERT_WORDS, (words,))
    secret = _read_secret(db)
    db.commit()
    assert secret is not None
    return secret


def _read_format(db: PostgresConnection, place: str) -> tuple[int, bool]:
    """Read the format, 0 if there are no tables, and whether the schema exists."""
    ((is_ours, has_schema, is_used),) = db.query(_SCHEMA)
    if not is_ours:
        if is_used:
            raise FormatError(
                f"the schema indelible of {place} belongs to another program; it was left as it is"
            )
        return 0, has_schema
    rows = db.query("SELECT name, value FROM indelible.about")
    about: dict[str, int] = dict(rows)
    if not all(isinstance(about.get(name), int) for name in ("format", "oldest_format")):
        raise FormatError(f"{place} does not say its format; it was left as it is")
    if about["oldest_format"] > FORMAT:
        raise FormatError(
            f"the tables of {place} were made by a newer indelible (format {about['format']},"
            f" usable from format {about['oldest_format']} on; this one knows {FORMAT}); they were"
            " left as they are. Upgrade to use them.",
            format=about["format"],
            oldest=about["oldest_format"],
        )
    return about["format"], True


@HANDLERS.handles(CheckEngine)
def check_engine(db: PostgresConnection, _op: CheckEngine) -> tuple[str, ...]:
    """Count rows that belong to no session, and rows whose checksum does not match."""
    counts = {f"rows of {table} belong to no session": rows for table, rows in ORPHANS.items()}
    for table, checksum in {"session": build_checksum(), **CHECKSUMS}.items():
        counts[f"rows of {table} are damaged: their checksum does not match"] = (
            f"FROM indelible.{table} WHERE checksum IS DISTINCT FROM {checksum}"
        )
    (found,) = db.query(
        f"SELECT {', '.join(f'(SELECT count(*) {count})' for count in counts.values())}"
    )
    return tuple(f"{count} {what}" for what, count in zip(counts, found, strict=True) if count)


@HANDLERS.handles(Scrub)
def scrub(_db: PostgresConnection, _op: Scrub) -> tuple[str, ...]:
    """Do nothing: a client cannot clear the server's files. The receipt of an erasure says so."""
    return ()
