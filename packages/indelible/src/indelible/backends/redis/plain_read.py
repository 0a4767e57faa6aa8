"""Reads without a script: a session and a page of its log, by the server's own commands.

A script turns every field of every entry into a value of Lua and back, and all others wait. The
same commands in a transaction see one state as well, and take a third of the time. What is not as
usual is left to the script: entries that are missing, a view in many pieces, a refusal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

from indelible.backends.redis.append import read_meta
from indelible.backends.redis.calls import Context, Look
from indelible.backends.redis.checksums import head_is_sound, view_is_sound
from indelible.backends.redis.keys import SessionKeys, view_key_of
from indelible.backends.redis.protocol import packed, packed_arguments
from indelible.backends.redis.scripts import KIND_OF_NUMBER, READ_BYTES
from indelible.backends.redis.sessions import head_of
from indelible.core.checksums import CHECKSUM_MASK
from indelible.core.codec import has_kind
from indelible.core.deadline import Deadline
from indelible.core.operations import FrozenView, Head, Read, StoredEntry, tuple_new
from indelible.core.plan import Plan
from indelible.errors import UnavailableError
from indelible.model import Kind, Status
from indelible.view import Extents, freeze

_MULTI, _TIME, _EXEC = packed("MULTI"), packed("TIME"), packed("EXEC")
_FORWARDS = b"*6\r\n$6\r\nXRANGE\r\n%b%b"
_BACKWARDS = b"*6\r\n$9\r\nXREVRANGE\r\n%b%b"


class Portion(NamedTuple):
    """Some rows of one state, in the order in which they were read, and where reading goes on."""

    head: Head
    left_off: int | None
    rows: list[StoredEntry]


class Looked(NamedTuple):
    """A portion, or the time that is left for a script to read it."""

    portion: Portion | None
    patience: Deadline | None = None


_USE_A_SCRIPT = Looked(None)


def look(
    context: Context, op: Read, frozen: FrozenView | None, start: int | None, wanted: int
) -> Plan[Looked]:
    """A portion by plain commands."""
    count = min(wanted, context.rows_at_once(op.session))
    asked: tuple[int, int] | None = None
    if frozen is not None:
        asked = _nearest(frozen.extents, start, count, newest=op.newest)
    in_pieces = asked is None and (frozen is not None or start is not None)
    if in_pieces or not context.looks or context.simulated:
        return _USE_A_SCRIPT
    keys = context.keys(op.session)
    asking = Look(keys, _commands(keys, asked, count, newest=op.newest))
    try:
        found: list[Any] | None = yield asking
    except UnavailableError:
        # Perhaps it was more than can be sent in the time: less of it, next time.
        context.saw_rows(op.session, 1, READ_BYTES)
        raise
    if found is None or not _is_sound(keys, *found[:2]):
        # Refused, new, expired or damaged: the script tells these apart.
        return Looked(None, asking.patience)
    head = head_of(op.session, _described(context, *found[:3]))
    extents = frozen.extents if frozen else freeze(head.view, head.end)
    if head.status is not Status.ACTIVE or (frozen is not None and frozen.life != head.life):
        return Looked(Portion(head, None, []))
    page: list[Any] = found[3]
    try:
        picked = _picked(page, extents, asked or (0, head.end), count, newest=op.newest)
        if picked is None:
            return Looked(None, asking.patience)
        rows = _stored(picked, op.kinds, keys.salt)
        sizes = [len(fields[7]) for _, fields in page]
    except (ValueError, IndexError):
        # Damaged: the script says how.
        return Looked(None, asking.patience)
    if page:
        context.saw_rows(op.session, len(page), sum(sizes))
    if op.newest:
        rows.reverse()
    return Looked(Portion(head, picked.left_off, rows))


def _nearest(
    extents: Extents, start: int | None, count: int, *, newest: bool
) -> tuple[int, int] | None:
    """The extent to read in; None if it takes several of them, which a script does at once."""
    if start is not None and newest:
        left = [(first, min(last, start)) for first, last in extents if first < start]
    elif start is not None:
        left = [(max(first, start), last) for first, last in extents if last > start]
    else:
        left = list(extents)
    if not left:
        return None
    first, last = left[-1] if newest else left[0]
    return (first, last) if len(left) == 1 or last - first >= count else None


def _commands(
    keys: SessionKeys, asked: tuple[int, int] | None, count: int, *, newest: bool
) -> tuple[bytes, ...]:
    """The session and a page of its log, together; the latest or the first if none is asked for."""
    low: str | int
    high: str | int
    low, high = ("-", "+") if asked is None else (asked[0] + 1, asked[1])
    if newest:
        page = _BACKWARDS % (keys.log, packed_arguments((high, low, b"COUNT", count)))
    else:
        page = _FORWARDS % (keys.log, packed_arguments((low, high, b"COUNT", count)))
    return (_MULTI, *keys.looks, _TIME, page, _EXEC)


def _described(context: Context, head: list[Any], view: list[Any], time: list[Any]) -> list[Any]:
    """The session, in the words in which scripts describe one."""
    now: Any = context.now()
    if not now:
        now = int(time[0]) * 1000 + int(time[1]) // 1000
    state, end, deadline, _ = head
    life, born, generation, staged, *_ = state.split(b" ")
    return [now, life, born, end, generation, deadline, staged, *view[:-1]]


def _is_sound(keys: SessionKeys, head: list[Any], view: list[Any]) -> bool:
    """Whether a session is there, and its head and its view are as they were written."""
    name = keys.head.encode()
    if not head_is_sound(name, head):
        return False
    life, _, generation, *_ = head[0].split(b" ")
    return view_is_sound(view_key_of(name), life, generation, view)


class _Picked(NamedTuple):
    positions: list[int]
    # Of each, what the log holds: t, m, k, e and what stands behind them.
    fields: list[list[bytes]]
    left_off: int | None


def _picked(
    page: list[Any], extents: Extents, asked: tuple[int, int], count: int, *, newest: bool
) -> _Picked | None:
    """What of a page shows, lowest first; None if an entry is missing that should be there."""
    low, high = asked
    if newest:
        page.reverse()
    positions = _positions(page)
    fields = [each for _, each in page]
    if len(page) == count:
        low, high = (positions[0], high) if newest else (low, positions[-1] + 1)
    shown = _Picked([], [], None)
    for first, last in extents:
        shown_from, shown_to = max(first, low), min(last, high)
        if shown_from >= shown_to:
            continue
        begin = bisect_left(positions, shown_from)
        end = bisect_left(positions, shown_to, begin)
        if end - begin != shown_to - shown_from:
            return None
        shown.positions.extend(positions[begin:end])
        shown.fields.extend(fields[begin:end])
    if newest and extents and extents[0][0] < low:
        return shown._replace(left_off=low)
    if not newest and extents and extents[-1][1] > high:
        return shown._replace(left_off=high)
    return shown


def _positions(page: list[Any]) -> Sequence[int]:
    """Where the entries of a page stand: an id is the position plus one, and a zero behind it."""
    if page:
        first, last = int(page[0][0][:-2]), int(page[-1][0][:-2])
        if last - first == len(page) - 1:
            return range(first - 1, last)
    return [int(name[:-2]) - 1 for name, _ in page]


# A row from its five values; its own constructor is a function of Python around this.
_row = partial(tuple_new, StoredEntry)


def _stored(shown: _Picked, kinds: frozenset[Kind] | None, salt: int) -> list[StoredEntry]:
    """Rows as core takes them, without those of other kinds.

    Raises `ValueError` if a stamp cannot be read.
    """
    positions, fields = shown.positions, shown.fields
    # Few of them differ.
    beside = {meta: read_meta(meta) for meta in {each[3] for each in fields}}
    if kinds is not None and not kinds.issuperset(each.kind for each in beside.values()):
        kept = [not _is_other(each[3], each[7], kinds) for each in fields]
        positions, fields = list(compress(positions, kept)), list(compress(fields, kept))
    rows: list[StoredEntry] = []
    for position, each in zip(positions, fields, strict=True):
        meta = beside[each[3]]
        written, deadline, generation, checksum = each[1].split(b" ")
        written_at_ms = int(written)
        # As `recover_content_checksum` computes it, without a call for each entry.
        place = position + written_at_ms + int(deadline or 0) + int(generation) + meta.batch
        content = (int(checksum) - place - salt) & CHECKSUM_MASK
        rows.append(_row((position, meta.kind, written_at_ms, each[7], content)))
    return rows


def _is_other(meta: bytes, envelope: bytes, kinds: frozenset[Kind]) -> bool:
    """Whether an entry is of a kind that was not asked for, and its envelope says so, too.

    One whose kind was damaged must not pass for one that was not asked for.
    """
    kind = KIND_OF_NUMBER.get(meta[:1])
    return kind is not None and kind not in kinds and has_kind(kind, envelope)
