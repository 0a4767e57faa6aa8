"""Reading entries: ranges of row ids; a missing row is reported, never skipped."""

from __future__ import annotations

from functools import cache
from operator import itemgetter

from indelible import view
from indelible.backends.sqlite.append import KIND_NUMBER, decode_links
from indelible.backends.sqlite.checksums import CONTENT
from indelible.backends.sqlite.connection import Rows, SqliteConnection
from indelible.backends.sqlite.handlers import READS
from indelible.backends.sqlite.sessions import (
    POSITION_MASK,
    SqliteSessionRow,
    load_session,
    log_entry_ids,
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
from indelible.errors import CorruptEntryError, FormatError
from indelible.model import Kind, Status

_KIND = {number: kind for kind, number in KIND_NUMBER.items()}

# Entries of other kinds are read too, without their bodies: a position that is missing, or whose
# kind was damaged, must not look like one that was not asked for. (A part of an empty blob is NULL
# to SQLite.)
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


@READS.handles(Read)
def read(db: SqliteConnection, op: Read) -> EntrySlice:
    """Read visible entries of one state, in order."""
    row, head = load_session(db, op.session)
    frozen = rules.choose_frozen_view(op.session, op.frozen, head)
    gaps_are_vacuumed = frozen.vacuums != head.vacuums
    salt = compute_session_salt(db.namespace, op.session)
    entries: list[StoredEntry] = []
    for extent in _choose_extents(frozen.extents, op):
        enough = _read_extent(db, op, row, salt, extent, entries)
        if gaps_are_vacuumed and any(not entry.envelope for entry in entries):
            raise rules.build_gone_error(op.session)
        if enough:
            break
    resume = None
    if op.limit is not None and len(entries) > op.limit:
        entries = entries[: op.limit]
        resume = entries[-1].position + (0 if op.newest else 1)
    if op.newest:
        entries.reverse()
    return EntrySlice(head, frozen, tuple(entries), resume)


def _choose_extents(extents: view.Extents, op: Read) -> view.Extents:
    """Return what is still to be read, in the order of reading."""
    start = op.start
    if op.newest:
        return (extents if start is None else view.clip(extents, 0, start))[::-1]
    return view.clip(extents, start, extents[-1][1]) if start and extents else extents


def _read_extent(
    db: SqliteConnection,
    op: Read,
    row: SqliteSessionRow,
    salt: int,
    extent: view.Extent,
    entries: list[StoredEntry],
) -> bool:
    """Read an extent in chunks; return whether one more entry than the limit was found."""
    start, stop = extent
    numbers, mask = _choose_kinds(op.kinds)
    query = _BACKWARDS if op.newest else _FORWARDS
    wanted = stop - start if op.limit is None else op.limit + 1
    while start < stop:
        chunk = min(stop - start, wanted)
        # Twice as many next time: what was asked for may lie behind many entries of other kinds.
        wanted *= 2
        low, high = (stop - chunk, stop) if op.newest else (start, start + chunk)
        low_id, high_id = log_entry_ids(row, low, high)
        found = db.execute(query, (mask, salt, low_id, high_id, chunk))
        if len(found) != chunk:
            rules.refuse_many_missing(op.session, chunk - len(found), low, high)
            found = _fill_gaps(found, low_id, high_id, backwards=op.newest)
        if not numbers.issuperset(map(_NUMBER, found)):
            found = _pick_kinds(db, numbers, found)
        entries += [
            tuple_new(
                StoredEntry,
                (entry_id & POSITION_MASK, _KIND.get(number), written_at, payload, content),
            )
            for entry_id, number, written_at, payload, content in found
        ]
        if op.limit is not None and len(entries) > op.limit:
            return True
        start, stop = (start, low) if op.newest else (high, stop)
    return False


@cache
def _choose_kinds(kinds: frozenset[Kind] | None) -> tuple[frozenset[int], int]:
    """Return the numbers of the kinds that are asked for, and the mask that picks their bodies."""
    if kinds is None:
        return frozenset(_KIND), _ALL_KINDS
    # Bits that stand for no kind are set too: an unknown kind is read, and reported.
    mask = ~sum(1 << number for kind, number in KIND_NUMBER.items() if kind not in kinds)
    return frozenset(KIND_NUMBER[kind] for kind in kinds), mask


def _pick_kinds(db: SqliteConnection, numbers: frozenset[int], found: Rows) -> Rows:
    """Drop rows of other kinds, unless their payload says otherwise: they are damaged."""
    rows: Rows = []
    for entry_id, number, written_at, payload, content in found:
        kind = _KIND.get(number)
        if kind is None or number in numbers:
            rows.append((entry_id, number, written_at, payload, content))
        elif not has_kind(kind, payload):
            ((whole,),) = db.execute("SELECT payload FROM entry WHERE id = ?", (entry_id,))
            rows.append((entry_id, number, written_at, whole, content))
    return rows


def _fill_gaps(found: Rows, low_id: int, high_id: int, *, backwards: bool) -> Rows:
    """Add an empty row for each that is missing."""
    there = {row[0]: row for row in found}
    ids = range(high_id - 1, low_id - 1, -1) if backwards else range(low_id, high_id)
    return [there.get(entry_id, (entry_id, None, 0, b"", None)) for entry_id in ids]


@READS.handles(ReadLog)
def read_log(db: SqliteConnection, op: ReadLog) -> LogPage:
    """Read the log of the session's life, whether its entries are visible or not."""
    row, head = load_session(db, op.session)
    if head.status is not Status.ACTIVE:
        return LogPage(head, (), None)
    start = min(max(op.start, head.born), head.end)
    salt = compute_session_salt(db.namespace, op.session)
    found = db.execute(_LOG, (salt, *log_entry_ids(row, start, head.end), op.limit))
    rows = tuple(_build_log_row(*fields) for fields in found)
    return LogPage(head, rows, rows[-1].position + 1 if len(rows) == op.limit else None)


def _build_log_row(
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
        # As damaged as one of an unknown kind: whoever reads it reports it.
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


@READS.handles(ReadOutline)
def read_outline(db: SqliteConnection, op: ReadOutline) -> SessionOutline:
    """Read kinds, sizes and tool call ids of the visible entries."""
    row, head = load_session(db, op.session)
    entries: list[Outline] = []
    for start, stop in view.freeze(head.view, head.end):
        rows = db.execute(_OUTLINE, log_entry_ids(row, start, stop))
        if len(rows) != stop - start:
            raise FormatError(
                f"session {op.session!r} has entries missing between positions {start} and"
                f" {stop}; nothing was changed. verify says which.",
                session=op.session,
            )
        entries += [_build_outline(op.session, *fields) for fields in rows]
    return SessionOutline(head, tuple(entries))


def _build_outline(
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
