"""Rows of sessions: reading, locking, changing and listing them."""

from __future__ import annotations

from functools import cache
from typing import Final

from indelible import view
from indelible.backends.postgres.arrays import IntArray
from indelible.backends.postgres.statements import Row
from indelible.core.limits import ACTIVITY_STEP_MS
from indelible.core.operations import SessionOrder
from indelible.core.rows import SessionRow, build_token
from indelible.errors import FormatError

# The columns that a session's checksum covers, in the order of its function's parameters.
_CHECKED_COLUMNS: Final = (
    *("number", "life", "born", "generation", "tail", "created_at", "vacuums", "staged"),
    *("namespace", "name", "forked_from", "extents", "metadata", "log_end", "deadline"),
    "last_activity",
)


def build_checksum(**changed: str) -> str:
    """Build the expression of a row's checksum, with other expressions for changed columns."""
    values = [changed.get(column, column) for column in _CHECKED_COLUMNS]
    return f"indelible.session_checksum({', '.join(values)})"


def build_session_update(**changed: str) -> str:
    """Build the statement that changes columns of the session $1, $2, and its checksum.

    The caller has locked the row and checked that it is not damaged.
    """
    columns = {**changed, "checksum": build_checksum(**changed)}
    if "last_activity" in changed:
        columns["activity_minute"] = f"{changed['last_activity']} / {ACTIVITY_STEP_MS}"
    values = ", ".join(f"{column} = {value}" for column, value in columns.items())
    return f"UPDATE indelible.session SET {values} WHERE namespace = $1 AND name = $2"


_IS_INTACT = f"checksum = {build_checksum()}"
_ROW_COLUMNS = f"""
    number, life, born, log_end, generation, deadline, staged, tail, extents, created_at,
    last_activity, metadata, forked_from, vacuums, {_IS_INTACT}"""
# Returns one row, even without a session, since it has the server's time. It also has the newest
# visible entries, if any are asked for, as an array for each column.
LOAD_SESSION = "SELECT * FROM indelible.load_session($1, $2, $3, $4, $5, $6, $7)"
# The same columns without entries. The time is read behind the lock: the wait for it may have
# lasted beyond the session's deadline.
LOCK_SESSION = f"""
    SELECT indelible.now_ms($3::bigint), own.* FROM (
        SELECT {_ROW_COLUMNS}
        FROM indelible.session WHERE namespace = $1 AND name = $2 FOR UPDATE
    ) AS own"""
# By numbers alone: with a namespace, the planner may choose the index by names.
FIND_BY_NUMBERS = f"""
    SELECT namespace, name, indelible.now_ms($2::bigint), {_ROW_COLUMNS}
    FROM indelible.session WHERE number = ANY ($1::bigint[])"""
COLUMNS_COUNT: Final = 16
# The indexes of these orders begin with this expression, so that queries by name do not use them.
_INDEXED = "pg_catalog.encode(namespace, 'hex') = pg_catalog.encode($1, 'hex')"
# For each order: the condition of a page that begins after a place, and the terms. {0} is > or <.
_ORDERS: Final = {
    "id": ("name {0} $5 AND $4::bigint IS NOT NULL", ("name",)),
    "created": (
        f"{_INDEXED} AND (created_at, name) {{0}} ($4::bigint, $5)",
        ("created_at", "name"),
    ),
    "last_activity": (
        f"""{_INDEXED} AND (activity_minute, last_activity, name)
            {{0}} ($4::bigint / {ACTIVITY_STEP_MS}, $4, $5)""",
        ("activity_minute", "last_activity", "name"),
    ),
}


@cache
def build_list(order: SessionOrder) -> str:
    """Build the query that lists sessions in an order."""
    after, terms = _ORDERS[order.by]
    direction = " DESC" if order.descending else ""
    ordered = ", ".join(term + direction for term in terms)
    snapshots = """(SELECT count(*) FROM indelible.snapshot AS part
        WHERE part.session = page.number AND part.life = page.life)"""
    return f"""
        SELECT name, {snapshots}, indelible.now_ms($7::bigint), {_ROW_COLUMNS}
        FROM (
            SELECT * FROM indelible.session
            WHERE namespace = $1 AND name >= $2 AND name <= $3
                AND {after.format("<" if order.descending else ">")}
            ORDER BY {ordered} LIMIT $6
        ) AS page
        ORDER BY {ordered}"""


def build_session_row(session: str, fields: Row) -> tuple[SessionRow | None, int]:
    """Build a session, if there is one, and the time; a damaged session is a `FormatError`."""
    now_ms, number, *_ = fields
    if number is None:
        return None, now_ms
    row, is_intact = parse_session_row(session, fields[1:])
    if not is_intact:
        raise build_damage_error(session, "its row in indelible.session")
    return row, now_ms


def parse_session_row(session: str, fields: Row) -> tuple[SessionRow, bool]:
    """Parse `_ROW_COLUMNS`, and return whether they are intact. If not, some are left out."""
    number, life, born, end, generation, deadline, staged, tail, extents, *rest = fields
    created_at, last_activity, metadata, forked_from, vacuums, is_intact = rest[:6]
    if not is_intact:
        extents, forked_from = [], None
    row = SessionRow(
        name=session,
        token=build_token(number, life),
        born=born,
        end=end,
        generation=generation,
        deadline_ms=deadline,
        staged=staged,
        view=view.build_view(to_extents(extents), tail),
        created_at_ms=created_at,
        last_activity_ms=last_activity,
        vacuums=vacuums,
        forked_from=None if forked_from is None else forked_from.decode(),
        metadata=metadata,
        number=number,
        life=life,
    )
    return row, bool(is_intact)


def to_extents(numbers: list[int]) -> view.Extents:
    """Convert the stored form of extents: starts and stops in turn."""
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def to_array(extents: view.Extents) -> IntArray:
    """Convert extents to their stored form."""
    return IntArray(number for extent in extents for number in extent)


def build_damage_error(session: str, what: str) -> FormatError:
    """Build the error for a row whose checksum does not match."""
    return FormatError(
        f"session {session!r} is damaged: the checksum of {what} does not match, so nothing of the"
        " session can be trusted. Nothing was changed. Restore that row from a backup.",
        session=session,
    )


def decode_name(name: bytes) -> str:
    """Decode the name of a session; raise a `FormatError` if it is damaged."""
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise FormatError(
            f"the name of a session is damaged: {name[:40]!r} is not text. Nothing was changed."
            " Restore its row in indelible.session from a backup.",
        ) from error
