"""Entries out of the log: ranges of row ids, checked for gaps, never quietly fewer."""

from __future__ import annotations

from functools import cache
from operator import itemgetter
from typing import Any

from indelible import view
from indelible.backends.sqlite.append import KIND_NUMBER, decode_links
from indelible.backends.sqlite.checksums import CONTENT
from indelible.backends.sqlite.connection import Rows, Sql
from indelible.backends.sqlite.sessions import (
    POSITION_MASK,
    Context,
    SessionRow,
    entry_ids,
    load_session,
)
from indelible.core import rules
from indelible.core.checksums import compute_session_salt
from indelible.core.codec import KIND_BYTES, has_kind
from indelible.core.operations import (
    EntrySlice,
    LogPage,
    LogRow,
    Outline,
    Read,
    ReadLog,
    ReadOutline,
    SessionOutline,
    StoredEntry,
    tuple_new,
)
from indelible.core.plan import Plan, perform
from indelible.errors import CorruptEntryError, FormatError
from indelible.model import Kind, Status

_KIND = {number: kind for kind, number in KIND_NUMBER.items()}

# Entries of other kinds come without their bodies, but they come: a position that is missing, or
# whose kind was damaged, must not look like one that was not asked for. (A part of an empty blob is
# NULL to SQLite.)
_COLUMNS = f"""
    id, kind, written_at,
    CASE WHEN kind BETWEEN 1 AND {len(KIND_NUMBER)} AND NOT ? >> kind & 1
        THEN ifnull(substr(payload, 1, {KIND_BYTES}), x'') ELSE payload END,
    {CONTENT}"""
_FORWARDS = f"""
    SELECT {_COLUMNS} FROM entry WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"""  # noqa: S608
_BACKWARDS = f"""
    SELECT {_COLUMNS} FROM entry WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT ?"""  # noqa: S608
_OUTLINE = """
    SELECT id, kind, length(payload), keep, opens, answers FROM entry
    WHERE id >= ? AND id < ? ORDER BY id"""
_LOG = f"""
    SELECT id, kind, written_at, deadline, batch_size, generation, keep, key, opens, answers,
        payload, {CONTENT}
    FROM entry WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"""  # noqa: S608 (constants)
_ALL_KINDS = -1
_NUMBER = itemgetter(1)


def read(context: Context, op: Read) -> Plan[EntrySlice]:
    """Entries of one state, in order."""
    place, head = yield from load_session(context, op.session)
    frozen = rules.choose_frozen_view(op.session, op.frozen, head)
    gaps_are_vacuumed = frozen.vacuums != head.vacuums
    salt = compute_session_salt(context.namespace, op.session)
    rows: list[StoredEntry] = []
    for extent in _extents(frozen.extents, op):
        done = yield from _read_extent(op, place, salt, extent, rows)
        if gaps_are_vacuumed and any(not row.envelope for row in rows):
            raise rules.build_gone_error(op.session)
        if done:
            break
    resume = None
    if op.limit is not None and len(rows) > op.limit:
        rows = rows[: op.limit]
        resume = rows[-1].position + (0 if op.newest else 1)
    if op.newest:
        rows.reverse()
    return EntrySlice(head, frozen, tuple(rows), resume)


def _extents(extents: view.Extents, op: Read) -> view.Extents:
    """What is still to be read, in the order of reading."""
    start = op.start
    if op.newest:
        return (extents if start is None else view.clip(extents, 0, start))[::-1]
    return view.clip(extents, start, extents[-1][1]) if start and extents else extents


def _read_extent(
    op: Read, place: SessionRow, salt: int, extent: view.Extent, rows: list[StoredEntry]
) -> Plan[bool]:
    """Add an extent's entries to the rows, in chunks; says whether one over the limit is there."""
    start, stop = extent
    numbers, mask = _wanted(op.kinds)
    wanted = stop - start if op.limit is None else op.limit + 1
    while start < stop:
        chunk = min(stop - start, wanted)
        # Twice as many next time: what was asked for may lie behind many entries of other kinds.
        wanted *= 2
        low, high = (stop - chunk, stop) if op.newest else (start, start + chunk)
        low_id, high_id = entry_ids(place, low, high)
        found: Rows = yield Sql(
            _BACKWARDS if op.newest else _FORWARDS, (mask, salt, low_id, high_id, chunk)
        )
        if len(found) != chunk:
            rules.refuse_many_missing(op.session, chunk - len(found), low, high)
            found = _with_gaps(found, low_id, high_id, backwards=op.newest)
        if numbers.issuperset(map(_NUMBER, found)):
            rows += [
                tuple_new(
                    StoredEntry,
                    (entry_id & POSITION_MASK, _KIND[number], written_at, payload, content),
                )
                for entry_id, number, written_at, payload, content in found
            ]
        else:
            rows += yield from _picked(numbers, found)
        if op.limit is not None and len(rows) > op.limit:
            return True
        start, stop = (start, low) if op.newest else (high, stop)
    return False


@cache
def _wanted(kinds: frozenset[Kind] | None) -> tuple[frozenset[int], int]:
    """The numbers of the kinds that are asked for, and the mask that picks their bodies."""
    if kinds is None:
        return frozenset(_KIND), _ALL_KINDS
    # Bits that stand for no kind are set too: an unknown kind is read, and said.
    mask = ~sum(1 << number for kind, number in KIND_NUMBER.items() if kind not in kinds)
    return frozenset(KIND_NUMBER[kind] for kind in kinds), mask


def _picked(numbers: frozenset[int], found: Rows) -> Plan[list[StoredEntry]]:
    """The rows of the kinds that are asked for, and those that may be of any."""
    rows: list[StoredEntry] = []
    for entry_id, number, written_at, payload, content in found:
        kind = _KIND.get(number)
        if kind is not None and number not in numbers:
            if has_kind(kind, payload):
                continue
            ((payload,),) = yield from perform(  # noqa: PLW2901 (now all of it)
                Sql("SELECT payload FROM entry WHERE id = ?", (entry_id,))
            )
        rows.append(StoredEntry(entry_id & POSITION_MASK, kind, written_at, payload, content))
    return rows


def _with_gaps(
    found: list[tuple[Any, ...]], low_id: int, high_id: int, *, backwards: bool
) -> list[tuple[Any, ...]]:
    """The rows with an empty one for each that is missing."""
    there = {row[0]: row for row in found}
    ids = range(high_id - 1, low_id - 1, -1) if backwards else range(low_id, high_id)
    return [there.get(entry_id, (entry_id, None, 0, b"", None)) for entry_id in ids]


def read_log(context: Context, op: ReadLog) -> Plan[LogPage]:
    """The log of the session's life itself, whether it shows or not."""
    place, head = yield from load_session(context, op.session)
    if head.status is not Status.ACTIVE:
        return LogPage(head, (), None)
    start = min(max(op.start, head.born), head.end)
    salt = compute_session_salt(context.namespace, op.session)
    found = yield from perform(Sql(_LOG, (salt, *entry_ids(place, start, head.end), op.limit)))
    rows = tuple(_log_row(*row) for row in found)
    return LogPage(head, rows, rows[-1].position + 1 if len(rows) == op.limit else None)


def _log_row(
    entry_id: int,
    kind: int,
    written_at: int,
    deadline: int | None,
    batch: int,
    generation: int,
    keep: int,
    key: str | None,
    opens: str | None,
    answers: str | None,
    payload: bytes,
    content: int,
) -> LogRow:
    try:
        known, links = _KIND.get(kind), (decode_links(opens), decode_links(answers))
    except ValueError:
        # As damaged as one of an unknown kind: whoever reads it says so.
        known, links = None, ((), ())
    return LogRow(
        entry_id & POSITION_MASK,
        known,
        written_at,
        deadline,
        batch,
        generation,
        bool(keep),
        key,
        *links,
        payload,
        content,
    )


def outline(context: Context, op: ReadOutline) -> Plan[SessionOutline]:
    """Kinds, sizes and links of what the session shows."""
    place, head = yield from load_session(context, op.session)
    entries: list[Outline] = []
    for start, stop in view.freeze(head.view, head.end):
        rows = yield from perform(Sql(_OUTLINE, entry_ids(place, start, stop)))
        if len(rows) != stop - start:
            raise FormatError(
                f"session {op.session!r} has entries missing between positions {start} and"
                f" {stop}; nothing was changed. verify says which.",
                session=op.session,
            )
        entries += [_outline(op.session, *row) for row in rows]
    return SessionOutline(head, tuple(entries))


def _outline(
    session: str,
    entry_id: int,
    kind: int,
    size: int,
    keep: int,
    opens: str | None,
    answers: str | None,
) -> Outline:
    position = entry_id & POSITION_MASK
    try:
        links = decode_links(opens), decode_links(answers)
        return Outline(position, _KIND[kind], size, bool(keep), *links)
    except (KeyError, ValueError) as error:
        raise CorruptEntryError(
            f"entry {position} of session {session!r} is damaged (kind {kind}, calls {opens},"
            f" answers {answers}); nothing was changed. repair takes it out of view.",
            session=session,
            position=position,
        ) from error
