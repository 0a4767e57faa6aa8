"""Reads of the log: ranges of positions, checked for gaps, so that no read is quietly shorter."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

from indelible import view
from indelible.backends.postgres.arrays import IntArray
from indelible.backends.postgres.entries import KIND_NUMBERS, KINDS
from indelible.backends.postgres.sessions import load_newest, load_session
from indelible.backends.postgres.statements import (
    CONTENT,
    HANDLERS,
    IN_MANY,
    Fetch,
    PostgresContext,
    Rows,
    Sql,
    split_bounds,
)
from indelible.core import rules
from indelible.core.codec import KIND_BYTES, has_kind
from indelible.core.operations import EntrySlice, FrozenView, Read, StoredEntry
from indelible.core.rows import SessionRow
from indelible.errors import BusyError

# Any number of extents in one statement; for one, a range that the planner can see through. The
# order of rows is made here: a sort in the server would go to its disk for a long session.
_IN_ONE: Final = """
    FROM indelible.entry WHERE session OPERATOR(pg_catalog.=) $1
        AND position OPERATOR(pg_catalog.>=) $2 AND position OPERATOR(pg_catalog.<) $3"""
# Entries of other kinds come without their bodies, but they come: a position that is missing, or
# whose kind was damaged, must not look like one that was not asked for.
_ROWS: Final = f"""
    SELECT position, kind, written_at, CASE WHEN kind OPERATOR(pg_catalog.=) ANY($4::bigint[])
        THEN pg_catalog.substr(payload, 1, {KIND_BYTES}) ELSE payload END,
        {CONTENT.format(salt="$5")} """
_ROWS_IN_ONE: Final = _ROWS + _IN_ONE
_ROWS_IN_MANY: Final = _ROWS + IN_MANY
# How often a read starts again because a vacuum removed entries that it was about to read.
_ATTEMPTS_MAX: Final = 10


class _VacuumedError(Exception):
    """A vacuum removed entries of the state that was loaded."""


@HANDLERS.handles(Read)
async def read(context: PostgresContext, op: Read) -> EntrySlice:
    """Read entries of one state, in order.

    Entries never change, so a load that takes the view and the end together is one state, and the
    rows may be fetched after it. Only a vacuum can come between; then it is loaded again. The
    newest entries come with the load.
    """
    is_simple = op.newest and op.start is None and op.frozen is None and op.limit is not None
    newest = op.limit + 1 if is_simple and op.limit is not None else 0
    others = IntArray(n for kind, n in KIND_NUMBERS.items() if op.kinds and kind not in op.kinds)
    for _ in range(_ATTEMPTS_MAX):
        row, head, found = await load_newest(
            context, op.session, newest, without=others, cut=KIND_BYTES
        )
        frozen = rules.choose_frozen_view(op.session, op.frozen, head)
        try:
            rows, resume = await _read_rows(context, op, row, frozen, others, found)
        except _VacuumedError:
            continue
        return EntrySlice(head, frozen, rows, resume)
    raise BusyError(f"session {op.session!r} was vacuumed again and again while it was read")


async def _read_rows(
    context: PostgresContext,
    op: Read,
    row: SessionRow | None,
    frozen: FrozenView,
    others: IntArray,
    loaded: Rows,
) -> tuple[tuple[StoredEntry, ...], int | None]:
    left = _choose_extents(frozen.extents, op)
    if row is None or not left:
        return (), None
    wanted = view.count(left) if op.limit is None else op.limit + 1
    rows: list[StoredEntry] = []
    while left and (op.limit is None or len(rows) <= op.limit):
        chunk = view.take_last(left, wanted) if op.newest else _take_first(left, wanted)
        left = view.subtract(left, chunk)
        # Twice as many next time: there may be many entries of other kinds in between.
        wanted *= 2
        found, loaded = sorted(loaded, key=itemgetter(0)), []
        if not found or [each[0] for each in found] != list(view.iter_positions(chunk)):
            found = await _read_chunk(context, op, row, frozen, chunk, others)
        rows += await _select_kinds(op, row, reversed(found) if op.newest else found)
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


async def _read_chunk(
    context: PostgresContext,
    op: Read,
    row: SessionRow,
    frozen: FrozenView,
    extents: view.Extents,
    others: IntArray,
) -> Rows:
    """The rows of some extents, with an empty one for each that is missing."""
    salt = context.salt(op.session)
    if len(extents) == 1:
        ((start, stop),) = extents
        query = Fetch(_ROWS_IN_ONE, (row.number, start, stop, others, salt))
    else:
        query = Fetch(_ROWS_IN_MANY, (row.number, *split_bounds(extents), others, salt))
    found = sorted(await query, key=itemgetter(0))
    if len(found) == view.count(extents):
        return found
    if await _is_vacuumed(context, op.session, row, frozen.vacuums):
        if op.frozen is not None:
            raise rules.build_gone_error(op.session)
        raise _VacuumedError
    there = {each[0]: each for each in found}
    return [there.get(at, (at, None, 0, b"", None)) for at in view.iter_positions(extents)]


async def _is_vacuumed(
    context: PostgresContext, session: str, loaded: SessionRow, vacuums: int
) -> bool:
    """Whether there were more vacuums since, or the session began a new life."""
    now, _, _ = await load_session(context, session)
    return now is None or (now.token, now.vacuums) != (loaded.token, vacuums)


def build_stored_entry(
    position: int, number: int, written_at_ms: int, payload: bytes, content: int
) -> StoredEntry:
    """An entry from its row."""
    return StoredEntry(position, KINDS.get(number), written_at_ms, payload, content)


async def _select_kinds(op: Read, row: SessionRow, found: Any) -> list[StoredEntry]:
    """The entries of the requested kinds, and those whose kind is damaged."""
    rows: list[StoredEntry] = []
    for position, number, written_at, payload, content in found:
        kind = KINDS.get(number)
        if kind is not None and op.kinds is not None and kind not in op.kinds:
            if has_kind(kind, payload):
                continue
            whole = "SELECT payload FROM indelible.entry WHERE session = $1 AND position = $2"
            ((payload,),) = await Sql(whole, (row.number, position))  # noqa: PLW2901
        rows.append(StoredEntry(position, kind, written_at, payload, content))
    return rows
