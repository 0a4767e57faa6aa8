"""Sessions: how their rows are read, locked and changed, how a life begins; metadata, lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from indelible import view
from indelible.backends.postgres.arrays import IntArray
from indelible.backends.postgres.statements import (
    READS,
    WRITES,
    All,
    Do,
    Fetch,
    PostgresContext,
    Row,
    Sql,
    to_milliseconds,
)
from indelible.core import rules
from indelible.core.operations import Head, ListSessions, ReadHead, SessionPage, SetMetadata
from indelible.core.plan import Plan, perform
from indelible.core.rules import SessionState
from indelible.errors import BusyError, FormatError
from indelible.model import Status
from indelible.view import View

# The columns that a session's checksum covers, in the order in which its function takes them.
_CHECKED_COLUMNS: Final = (
    *("number", "life", "born", "generation", "tail", "created_at", "vacuums", "staged"),
    *("namespace", "name", "forked_from", "extents", "metadata", "log_end", "deadline"),
)


def session_checksum(**changed: str) -> str:
    """The expression of a row's checksum, with other expressions for columns that change."""
    values = [changed.get(column, column) for column in _CHECKED_COLUMNS]
    return f"indelible.session_checksum({', '.join(values)})"


def update_session(**changed: str) -> str:
    """The statement that changes columns of the session $1, $2, and with them its checksum.

    Whoever sends it holds the row, and has seen that it was not damaged.
    """
    columns = {**changed, "checksum": session_checksum(**changed)}
    values = ", ".join(f"{column} = {value}" for column, value in columns.items())
    return f"UPDATE indelible.session SET {values} WHERE namespace = $1 AND name = $2"


_IS_INTACT = f"checksum = {session_checksum()}"
_COLUMNS = f"""
    indelible.now_ms($3::bigint), number, life, born, log_end, generation, deadline, staged, tail,
    extents, created_at, metadata, forked_from, vacuums, {_IS_INTACT}"""
# A row in any case: it carries the server's time, also where there is no session. With it come the
# newest visible entries, if any are asked for, as an array for each column.
_LOAD = "SELECT * FROM indelible.load_session($1, $2, $3, $4, $5, $6, $7)"
SESSION_COLUMNS: Final = 15
# Whoever writes takes the session's row first.
_LOOK_AND_LOCK = f"""
    SELECT {_COLUMNS} FROM indelible.session
    WHERE namespace = $1 AND name = $2 FOR UPDATE"""
# Parts of the session's life, without waiting for its number.
OF_SESSION = """
    JOIN indelible.session AS own ON part.session = own.number AND part.life = own.life
    WHERE own.namespace = $1 AND own.name = $2"""
_NEW_SESSION = """
    INSERT INTO indelible.session (number, namespace, name, log_end, born, tail, created_at,
        deadline, staged, forked_from, checksum)
    SELECT number, $1, $2, $4, $4, $4, now, now + $5::bigint, $6, $7, {checksum}
    FROM indelible.now_ms($3::bigint) AS now, nextval('indelible.session_number') AS number
    ON CONFLICT DO NOTHING
    RETURNING number, created_at""".format(
    checksum=session_checksum(
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
    )
)
_NEW_LIFE = update_session(
    life="life + 1",
    log_end="$3",
    born="$3",
    tail="$3",
    generation="0",
    created_at="$4",
    deadline="$5",
    staged="$6",
    forked_from="$7",
    metadata="'{}'",
    extents="'{}'",
)
_LIST = f"""
    SELECT name, number, life, born, log_end, generation, deadline, staged,
        now, CASE WHEN staged OR deadline <= now THEN {_IS_INTACT} ELSE true END
    FROM indelible.now_ms($5::bigint) AS now, indelible.session
    WHERE namespace = $1 AND name >= $2 AND name > $3 ORDER BY name LIMIT $4"""


class PostgresSessionRow(NamedTuple):
    """A session's row; number 0 if there is none."""

    now_ms: int = 0
    number: int = 0
    life: int = 0
    standing: SessionState | None = None
    view: View = View()
    created_at_ms: int | None = None
    metadata: bytes = b"{}"
    forked_from: str | None = None
    vacuums: int = 0

    @property
    def status(self) -> Status:
        """Whether there is a session here, now."""
        return rules.compute_status(self.standing, self.now_ms)

    def head(self) -> Head:
        """All about the session but its entries."""
        return rules.build_head(
            self.standing,
            view=self.view,
            now_ms=self.now_ms,
            created_at_ms=self.created_at_ms,
            metadata=self.metadata,
            snapshots=0,
            forked_from=self.forked_from,
            vacuums=self.vacuums,
        )


def load_session(context: PostgresContext, session: str) -> Sql:
    """The statement that reads a session's row, to be sent along with others."""
    return Sql(_LOAD, (*context.named(session), context.now_ms(), 0, None, 0, 0))


def load_only(
    context: PostgresContext,
    session: str,
    *,
    newest: int = 0,
    without: IntArray | None = None,
    cut: int = 0,
) -> Fetch:
    """The same, alone; with the newest entries. Kinds in `without` are cut after some bytes."""
    salt = context.salt(session) if newest else 0
    named = context.named(session)
    return Fetch(_LOAD, (*named, context.now_ms(), newest, without, cut, salt))


def lock_of(context: PostgresContext, session: str) -> Sql:
    """The statement that looks at a session, and holds it until the transaction ends."""
    return Sql(_LOOK_AND_LOCK, (*context.named(session), context.now_ms()))


def build_session_row(session: str, rows: list[Row]) -> PostgresSessionRow:
    """What a look found. A row that is not what was written is a `FormatError`."""
    if not rows:
        return PostgresSessionRow()
    now_ms, number, life, born, end, generation, deadline, staged, tail, extents, *rest = rows[0]
    if number is None:
        return PostgresSessionRow(now_ms)
    created_at, metadata, forked_from, vacuums, is_intact = rest[: SESSION_COLUMNS - 10]
    if not is_intact:
        raise build_damage_error(session, "its row in indelible.session")
    return PostgresSessionRow(
        now_ms,
        number,
        life,
        SessionState(f"{number}.{life}", born, end, generation, deadline, staged),
        view.build_view(to_extents(extents), tail),
        created_at,
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
) -> Plan[tuple[PostgresSessionRow, list[list[Row]]]]:
    """Hold a session, and ask more in the same round trip, behind its lock."""
    if not also:
        return build_session_row(session, (yield from perform(lock_of(context, session)))), []
    first, *others = yield from perform(All((lock_of(context, session), *also)))
    return build_session_row(session, first), others


@READS.handles(ReadHead)
def head(context: PostgresContext, op: ReadHead) -> Plan[Head]:
    """Look at a session without its entries."""
    if not op.count_snapshots:
        return build_session_row(
            op.session, (yield from perform(load_only(context, op.session)))
        ).head()
    count = Sql(
        "SELECT count(*) FROM indelible.snapshot AS part" + OF_SESSION,
        context.named(op.session),
    )
    looked, ((snapshots,),) = yield from perform(All((load_session(context, op.session), count)))
    found = build_session_row(op.session, looked).head()
    return replace(found, snapshots=snapshots) if found.status is Status.ACTIVE else found


def begin_life(
    context: PostgresContext,
    place: PostgresSessionRow,
    session: str,
    *,
    ttl_s: float | None,
    staged: bool = False,
    forked_from: str | None = None,
    first: int | None = None,
) -> Plan[PostgresSessionRow]:
    """Begin a session, or its next life behind the end of the last one."""
    standing = place.standing
    born = rules.choose_stage_start(session, standing.end if standing else 0, first)
    origin = None if forked_from is None else forked_from.encode()
    if standing is None:
        named = (*context.named(session), context.now_ms())
        rows = yield from perform(
            Sql(_NEW_SESSION, (*named, born, to_milliseconds(ttl_s), staged, origin)),
        )
        if not rows:
            raise BusyError(f"another writer began session {session!r} at this very moment")
        ((number, now_ms),) = rows
        life, vacuums = 1, 0
    else:
        number, now_ms, life, vacuums = place.number, place.now_ms, place.life + 1, place.vacuums
    deadline = rules.compute_deadline_ms(now_ms, ttl_s)
    if standing is not None:
        changed = (born, now_ms, deadline, staged, origin)
        yield Do(_NEW_LIFE, (*context.named(session), *changed))
    return PostgresSessionRow(
        now_ms,
        number,
        life,
        SessionState(f"{number}.{life}", born, born, 0, deadline, staged),
        view.build_empty_view(born),
        now_ms,
        b"{}",
        forked_from,
        vacuums,
    )


def ensure_active(
    context: PostgresContext, place: PostgresSessionRow, session: str, *, ttl_s: float | None
) -> Plan[PostgresSessionRow]:
    """The session as it stands, or begun anew if it is not active."""
    if place.status is Status.ACTIVE:
        return place
    return (yield from begin_life(context, place, session, ttl_s=ttl_s))


@WRITES.handles(SetMetadata)
def set_metadata(context: PostgresContext, op: SetMetadata) -> Plan[Head]:
    """Replace a session's metadata."""
    place, _ = yield from lock_session(context, op.session)
    version = rules.compute_version(place.standing, place.status)
    rules.refuse_if_moved(op.session, op.expected, version)
    place = yield from ensure_active(context, place, op.session, ttl_s=op.ttl_s)
    yield Do(update_session(metadata="$3"), (*context.named(op.session), op.metadata))
    ((snapshots,),) = yield from perform(
        Sql(
            "SELECT count(*) FROM indelible.snapshot WHERE session = $1 AND life = $2",
            (place.number, place.life),
        )
    )
    return replace(place._replace(metadata=op.metadata).head(), snapshots=snapshots)


@READS.handles(ListSessions)
def list_sessions(context: PostgresContext, op: ListSessions) -> Plan[SessionPage]:
    """Name a page of active sessions, by name; the last name looked at is where to go on."""
    names: list[str] = []
    prefix = op.prefix.encode()
    after = (op.resume or "").encode()
    while True:
        rows = yield from perform(
            Sql(_LIST, (context.namespace, prefix, after, op.limit + 1, context.now_ms()))
        )
        for name, number, life, *standing, now_ms, is_intact in rows:
            if not name.startswith(prefix):
                return SessionPage(tuple(names), None)
            status = rules.compute_status(SessionState(f"{number}.{life}", *standing), now_ms)
            # A damaged row cannot say that its session ended; whoever reads it says what is wrong.
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
