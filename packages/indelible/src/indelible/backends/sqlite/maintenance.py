"""Maintenance of the file: rewriting it, and checks of its rows."""

from __future__ import annotations

from indelible.backends.sqlite.checksums import CONTENT, FIELDS, PAYLOAD, is_intact
from indelible.backends.sqlite.connection import SqliteConnection
from indelible.backends.sqlite.schema import compare_schema
from indelible.backends.sqlite.transaction import PARTS, SESSION_NUMBER_MAX
from indelible.errors import FormatError

# Sessions whose newest entry says that they have expired, and is damaged. The entries of others are
# checked when their log is read.
_ENDED_BY_DAMAGE = f"""
    SELECT name, id & 4294967295 FROM (SELECT number, born, namespace, name FROM session) JOIN entry
    ON id = (SELECT id FROM entry WHERE id < (number + 1) << 32 ORDER BY id DESC LIMIT 1)
    WHERE id >= (number << 32 | born) AND deadline <= ?
    AND {CONTENT.replace(":salt", "session_salt(namespace, name)")} <> content_checksum({PAYLOAD})
    LIMIT ?"""
# A damaged file may have very many of them.
_NAMED_MAX = 100


def scrub(db: SqliteConnection) -> tuple[str, ...]:
    """Rewrite the file, move the write-ahead log into it, and truncate that.

    `secure_delete` overwrites rows that are deleted, but not the copies that stay behind in the
    free part of a page when rows move between pages. Only a rewrite certainly leaves none.
    """
    db.execute("VACUUM")
    ((busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return ("the write-ahead log, until no other process reads the file",) if busy else ()


def check_engine(db: SqliteConnection) -> tuple[str, ...]:
    """Check SQLite's structures, the schema, checksums of rows, and rows of no session."""
    problems: list[str] = []
    owners = {
        "entry": "id >> 32",
        "entry_words_docsize": "id >> 32",
        "entry_vector": "entry >> 32",
        "unindexed": "entry >> 32",
        **dict.fromkeys(PARTS, "session"),
    }
    try:
        # The check of FTS5 takes its own cache for the file; a query makes it look again.
        db.execute("SELECT rowid FROM entry_words LIMIT 1")
        found = db.execute("PRAGMA integrity_check")
        problems += [str(text) for (text,) in found if text != "ok"]
        problems += [f"the file {text}" for text in compare_schema(db)]
        numbers = db.execute(
            "SELECT max(seq) FROM sqlite_sequence WHERE name = 'session' UNION ALL"
            " SELECT max(number) FROM session"
        )
        if any((number or 0) > SESSION_NUMBER_MAX for (number,) in numbers):
            problems.append("the counter of sessions is damaged: no session can be added")
        for table, number in owners.items():
            ((count,),) = db.execute(
                f"SELECT count(*) FROM {table} WHERE {number} NOT IN (SELECT number FROM session)"
            )
            if count:
                problems.append(f"{count} rows of {table} belong to no session")
        for table in FIELDS:
            ((count,),) = db.execute(f"SELECT count(*) FROM {table} WHERE NOT {is_intact(table)}")
            if count:
                damaged = f"{count} rows of {table} are damaged"
                problems.append(f"{damaged}: their checksum does not match")
        problems += [
            f"entry {position} of session {name!r}, which says when its time is over, is damaged"
            for name, position in db.execute(_ENDED_BY_DAMAGE, (db.now_ms(), _NAMED_MAX))
        ]
    except FormatError as error:
        # Report what was found before the check had to end.
        problems.append(error.message)
    return tuple(problems)
