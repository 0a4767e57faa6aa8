"""Maintenance of the file: rewriting it, and checks of its rows."""

from __future__ import annotations

from indelible.backends.sqlite.checksums import CONTENT, is_intact
from indelible.backends.sqlite.connection import SqliteConnection
from indelible.backends.sqlite.schema import compare_schema
from indelible.backends.sqlite.transaction import PARTS, SESSION_NUMBER_MAX
from indelible.core.limits import DAMAGED_ROWS_NAMED_MAX
from indelible.errors import FormatError

_OF_SESSION = "LEFT JOIN (SELECT number AS owner, namespace, name FROM session) ON owner = session"
# What may be damaged, and the statement that finds it. Entries of active sessions are checked when
# their log is read; an expired session has no log to read, so its newest entry is checked here.
_DAMAGED = {
    "the row": f"""
        SELECT namespace, name, NULL FROM session WHERE NOT {is_intact("session")} LIMIT :limit""",
    "snapshot {0!r}": f"""
        SELECT namespace, name, id FROM snapshot {_OF_SESSION}
        WHERE NOT {is_intact("snapshot")} LIMIT :limit""",
    "the journal's line of {0!r}": f"""
        SELECT namespace, name, operation FROM journal {_OF_SESSION}
        WHERE NOT {is_intact("journal")} LIMIT :limit""",
    "the row of key {0!r}": f"""
        SELECT namespace, name, key FROM kept_key {_OF_SESSION}
        WHERE NOT {is_intact("kept_key")} LIMIT :limit""",
    "entry {0}, which says when its time is over,": f"""
        SELECT namespace, name, id & 4294967295
        FROM (SELECT number, born, namespace, name FROM session) JOIN entry
        ON id = (SELECT id FROM entry WHERE id < (number + 1) << 32 ORDER BY id DESC LIMIT 1)
        WHERE id >= (number << 32 | born) AND deadline <= :now
        AND {CONTENT.replace(":salt", "session_salt(namespace, name)")} <> content_checksum(payload)
        LIMIT :limit""",
}


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
        problems += _find_damaged_rows(db)
    except FormatError as error:
        # Report what was found before the check had to end.
        problems.append(error.message)
    return tuple(problems)


def _find_damaged_rows(db: SqliteConnection) -> list[str]:
    """Name rows with a wrong checksum, in every namespace and life."""
    problems: list[str] = []
    limits = {"now": db.now_ms(), "limit": DAMAGED_ROWS_NAMED_MAX + 1}
    for what, statement in _DAMAGED.items():
        rows = db.execute(statement, limits)
        for namespace, session, name in rows[:DAMAGED_ROWS_NAMED_MAX]:
            where = f" in namespace {namespace!r}" if namespace else ""
            problems.append(f"{what.format(name)} of session {session!r} is damaged{where}")
        if len(rows) > DAMAGED_ROWS_NAMED_MAX:
            problems.append(f"more rows like these {DAMAGED_ROWS_NAMED_MAX} are damaged")
    return problems
