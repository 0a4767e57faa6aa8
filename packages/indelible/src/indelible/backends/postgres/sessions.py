"""Sessions: how their rows are read, locked and changed, how a life begins; metadata, lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

from indelible import view
from indelible.backends.postgres.arrays import IntArray
from indelible.backends.postgres.statements import (
    READS,
    WRITES,
    All,
    Do,
    Fetch,
    PostgresContext,
    Rows,
    Sql,
    to_milliseconds,
)
from indelible.core import rules, session_list
from indelible.core.limits import ACTIVITY_STEP_MS, PAGE_ENTRIES_MAX, SESSION_ID_BYTES_MAX
from indelible.core.operations import (
    Head,
    ListedSession,
    ListSessions,
    ReadHead,
    SessionOrder,
    SessionPage,
    SetMetadata,
)
from indelible.core.plan import Plan, perform
from indelible.core.rules import SessionState
from indelible.errors import BusyError, FormatError
from indelible.model import Status
from indelible.view import View

# The columns that a session's checksum covers, in the order in which its function takes them.
_CHECKED_COLUMNS: Final = (
    *("number", "life", "born", "generation", "tail", "created_at", "vacuums", "staged"),
    *("namespace", "name", "forked_from", "extents", "metadata", "log_end", "deadline"),
    "last_activity",
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
    if "last_activity" in changed:
        columns["activity_minute"] = f"{changed['last_activity']} / {ACTIVITY_STEP_MS}"
    values = ", ".join(f"{column} = {value}" for column, value in columns.items())
    return f"UPDATE indelible.session SET {values} WHERE namespace = $1 AND name = $2"


_IS_INTACT = f"checksum = {build_checksum()}"
_ROW_COLUMNS = f"""
    number, life, born, log_end, generation, deadline, staged, tail, extents, created_at,
    last_activity, metadata, forked_from, vacuums, {_IS_INTACT}"""
_COLUMNS = f"indelible.now_ms($3::bigint), {_ROW_COLUMNS}"
# A row in any case: it carries the server's time, also where there is no session. With it come the
# newest visible entries, if any are asked for, as an array for each column.
_LOAD = "SELECT * FROM indelible.load_session($1, $2, $3, $4, $5, $6, $7)"
_COLUMNS_COUNT: Final = 16
_CREATED_AT: Final = 10
# Every write locks the session's row first.
_LOAD_AND_LOCK = f"""
    SELECT {_COLUMNS} FROM indelible.session
    WHERE namespace = $1 AND name = $2 FOR UPDATE"""
# Parts of the session's life, without waiting for its number.
OF_SESSION = """
    JOIN indelible.session AS own ON part.session = own.number AND part.life = own.life
    WHERE own.namespace = $1 AND own.name = $2"""
_NEW_SESSION = """
    INSERT INTO indelible.session (number, namespace, name, log_end, born, tail, created_at,
        last_activity, activity_minute, deadline, staged, forked_from, checksum)
    SELECT number, $1, $2, $4, $4, $4, now, active, active / {step}, now + $5::bigint, $6, $7,
        {checksum}
    FROM indelible.now_ms($3::bigint) AS now, nextval('indelible.session_number') AS number,
        LATERAL (SELECT CASE WHEN $6 THEN 0 ELSE now END AS active) AS own
    ON CONFLICT DO NOTHING
    RETURNING number, created_at""".format(
    step=ACTIVITY_STEP_MS,
    checksum=build_checksum(
        life="1",
        born="$4",
        generation="0",
        tail="$4",
        created_at="now",
        vacuums="0",
        staged="$6",
        namespace="$1",
        name="$2",
        forked_from="$7",
        extents="'{}'",
        metadata="'{}'",
        log_end="$4",
        deadline="now + $5::bigint",
        last_activity="active",
    ),
)
_NEW_LIFE = build_session_update(
    life="life + 1",
    log_end="$3",
    born="$3",
    tail="$3",
    generation="0",
    created_at="$4",
    # That of a copy is known when it is shown.
    last_activity="CASE WHEN $6 THEN 0 ELSE $4::bigint END",
    deadline="$5",
    staged="$6",
    forked_from="$7",
    metadata="'{}'",
    extents="'{}'",
)
# For each order: what a page begins after, and the terms. {0} is > or <.
_ORDERS: Final = {
    "id": ("name {0} $6 AND $5::bigint IS NOT NULL", ("name",)),
    "created": ("(created_at, name) {0} ($5::bigint, $6)", ("created_at", "name")),
    "last_activity": (
        f"(activity_minute, last_activity, name) {{0}} ($5::bigint / {ACTIVITY_STEP_MS}, $5, $6)",
        ("activity_minute", "last_activity", "name"),
    ),
}


@cache
def _build_list(order: SessionOrder) -> str:
    """Build the query that lists sessions in an order."""
    after, terms = _ORDERS[order.by]
    direction = " DESC" if order.descending else ""
    ordered = ", ".join(term + direction for term in terms)
    snapshots = """(SELECT count(*) FROM indelible.snapshot AS part
        WHERE part.session = page.number AND part.life = page.life)"""
    return f"""
        SELECT name, {snapshots}, indelible.now_ms($3::bigint), {_ROW_COLUMNS}
        FROM (
            SELECT * FROM indelible.session
            WHERE namespace = $1 AND name >= $2 AND name <= $4
                AND {after.format("<" if order.descending else ">")}
            ORDER BY {ordered} LIMIT $7
        ) AS page
        ORDER BY {ordered}"""


class PostgresSessionRow(NamedTuple):
    """A session's row; number 0 if there is none."""

    now_ms: int = 0
    number: int = 0
    life: int = 0
    state: SessionState | None = None
    view: View = View()
    created_at_ms: int | None = None
    last_activity_ms: int = 0
    metadata: bytes = b"{}"
    forked_from: str | None = None
    vacuums: int = 0

    @property
    def status(self) -> Status:
        """Whether there is a session here, now."""
        return rules.compute_status(self.state, self.now_ms)

    def head(self) -> Head:
        """All about the session but its entries."""
        return rules.build_head(
            self.state,
            view=self.view,
            now_ms=self.now_ms,
            created_at_ms=self.created_at_ms,
            last_activity_ms=self.last_activity_ms,
            metadata=self.metadata,
            snapshots=0,
            forked_from=self.forked_from,
            vacuums=self.vacuums,
        )


def load_session(
    context: PostgresContext, session: str, *also: Sql
) -> Plan[tuple[PostgresSessionRow, list[Rows]]]:
    """Load a session, and send more queries that read the same state in the same round trip."""
    params = *context.named(session), context.now_ms(), 0, None, 0, 0
    if also:
        first, *others = yield from perform(All((Sql(_LOAD, params), *also)))
        return build_session_row(session, first), others
    return build_session_row(session, (yield from perform(Fetch(_LOAD, params)))), []


def load_newest(
    context: PostgresContext, session: str, count: int, *, without: IntArray, cut: int
) -> Plan[tuple[PostgresSessionRow, Rows]]:
    """Load a session and its newest entries; payloads of kinds in `without` are cut."""
    salt = context.salt(session) if count else 0
    params = *context.named(session), context.now_ms(), count, without, cut, salt
    rows = yield from perform(Fetch(_LOAD, params))
    columns = rows[0][_COLUMNS_COUNT:]
    entries = [] if columns[0] is None else list(zip(*columns, strict=True))
    return build_session_row(session, rows), entries


def build_session_row(session: str, rows: Rows) -> PostgresSessionRow:
    """Build the session from its row; raise a `FormatError` if the row is damaged."""
    if not rows:
        return PostgresSessionRow()
    now_ms, number, life, born, end, generation, deadline, staged, tail, extents, *rest = rows[0]
    if number is None:
        return PostgresSessionRow(now_ms)
    created_at, last_activity, metadata, forked_from, vacuums, is_intact = rest[
        : _COLUMNS_COUNT - 10
    ]
    if not is_intact:
        raise build_damage_error(session, "its row in indelible.session")
    return PostgresSessionRow(
        now_ms,
        number,
        life,
        SessionState(f"{number}.{life}", born, end, generation, deadline, staged),
        view.build_view(to_extents(extents), tail),
        created_at,
        last_activity,
        metadata,
        None if forked_from is None else forked_from.decode(),
        vacuums,
    )


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


def lock_session(
    context: PostgresContext, session: str, *also: Sql
) -> Plan[tuple[PostgresSessionRow, list[Rows]]]:
    """Lock a session until the transaction ends, and send more queries behind its lock."""
    lock = Sql(_LOAD_AND_LOCK, (*context.named(session), context.now_ms()))
    first, *others = yield from perform(All((lock, *also)))
    return build_session_row(session, first), others


@READS.handles(ReadHead)
def read_head(context: PostgresContext, op: ReadHead) -> Plan[Head]:
    """Read a session without its entries."""
    if not op.count_snapshots:
        current, _ = yield from load_session(context, op.session)
        return current.head()
    query = "SELECT count(*) FROM indelible.snapshot AS part" + OF_SESSION
    count = Sql(query, context.named(op.session))
    current, (((snapshots,),),) = yield from load_session(context, op.session, count)
    head = current.head()
    return replace(head, snapshots=snapshots) if head.status is Status.ACTIVE else head


def begin_life(
    context: PostgresContext,
    current: PostgresSessionRow,
    session: str,
    *,
    ttl_s: float | None,
    staged: bool = False,
    forked_from: str | None = None,
    first: int | None = None,
) -> Plan[PostgresSessionRow]:
    """Begin a session, or its next life behind the end of the last one."""
    state = current.state
    born = rules.choose_stage_start(session, state.end if state else 0, first)
    origin = None if forked_from is None else forked_from.encode()
    if state is None:
        named = (*context.named(session), context.now_ms())
        rows = yield from perform(
            Sql(_NEW_SESSION, (*named, born, to_milliseconds(ttl_s), staged, origin)),
        )
        if not rows:
            raise BusyError(f"another writer began session {session!r} at this very moment")
        ((number, now_ms),) = rows
        life, vacuums = 1, 0
    else:
        number, now_ms, life, vacuums = (
            current.number,
            current.now_ms,
            current.life + 1,
            current.vacuums,
        )
    deadline = rules.compute_deadline_ms(now_ms, ttl_s)
    if state is not None:
        changed = (born, now_ms, deadline, staged, origin)
        yield Do(_NEW_LIFE, (*context.named(session), *changed))
    return PostgresSessionRow(
        now_ms,
        number,
        life,
        SessionState(f"{number}.{life}", born, born, 0, deadline, staged),
        view.build_empty_view(born),
        now_ms,
        0 if staged else now_ms,
        b"{}",
        forked_from,
        vacuums,
    )


def ensure_active(
    context: PostgresContext, current: PostgresSessionRow, session: str, *, ttl_s: float | None
) -> Plan[PostgresSessionRow]:
    """The session as it is, or a new life of it if it is not active."""
    if current.status is Status.ACTIVE:
        return current
    return (yield from begin_life(context, current, session, ttl_s=ttl_s))


@WRITES.handles(SetMetadata)
def set_metadata(context: PostgresContext, op: SetMetadata) -> Plan[Head]:
    """Replace a session's metadata."""
    current, _ = yield from lock_session(context, op.session)
    version = rules.compute_version(current.state, current.status)
    rules.refuse_if_moved(op.session, op.expected, version)
    current = yield from ensure_active(context, current, op.session, ttl_s=op.ttl_s)
    yield Do(build_session_update(metadata="$3"), (*context.named(op.session), op.metadata))
    ((snapshots,),) = yield from perform(
        Sql(
            "SELECT count(*) FROM indelible.snapshot WHERE session = $1 AND life = $2",
            (current.number, current.life),
        )
    )
    return replace(current._replace(metadata=op.metadata).head(), snapshots=snapshots)


@READS.handles(ListSessions)
def list_sessions(context: PostgresContext, op: ListSessions) -> Plan[SessionPage]:
    """List a page of sessions, in the order of ids if no other is asked for."""
    listed: list[ListedSession] = []
    order = op.order or SessionOrder("id")
    after = last = session_list.parse_place(order, op.resume)
    # No name has more bytes. One that is damaged is in the list, to be noticed.
    names = op.prefix.encode(), op.prefix.encode() + b"\xff" * SESSION_ID_BYTES_MAX
    # A filter may pass over many sessions, so that each round trip fetches twice as many.
    wanted = op.limit + 1
    while True:
        params = (context.namespace, names[0], context.now_ms(), names[1])
        place = (after.value, after.name.encode(), wanted)
        rows = yield from perform(Sql(_build_list(order), (*params, *place)))
        for encoded, snapshots, *row in rows:
            name = _decode_name(encoded)
            created_at, last_activity = row[_CREATED_AT : _CREATED_AT + 2]
            after = session_list.build_place(order, name, created_at, last_activity)
            head = _try_build_head(name, row, snapshots)
            if not session_list.is_listed(op, name, head):
                continue
            if len(listed) == op.limit:
                return SessionPage(tuple(listed), last.format())
            listed.append(ListedSession(name, head))
            last = after
        if len(rows) < wanted:
            return SessionPage(tuple(listed), None)
        wanted = min(2 * wanted, PAGE_ENTRIES_MAX + 1)


def _try_build_head(session: str, row: Sequence[Any], snapshots: int) -> Head | None:
    """Build the head of a session; None if it is damaged: other operations on it say so."""
    try:
        head = build_session_row(session, [tuple(row)]).head()
    except FormatError:
        return None
    return replace(head, snapshots=snapshots) if head.status is Status.ACTIVE else head


def _decode_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise FormatError(
            f"the name of a session is damaged: {name[:40]!r} is not text. Nothing was changed."
            " Restore its row in indelible.session from a backup.",
        ) from error
