"""The tables: created, recognised, migrated, or refused untouched."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from indelible.backends.postgres.statements import (
    Begin,
    Commit,
    Do,
    RunScript,
    Sql,
    format_milliseconds,
)
from indelible.core.checksums import compute_entry_checksum, compute_session_salt
from indelible.core.cursors import SECRET_BYTES, create_secret
from indelible.core.plan import Plan, perform
from indelible.errors import FormatError

FORMAT: Final = 5
# "indl" twice: whoever migrates holds this lock until its transaction ends.
MIGRATION_LOCK: Final = 0x696E646C696E646C

# The format that brought checksums, and how many entries that were there get theirs at a time.
_CHECKSUMS_SINCE: Final = 4
_BACKFILL_ENTRIES: Final = 1000
# An envelope begins with its checksum. Entries of no session, which verify finds, get one, too.
_UNCHECKED: Final = """
    SELECT session, position, written_at, entry.deadline, entry.generation, batch,
        substr(payload, 1, 64), coalesce(namespace, ''), coalesce(name, '')
    FROM indelible.entry LEFT JOIN indelible.session AS own ON own.number = session
    WHERE (session, position) > ($1::bigint, $2::bigint) ORDER BY session, position LIMIT $3"""
_SET_CHECKSUMS: Final = """
    UPDATE indelible.entry SET checksum = new.checksum
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS new (session, position, checksum)
    WHERE entry.session = new.session AND entry.position = new.position"""

_SCHEMA: Final = """
    SELECT to_regclass('indelible.about') IS NOT NULL, to_regnamespace('indelible') IS NOT NULL,
        EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('indelible'))"""

# `about` holds whole numbers: the secret that signs cursors is four of them.
_WORDS_COUNT: Final = SECRET_BYTES // 8
_SELECT_WORDS: Final = "SELECT value FROM indelible.about WHERE name LIKE 'secret%' ORDER BY name"
_INSERT_WORDS: Final = """
    INSERT INTO indelible.about (name, value)
    SELECT 'secret_' || nth, word FROM unnest($1::bigint[]) WITH ORDINALITY AS words (word, nth)
    ORDER BY nth
    ON CONFLICT DO NOTHING"""


def prepare(place: str, *, wait_s: float) -> Plan[None]:
    """Make sure that the tables are there and up to date, or refuse them untouched."""
    found, _ = yield from _format_of(place)
    if found >= FORMAT:
        return
    yield Begin()
    # A server may be told to read backslashes in literals as escapes; these files do not.
    yield Do("SET LOCAL standard_conforming_strings = on")
    yield Do("SELECT set_config('lock_timeout', $1, true)", (format_milliseconds(wait_s),))
    yield Do("SELECT pg_advisory_xact_lock($1::bigint)", (MIGRATION_LOCK,))
    # Another process may have done it while this one waited.
    found, has_schema = yield from _format_of(place)
    if not has_schema:
        yield Do("CREATE SCHEMA indelible")
    for version in range(found + 1, FORMAT + 1):
        text = files(__package__).joinpath("migrations", f"{version:04}.sql").read_text("utf-8")
        yield RunScript(text)
        if version == _CHECKSUMS_SINCE:
            yield from _add_entry_checksums()
    yield Commit()


def _add_entry_checksums() -> Plan[None]:
    """Give entries that were written before there were checksums theirs."""
    after = (0, -1)
    while rows := (yield from perform(Sql(_UNCHECKED, (*after, _BACKFILL_ENTRIES)))):
        checksums = [
            compute_entry_checksum(
                compute_session_salt(namespace.decode(), name.decode()),
                head,
                position=position,
                written_at_ms=written_at,
                deadline_ms=deadline,
                generation=generation,
                batch=batch,
            )
            for _, position, written_at, deadline, generation, batch, head, namespace, name in rows
        ]
        numbers, positions, *_ = map(list, zip(*rows, strict=True))
        yield Do(_SET_CHECKSUMS, (numbers, positions, checksums))
        after = numbers[-1], positions[-1]
    yield Do("ALTER TABLE indelible.entry ALTER COLUMN checksum SET NOT NULL")


def read_secret() -> Plan[bytes | None]:
    """The secret of the tables, or None while there is none."""
    rows = yield from perform(Sql(_SELECT_WORDS))
    if not rows:
        return None
    if len(rows) != _WORDS_COUNT:
        raise FormatError("the secret that signs the cursors of these tables is damaged")
    return b"".join(value.to_bytes(8, "big", signed=True) for (value,) in rows)


def ensure_secret() -> Plan[bytes]:
    """The secret of the tables, written now if there is none; only in a transaction."""
    new = create_secret()
    words = [
        int.from_bytes(new[at : at + 8], "big", signed=True) for at in range(0, SECRET_BYTES, 8)
    ]
    # Whoever comes second waits for the first, and finds all of its words.
    yield Do(_INSERT_WORDS, (words,))
    secret = yield from read_secret()
    assert secret is not None
    return secret


def _format_of(place: str) -> Plan[tuple[int, bool]]:
    """The format, 0 if there are no tables, and whether there is a schema for them."""
    ((is_ours, has_schema, is_used),) = yield from perform(Sql(_SCHEMA))
    if not is_ours:
        if is_used:
            raise FormatError(
                f"the schema indelible of {place} belongs to another program; it was left as it is"
            )
        return 0, has_schema
    rows = yield from perform(Sql("SELECT name, value FROM indelible.about"))
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
