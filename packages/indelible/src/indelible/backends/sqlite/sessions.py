"""Sessions in SQLite's words: where one stands, how a life begins, metadata, lists, stages."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from indelible import view
from indelible.backends.sqlite.checksums import CONTENT, damaged_row, is_intact, update
from indelible.backends.sqlite.connection import Do, Rows, Sql
from indelible.core import rules
from indelible.core.checksums import session_salt
from indelible.core.clock import Clock
from indelible.core.limits import BATCH_ENTRIES_MAX, LOG_ENTRIES_MAX
from indelible.core.operations import (
    Head,
    ListSessions,
    ReadHead,
    SessionPage,
    SetMetadata,
    tuple_new,
)
from indelible.core.plan import Plan, perform
from indelible.core.rules import SessionState
from indelible.errors import FormatError
from indelible.model import Status
from indelible.view import View

# An entry's row id is its session's number and its position.
POSITION_BITS = 32
POSITION_MASK = 2**POSITION_BITS - 1
# With a larger number, the row ids of a session would not fit into 63 bits.
SESSION_NUMBER_MAX = 2**31 - 2

# A session's row, whether it is intact, its newest entry, and where its newest batch ends. Scalar
# subqueries are a seek each; a join is not.
_ROW = f"""
    {is_intact("session")}, number, life, born, generation, staged, session.deadline,
    (SELECT id FROM entry WHERE id < (number + 1) << 32 ORDER BY id DESC LIMIT 1),
    (SELECT deadline FROM entry WHERE id < (number + 1) << 32 ORDER BY id DESC LIMIT 1),
    (SELECT id + batch_size FROM entry WHERE id >= number << 32 AND id < (number + 1) << 32
        AND batch_size > 0 ORDER BY id DESC LIMIT 1)"""  # noqa: S608 (constants)
_PLACE = f"SELECT {_ROW} FROM session WHERE namespace = ? AND name = ?"  # noqa: S608 (constants)
_ALL = f"""
    SELECT {_ROW}, tail, extents, created_at, metadata, forked_from, vacuums
    FROM session WHERE namespace = ? AND name = ?"""  # noqa: S608
_NEW_SESSION = f"""
    INSERT INTO session (namespace, name, life, born, staged, generation, tail, deadline,
        created_at, forked_from, metadata, extents)
    SELECT ?1, ?2, 1, ?7, ?3, 0, ?7, ?4, ?5, ?6, x'7b7d', x''
    WHERE NOT EXISTS (
        SELECT * FROM sqlite_sequence WHERE name = 'session' AND seq >= {SESSION_NUMBER_MAX}
    )
    RETURNING number"""  # noqa: S608 (a constant)
_NEW_LIFE = update(
    "session",
    {
        "life": "life + 1",
        "born": "?1",
        "tail": "?1",
        "staged": "?2",
        "generation": "0",
        "deadline": "?3",
        "created_at": "?4",
        "forked_from": "?5",
        "metadata": "x'7b7d'",
        "extents": "x''",
    },
    where="number = ?6 RETURNING life",
)
_SEAL = update("session", {}, where="number = ?1")
_SET_METADATA = update("session", {"metadata": "?1"}, where="number = ?2")
_NEWEST_ENTRY = f"""
    SELECT id, {CONTENT} = content_checksum(payload) FROM entry
    WHERE id >= :low AND id < :high ORDER BY id DESC LIMIT 1"""  # noqa: S608
_LIST = f"""
    SELECT name, {_ROW} FROM session
    WHERE namespace = ? AND name >= ? AND name > ? ORDER BY name LIMIT ?"""  # noqa: S608


class SessionRow(NamedTuple):
    """A session's row and where the session stands; number 0 if there is no row."""

    number: int
    life: int
    standing: SessionState | None
    name: str


NO_SESSION = SessionRow(0, 0, None, "")


@dataclass(slots=True)
class Tip:
    """Where a session stood after this store's own last append to it."""

    number: int
    life: int
    token: str
    end: int
    generation: int
    deadline: int | None
    salt: int


# How many sessions a store remembers the end of; past it, it begins to remember anew.
TIPS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Context:
    """What the plans of one store share."""

    namespace: str
    clock: Clock
    # Guesses, which the next append to a session checks. Only whoever holds the writer's lock may
    # look at them, and a rollback forgets them all.
    tips: dict[str, Tip] = field(default_factory=dict)

    def now_ms(self) -> int:
        """The time, as rows keep it."""
        return int(self.clock() * 1000)


def entry_id(number: int, position: int) -> int:
    """The row id of a position in a session's log. No position may reach into another session."""
    if not 0 <= position < LOG_ENTRIES_MAX:
        raise FormatError(f"no log has a position {position}; nothing was read or written")
    return number << POSITION_BITS | position


def entry_ids(
    place: SessionRow, start: int, stop: int, *, earlier: bool = False
) -> tuple[int, int]:
    """The row ids `[low, high)` of some positions of a session's life; others are refused.

    With `earlier`, positions of earlier lives of the session are allowed, too.
    """
    assert place.standing is not None
    first = 0 if earlier else place.standing.born
    if not first <= start <= stop <= place.standing.end <= LOG_ENTRIES_MAX:
        raise FormatError(
            f"positions {start} to {stop} are outside of the session's log ({first} to"
            f" {place.standing.end}); nothing was read or written"
        )
    base = place.number << POSITION_BITS
    return base + start, base + stop


def all_entry_ids(number: int) -> tuple[int, int]:
    """The row ids `[low, high)` that belong to a session, whatever its log holds."""
    return number << POSITION_BITS, (number + 1) << POSITION_BITS


def touch(place: SessionRow) -> Do:
    """A write for the sake of its commit, which syncs.

    What an earlier attempt left may have been read back from a log that was never synced. Before
    a retry may say that it is there, it must be. (SQLite writes nothing if nothing changes.)
    """
    return Do("UPDATE session SET touched = touched + 1 WHERE number = ?", (place.number,))


def find_session(context: Context, name: str, *, damaged: bool = False) -> Plan[SessionRow]:
    """Find a session; unless `damaged` is allowed, one whose row is not."""
    rows: Rows = yield Sql(_PLACE, (context.namespace, name))
    if not rows:
        return NO_SESSION
    intact, *row = rows[0]
    place = _placed(name, *row)
    if not damaged:
        yield from _check(context, place, intact)
    return place


def _check(context: Context, place: SessionRow, intact: int) -> Plan[None]:
    """Raise if the session's row is damaged, or the entry that says that its time is over."""
    if not intact:
        raise damaged_row("the row", place.name)
    standing = place.standing
    assert standing is not None
    deadline, born, end = standing.deadline_ms, standing.born, standing.end
    if deadline is None or context.now_ms() < deadline or born == end:
        return
    base = place.number << POSITION_BITS
    salt = session_salt(context.namespace, place.name)
    rows = yield from perform(
        Sql(_NEWEST_ENTRY, {"salt": salt, "low": base + born, "high": base + end})
    )
    if not all(fits for _, fits in rows):
        raise FormatError(
            f"session {place.name!r} may have expired, or not: entry"
            f" {rows[0][0] & POSITION_MASK}, which says when, is damaged; nothing was changed."
            " Restore the file from a backup, or forget the session and import it from an export.",
            session=place.name,
        )


def _placed(
    name: str,
    number: int,
    life: int,
    born: int,
    generation: int,
    staged: int,
    deadline: int | None,
    newest_id: int | None,
    newest_deadline: int | None,
    batch_stop: int | None,
) -> SessionRow:
    """The newest entry knows where the log ends and when the life does."""
    end = born
    # Before the first entry of a session, the newest one below is another session's.
    if newest_id is not None and newest_id >= (number << POSITION_BITS | born):
        # Whoever lost its newest entries has no gap to show for it. But batches are whole.
        # A damaged size of one must not make the log reach further than any batch, or into the
        # next session.
        stop = min(max(newest_id + 1, batch_stop or 0), newest_id + BATCH_ENTRIES_MAX)
        end = min(stop - (number << POSITION_BITS), LOG_ENTRIES_MAX)
        deadline = newest_deadline
    standing = tuple_new(
        SessionState, (f"{number}.{life}", born, end, generation, deadline, bool(staged))
    )
    return tuple_new(SessionRow, (number, life, standing, name))


def load_session(context: Context, name: str) -> Plan[tuple[SessionRow, Head]]:
    """Find a session, and all about it but its entries."""
    rows: Rows = yield Sql(_ALL, (context.namespace, name))
    if not rows:
        return NO_SESSION, rules.build_head(
            None,
            view=View(),
            now_ms=context.now_ms(),
            created_at_ms=None,
            metadata=b"{}",
            snapshots=0,
            forked_from=None,
            vacuums=0,
        )
    intact, *row, tail, extents, created_at, metadata, forked_from, vacuums = rows[0]
    place = _placed(name, *row)
    yield from _check(context, place, intact)
    return place, rules.build_head(
        place.standing,
        view=view.build_view(view.decode(extents), tail) if extents else View((), tail),
        now_ms=context.now_ms(),
        created_at_ms=created_at,
        metadata=metadata,
        snapshots=0,
        forked_from=forked_from,
        vacuums=vacuums,
    )


def head(context: Context, op: ReadHead) -> Plan[Head]:
    """Look at a session without its entries."""
    place, looked = yield from load_session(context, op.session)
    if not op.count_snapshots or looked.status is not Status.ACTIVE:
        return looked
    ((count,),) = yield from perform(
        Sql(
            "SELECT count(*) FROM snapshot WHERE session = ? AND life = ?",
            (place.number, place.life),
        )
    )
    return replace(looked, snapshots=count)


def begin_life(
    context: Context,
    place: SessionRow,
    name: str,
    *,
    ttl_s: float | None,
    staged: bool = False,
    forked_from: str | None = None,
    first: int | None = None,
) -> Plan[SessionRow]:
    """Begin a session, or its next life behind the end of the last one."""
    now_ms = context.now_ms()
    deadline = rules.compute_deadline_ms(now_ms, ttl_s)
    born = rules.choose_stage_start(name, place.standing.end if place.standing else 0, first)
    if place.standing is None:
        new = (context.namespace, name, int(staged), deadline, now_ms, forked_from, born)
        rows = yield from perform(Sql(_NEW_SESSION, new))
        if not rows:
            raise FormatError(
                "the file's counter of sessions is damaged: it has no number for a new session, and"
                " nothing was written. Export the sessions, and import them into a new file."
            )
        ((number,),) = rows
        # Now that its number is known, which is part of the checksum.
        yield Do(_SEAL, (number,))
        life = 1
    else:
        number = place.number
        again = (born, int(staged), deadline, now_ms, forked_from, number)
        ((life,),) = yield from perform(Sql(_NEW_LIFE, again))
    standing = SessionState(f"{number}.{life}", born, born, 0, deadline, staged)
    return SessionRow(number, life, standing, name)


def ensure_active(
    context: Context, place: SessionRow, name: str, *, ttl_s: float | None
) -> Plan[SessionRow]:
    """The session as it stands, or begun anew if it is not active."""
    if rules.compute_status(place.standing, context.now_ms()) is Status.ACTIVE:
        return place
    return (yield from begin_life(context, place, name, ttl_s=ttl_s))


def set_metadata(context: Context, op: SetMetadata) -> Plan[Head]:
    """Replace a session's metadata."""
    place = yield from find_session(context, op.session)
    status = rules.compute_status(place.standing, context.now_ms())
    version = rules.compute_version(place.standing, status)
    rules.refuse_if_moved(op.session, op.expected, version)
    place = yield from ensure_active(context, place, op.session, ttl_s=op.ttl_s)
    yield Do(_SET_METADATA, (op.metadata, place.number))
    return (yield from head(context, ReadHead(op.session, count_snapshots=True)))


def list_sessions(context: Context, op: ListSessions) -> Plan[SessionPage]:
    """Name a page of active sessions, by name; the last name looked at is where to go on.

    A session whose row is damaged is named too, so that it is missed by nobody.
    """
    names: list[str] = []
    after = op.resume or ""
    while True:
        rows = yield from perform(Sql(_LIST, (context.namespace, op.prefix, after, op.limit + 1)))
        for name, intact, *row in rows:
            if not name.startswith(op.prefix):
                return SessionPage(tuple(names), None)
            place = _placed(name, *row)
            status = rules.compute_status(place.standing, context.now_ms())
            if intact and status is not Status.ACTIVE and not op.dead:
                continue
            if len(names) == op.limit:
                return SessionPage(tuple(names), names[-1])
            names.append(name)
        if len(rows) <= op.limit:
            return SessionPage(tuple(names), None)
        after = rows[-1][0]
