"""Sessions: how their rows are read, locked and changed; heads and lists."""

from __future__ import annotations

from typing import Final

from indelible import view
from indelible.backends.postgres.arrays import IntArray
from indelible.backends.postgres.statements import (
    HANDLERS,
    All,
    Fetch,
    PostgresContext,
    Row,
    Rows,
    Sql,
)
from indelible.core import rules
from indelible.core.operations import Head, ListSessions, ReadHead, SessionPage
from indelible.core.rows import SessionRow, build_row_head
from indelible.core.rules import SessionState
from indelible.errors import FormatError
from indelible.model import Status

# The columns that a session's checksum covers, in the order in which its function takes them.
_CHECKED_COLUMNS: Final = (
    *("number", "life", "born", "generation", "tail", "created_at", "vacuums", "staged"),
    *("namespace", "name", "forked_from", "extents", "metadata", "log_end", "deadline"),
)


def build_checksum(**changed: str) -> str:
    """The expression of a row's checksum, with other expressions for columns that change."""
    values = [changed.get(column, column) for column in _CHECKED_COLUMNS]
    return f"indelible.session_checksum({', '.join(values)})"


def build_session_update(**changed: str) -> str:
    """The statement that changes columns of the session $1, $2, and with them its checksum.

    The caller holds the row, and has checked that it was not damaged.
    """
    columns = {**changed, "checksum": build_checksum(**changed)}
    values = ", ".join(f"{column} = {value}" for column, value in columns.items())
    return f"UPDATE indelible.session SET {values} WHERE namespace = $1 AND name = $2"


_IS_INTACT = f"checksum = {build_checksum()}"
# A row in any case: it carries the server's time, also where there is no session. With it come the
# newest visible entries, if any are asked for, as an array for each column.
LOAD_SESSION = "SELECT * FROM indelible.load_session($1, $2, $3, $4, $5, $6, $7)"
# The same columns of a session, without entries.
LOCK_SESSION = f"""
    SELECT indelible.now_ms($3::bigint), number, life, born, log_end, generation, deadline, staged,
        tail, extents, created_at, metadata, forked_from, vacuums, {_IS_INTACT}
    FROM indelible.session WHERE namespace = $1 AND name = $2 FOR UPDATE"""
COLUMNS_COUNT: Final = 15
_COUNT_SNAPSHOTS = """
    SELECT count(*) FROM indelible.snapshot AS part
    JOIN indelible.session AS own ON part.session = own.number AND part.life = own.life
    WHERE own.namespace = $1 AND own.name = $2"""
_LIST = f"""
    SELECT name, number, life, born, log_end, generation, deadline, staged,
        now, CASE WHEN staged OR deadline <= now THEN {_IS_INTACT} ELSE true END
    FROM indelible.now_ms($5::bigint) AS now, indelible.session
    WHERE namespace = $1 AND name >= $2 AND name > $3 ORDER BY name LIMIT $4"""


async def load_session(
    context: PostgresContext, session: str, *also: Sql
) -> tuple[SessionRow | None, Head, list[Rows]]:
    """Load a session, and send more queries that read the same state in the same round trip."""
    params = *context.named(session), context.now_ms(), 0, None, 0, 0
    if also:
        (first,), *others = await All((Sql(LOAD_SESSION, params), *also))
    else:
        (first,), others = await Fetch(LOAD_SESSION, params), []
    row, now_ms = build_session_row(session, first)
    return row, build_row_head(row, now_ms), others


def build_session_row(session: str, fields: Row) -> tuple[SessionRow | None, int]:
    """Build a session, if there is one, and the time; raise a `FormatError` if it is damaged."""
    now_ms, number, life, born, end, generation, deadline, staged, tail, extents, *rest = fields
    if number is None:
        return None, now_ms
    created_at, metadata, forked_from, vacuums, is_intact = rest[: COLUMNS_COUNT - 10]
    if not is_intact:
        raise build_damage_error(session, "its row in indelible.session")
    shown = view.build_view(to_extents(extents), tail)
    row = SessionRow(
        name=session,
        number=number,
        life=life,
        born=born,
        end=end,
        generation=generation,
        deadline_ms=deadline,
        staged=staged,
        tail=shown.tail,
        extents=view.encode(shown.extents),
        created_at_ms=created_at,
        vacuums=vacuums,
        forked_from=None if forked_from is None else forked_from.decode(),
        metadata=metadata,
    )
    return row, now_ms


def to_extents(numbers: list[int]) -> view.Extents:
    """Extents as a row has them: starts and stops in turn."""
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def to_array(extents: view.Extents) -> IntArray:
    """The numbers that a row has for extents."""
    return IntArray(number for extent in extents for number in extent)


def build_damage_error(session: str, what: str) -> FormatError:
    """The error for a row whose checksum does not match."""
    return FormatError(
        f"session {session!r} is damaged: the checksum of {what} does not match, so nothing of the"
        " session can be trusted. Nothing was changed. Restore that row from a backup.",
        session=session,
    )


@HANDLERS.handles(ReadHead)
async def read_head(context: PostgresContext, op: ReadHead) -> Head:
    """Read a session without its entries."""
    if not op.count_snapshots:
        _, head, _ = await load_session(context, op.session)
        return head
    count = Sql(_COUNT_SNAPSHOTS, context.named(op.session))
    _, head, (((snapshots,),),) = await load_session(context, op.session, count)
    if head.status is Status.ACTIVE:
        head.snapshots = snapshots
    return head


@HANDLERS.handles(ListSessions)
async def list_sessions(context: PostgresContext, op: ListSessions) -> SessionPage:
    """Name a page of active sessions, by name; the last name looked at is where to go on."""
    names: list[str] = []
    prefix = op.prefix.encode()
    after = (op.resume or "").encode()
    while True:
        rows = await Sql(_LIST, (context.namespace, prefix, after, op.limit + 1, context.now_ms()))
        for name, number, life, *state, now_ms, is_intact in rows:
            if not name.startswith(prefix):
                return SessionPage(tuple(names), None)
            status = rules.compute_status(SessionState(f"{number}.{life}", *state), now_ms)
            # A damaged row cannot say that its session ended; a read of the session raises.
            if is_intact and status is not Status.ACTIVE and not op.dead:
                continue
            if len(names) == op.limit:
                return SessionPage(tuple(names), names[-1])
            names.append(_decode_name(name))
        if len(rows) <= op.limit:
            return SessionPage(tuple(names), None)
        after = rows[-1][0]


def _decode_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise FormatError(
            f"the name of a session is damaged: {name[:40]!r} is not text. Nothing was changed."
            " Restore its row in indelible.session from a backup.",
        ) from error
