"""Reads of the log: ranges of positions, checked for gaps, so that no read is quietly shorter."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

from indelible import view
from indelible.backends.postgres.arrays import IntArray
from indelible.backends.postgres.entries import KIND_NUMBERS, KINDS, decode_links
from indelible.backends.postgres.sessions import PostgresSessionRow, load_newest, load_session
from indelible.backends.postgres.statements import (
    READS,
    Fetch,
    PostgresContext,
    Row,
    Rows,
    Sql,
)
from indelible.core import rules
from indelible.core.codec import KIND_BYTES, has_kind
from indelible.core.operations import (
    EntrySlice,
    FrozenView,
    LogPage,
    LogRow,
    Outline,
    Read,
    ReadLog,
    ReadOutline,
    SessionOutline,
    StoredEntry,
)
from indelible.core.plan import Plan, perform
from indelible.errors import BusyError, CorruptEntryError, FormatError
from indelible.model import Kind, Status

# Any number of extents in one statement; for one, a range that the planner can see through. The
# order of rows is made here: a sort in the server would go to its disk for a long session.
_IN_ONE: Final = """
    FROM indelible.entry WHERE session OPERATOR(pg_catalog.=) $1
        AND position OPERATOR(pg_catalog.>=) $2 AND position OPERATOR(pg_catalog.<) $3"""
# `unnest` of several arrays is part of the syntax, and means that of pg_catalog.
IN_MANY: Final = """
    FROM unnest($2::bigint[], $3::bigint[]) AS extent (start, stop)
    JOIN indelible.entry ON session OPERATOR(pg_catalog.=) $1
        AND position OPERATOR(pg_catalog.>=) start AND position OPERATOR(pg_catalog.<) stop"""
# The checksum that the content of an entry must have, if its row is where it was written.
CONTENT: Final = """indelible.content_at(
    checksum, position, written_at, deadline, generation, batch, {salt}::bigint)"""
# Entries of other kinds come without their bodies, but they come: a position that is missing, or
# whose kind was damaged, must not look like one that was not asked for.
_ROWS: Final = f"""
    SELECT position, kind, written_at, CASE WHEN kind OPERATOR(pg_catalog.=) ANY($4::bigint[])
        THEN pg_catalog.substr(payload, 1, {KIND_BYTES}) ELSE payload END,
        {CONTENT.format(salt="$5")} """
_ROWS_IN_ONE: Final = _ROWS + _IN_ONE
_ROWS_IN_MANY: Final = _ROWS + IN_MANY
_OUTLINE: Final = "SELECT position, kind, octet_length(payload), keep, opens, answers "
# Subqueries and no join: with a join, all entries of the session are sorted for each page.
_LOG: Final = f"""
    SELECT position, kind, written_at, deadline, batch, generation, keep, key, opens, answers,
        payload, {CONTENT.format(salt="$5")}
    FROM indelible.entry
    WHERE session = (SELECT number FROM indelible.session WHERE namespace = $1 AND name = $2)
        AND position >= (SELECT greatest(born, $3) FROM indelible.session
            WHERE namespace = $1 AND name = $2)
    ORDER BY position LIMIT $4"""
# How often a read starts again because a vacuum removed entries that it was about to read.
_ATTEMPTS_MAX: Final = 10


class _VacuumedError(Exception):
    """A vacuum removed entries of the state that was loaded."""


@READS.handles(Read)
def read(context: PostgresContext, op: Read) -> Plan[EntrySlice]:
    """Read entries of one state, in order.

    Entries never change, so a load that takes the view and the end together is one state, and the
    rows may be fetched after it. Only a vacuum can come between; then it is loaded again. The
    newest entries come with the load.
    """
    is_simple = op.newest and op.start is None and op.frozen is None and op.limit is not None
    newest = op.limit + 1 if is_simple and op.limit is not None else 0
    others = IntArray(n for kind, n in KIND_NUMBERS.items() if op.kinds and kind not in op.kinds)
    for _ in range(_ATTEMPTS_MAX):
        current, found = yield from load_newest(
            context, op.session, newest, without=others, cut=KIND_BYTES
        )
        head = current.head()
        frozen = rules.choose_frozen_view(op.session, op.frozen, head)
        try:
            rows, resume = yield from _read_rows(context, op, current, frozen, others, found)
        except _VacuumedError:
            continue
        return EntrySlice(head, frozen, rows, resume)
    raise _build_busy_error(op.session)


def _read_rows(
    context: PostgresContext,
    op: Read,
    current: PostgresSessionRow,
    frozen: FrozenView,
    others: IntArray,
    loaded: Rows,
) -> Plan[tuple[tuple[StoredEntry, ...], int | None]]:
    left = _choose_extents(frozen.extents, op)
    wanted = view.count(left) if op.limit is None else op.limit + 1
    rows: list[StoredEntry] = []
    while left and (op.limit is None or len(rows) <= op.limit):
        chunk = view.take_last(left, wanted) if op.newest else _take_first(left, wanted)
        left = view.subtract(left, chunk)
        # Twice as many next time: there may be many entries of other kinds in between.
        wanted *= 2
        found, loaded = sorted(loaded, key=itemgetter(0)), []
        if not found or [row[0] for row in found] != list(view.iter_positions(chunk)):
            found = yield from _read_chunk(context, op, current, frozen, chunk, others)
        rows += yield from _select_kinds(op, current, reversed(found) if op.newest else found)
    resume = None
    if op.limit is not None and len(rows) > op.limit:
        rows = rows[: op.limit]
        resume = rows[-1].position + (0 if op.newest else 1)
    return tuple(reversed(rows) if op.newest else rows), resume


def _choose_extents(extents: view.Extents, op: Read) -> view.Extents:
    """The extents that a read has to look at."""
    if not extents:
        return ()
    last = extents[-1][1]
    if op.newest:
        return view.clip(extents, 0, last if op.start is None else op.start)
    return view.clip(extents, op.start or 0, last)


def _take_first(extents: view.Extents, n: int) -> view.Extents:
    """The extents of the first `n` positions."""
    taken: list[view.Extent] = []
    for start, stop in extents:
        if n <= 0:
            break
        taken.append((start, min(stop, start + n)))
        n -= stop - start
    return tuple(taken)


def _read_chunk(
    context: PostgresContext,
    op: Read,
    current: PostgresSessionRow,
    frozen: FrozenView,
    extents: view.Extents,
    others: IntArray,
) -> Plan[Rows]:
    """The rows of some extents, with an empty one for each that is missing."""
    salt = context.salt(op.session)
    if len(extents) == 1:
        ((start, stop),) = extents
        query = Fetch(_ROWS_IN_ONE, (current.number, start, stop, others, salt))
    else:
        query = Fetch(_ROWS_IN_MANY, (current.number, *split_bounds(extents), others, salt))
    found = sorted((yield from perform(query)), key=itemgetter(0))
    if len(found) == view.count(extents):
        return found
    if (yield from _is_vacuumed(context, op.session, current, frozen.vacuums)):
        if op.frozen is not None:
            raise rules.build_gone_error(op.session)
        raise _VacuumedError
    there = {row[0]: row for row in found}
    return [there.get(at, (at, None, 0, b"", None)) for at in view.iter_positions(extents)]


def _is_vacuumed(
    context: PostgresContext, session: str, loaded: PostgresSessionRow, vacuums: int
) -> Plan[bool]:
    """Whether there were more vacuums since, or the session began a new life."""
    now, _ = yield from load_session(context, session)
    return (now.number, now.life, now.vacuums) != (loaded.number, loaded.life, vacuums)


def split_bounds(extents: view.Extents) -> tuple[IntArray, IntArray]:
    """Extents as `IN_MANY` takes them."""
    return IntArray(start for start, _ in extents), IntArray(stop for _, stop in extents)


def build_stored_entry(
    position: int, number: int, written_at_ms: int, payload: bytes, content: int
) -> StoredEntry:
    """An entry from its row."""
    return StoredEntry(position, KINDS.get(number), written_at_ms, payload, content)


def _select_kinds(op: Read, current: PostgresSessionRow, found: Any) -> Plan[list[StoredEntry]]:
    """The entries of the requested kinds, and those whose kind is damaged."""
    rows: list[StoredEntry] = []
    for position, number, written_at, payload, content in found:
        kind = KINDS.get(number)
        if kind is not None and op.kinds is not None and kind not in op.kinds:
            if has_kind(kind, payload):
                continue
            whole = "SELECT payload FROM indelible.entry WHERE session = $1 AND position = $2"
            ((payload,),) = yield from perform(Sql(whole, (current.number, position)))  # noqa: PLW2901
        rows.append(StoredEntry(position, kind, written_at, payload, content))
    return rows


@READS.handles(ReadLog)
def read_log(context: PostgresContext, op: ReadLog) -> Plan[LogPage]:
    """Read the log of the session's life, visible or not."""
    salt = context.salt(op.session)
    query = Sql(_LOG, (*context.named(op.session), op.start, op.limit, salt))
    current, (found,) = yield from load_session(context, op.session, query)
    head = current.head()
    if head.status is not Status.ACTIVE:
        return LogPage(head, (), None)
    rows = tuple(map(_build_log_row, found))
    return LogPage(head, rows, rows[-1].position + 1 if len(rows) == op.limit else None)


def _build_log_row(row: Row) -> LogRow:
    position, number, written_at, deadline, batch, generation, keep, key, *rest = row
    opens, answers, payload, content = rest
    kind: Kind | None = KINDS.get(number)
    try:
        links = decode_links(opens), decode_links(answers)
        name = None if key is None else key.decode()
    except ValueError:
        # Damaged, like an entry of an unknown kind: the caller raises when it decodes it.
        kind, name, links = None, None, ((), ())
    return LogRow(
        position,
        kind,
        written_at,
        deadline,
        batch,
        generation,
        keep,
        name,
        *links,
        payload,
        content,
    )


@READS.handles(ReadOutline)
def read_outline(context: PostgresContext, op: ReadOutline) -> Plan[SessionOutline]:
    """Read kinds, sizes and links of the visible entries."""
    for _ in range(_ATTEMPTS_MAX):
        current, _ = yield from load_session(context, op.session)
        head = current.head()
        extents = view.freeze(head.view, head.end)
        if not extents:
            return SessionOutline(head, ())
        query = Sql(_OUTLINE + IN_MANY, (current.number, *split_bounds(extents)))
        rows = sorted((yield from perform(query)), key=itemgetter(0))
        if len(rows) == view.count(extents):
            return SessionOutline(head, tuple(_build_outline(op.session, row) for row in rows))
        if not (yield from _is_vacuumed(context, op.session, current, current.vacuums)):
            raise FormatError(
                f"session {op.session!r} has entries missing; nothing was changed. verify says"
                " which.",
                session=op.session,
            )
    raise _build_busy_error(op.session)


def _build_outline(session: str, row: Row) -> Outline:
    position, kind, size, keep, opens, answers = row
    try:
        return Outline(
            position, KINDS[kind], size, keep, decode_links(opens), decode_links(answers)
        )
    except (KeyError, ValueError) as error:
        raise CorruptEntryError(
            f"entry {position} of session {session!r} is damaged (kind {kind}, calls {opens},"
            f" answers {answers}); nothing was changed. repair takes it out of view.",
            session=session,
            position=position,
        ) from error


def _build_busy_error(session: str) -> BusyError:
    return BusyError(f"session {session!r} was vacuumed again and again while it was read")
