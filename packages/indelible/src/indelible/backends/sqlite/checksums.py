"""Checksums of rows: the fields that they cover, and the SQL functions that compute them."""

from __future__ import annotations

from typing import Any, Final

import apsw

from indelible.core import checksums
from indelible.core.checksums import CHECKSUM_MASK
from indelible.errors import FormatError

# The fields that each row's checksum covers: all that decides what a session shows. A session's
# `touched` only counts, and an entry's row is bound to its place by `CONTENT`.
FIELDS: Final = {
    "session": "number, namespace, name, life, born, staged, generation, tail, session.deadline,"
    " created_at, last_activity, vacuums, forked_from, metadata, extents",
    "snapshot": 'session, life, id, label, taken_at, "end", tail, extents',
    "journal": 'session, life, operation, change, changed_at, generation, "end", undone_by,'
    " tail_before, tail_after, extents_before, extents_after",
    "kept_key": "session, life, key, position, entries, generation, checksums",
}

_SALTED = (
    "(checksum - (id & 4294967295) - written_at - ifnull(deadline, 0) - generation - batch_size)"
)
# The content checksum that follows from an entry's row, to compare with the envelope's; -1, which
# no content has, if a column cannot be right.
CONTENT: Final = (
    f"CASE WHEN {_SALTED} BETWEEN 0 AND {CHECKSUM_MASK}"
    f" THEN ({_SALTED} - :salt) & {CHECKSUM_MASK} ELSE -1 END"
)
# Damage to the type of a value makes it another one than its table declares. It is read as what is
# declared, and its checksum then does not match.
PAYLOAD: Final = "ifnull(CAST(payload AS BLOB), x'')"


def cast_number(column: str) -> str:
    """Build the SQL expression of a whole number that may be damaged."""
    return f"ifnull(CAST({column} AS INTEGER), 0)"


def is_intact(table: str) -> str:
    """Build the SQL expression that is 1 for a row with the right checksum."""
    return f"{table}.checksum = row_checksum({FIELDS[table]})"


def build_insert(table: str) -> str:
    """Build the statement that writes the fields of a row and their checksum."""
    params = ", ?" * len(FIELDS[table].split(","))
    return f"INSERT INTO {table} ({FIELDS[table]}, checksum) VALUES (?{params})"


def build_damage_error(what: str, session: str) -> FormatError:
    """Build the error for a row whose checksum does not match."""
    return FormatError(
        f"{what} of session {session!r} is damaged: its checksum does not match; nothing was"
        " changed. Restore the file from a backup, or forget the session and import it from an"
        " export.",
        session=session,
    )


def register(db: apsw.Connection) -> None:
    """Give a connection the functions that compute checksums."""
    functions: dict[str, Any] = {
        "row_checksum": checksums.compute_row_checksum,
        "session_salt": checksums.compute_session_salt,
        "content_checksum": checksums.parse_content_checksum,
    }
    for name, function in functions.items():
        db.create_scalar_function(name, function, deterministic=True)
