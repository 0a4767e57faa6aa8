"""Reads without a script: a session and a page of its log, by the server's own commands.

A script turns every field of every entry into a value of Lua and back, and all others wait. The
same commands in a transaction see one state as well, and take a third of the time. What is not as
usual is left to the script: entries that are missing, a view in many pieces, a refusal.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

from indelible.backends.redis.appending import Meta
from indelible.backends.redis.calls import Context, Look
from indelible.backends.redis.keys import HEAD, LOG, VIEW
from indelible.backends.redis.protocol import packed, packed_arguments
from indelible.backends.redis.scripts import KIND_OF_NUMBER, READ_BYTES
from indelible.backends.redis.sessions import head_of
from indelible.core.codec import names_kind
from indelible.core.patience import Patience
from indelible.core.plan import Plan
from indelible.core.waist import Frozen, Head, Read, Stored
from indelible.errors import UnavailableError
from indelible.model import Kind, Status
from indelible.view import Extents, freeze

_HEAD_FIELDS = packed_arguments(("life", "born", "end", "gen", "deadline", "staged"))
_VIEW_FIELDS = packed_arguments(("tail", "extents", "created", "metadata", "forked", "vacuums"))
_SIX_OF = b"*8\r\n$5\r\nHMGET\r\n$%d\r\n%b\r\n%b"
_MULTI, _TIME, _EXEC = packed("MULTI"), packed("TIME"), packed("EXEC")


class Portion(NamedTuple):
    """Some rows of one state, in the order in which they were read, and where reading goes on."""

    head: Head
    left_off: int | None
    rows: list[Stored]


class Looked(NamedTuple):
    """A portion, or the time that is left for a script to read it."""

    portion: Portion | None
    patience: Patience | None = None


_USE_A_SCRIPT = Looked(None)


def look(
    context: Context, step: Read, frozen: Frozen | None, start: int | None, wanted: int
) -> Plan[Looked]:
    """A portion by plain commands."""
    count = min(wanted, context.rows_at_once(step.session))
    asked: tuple[int, int] | None = None
    if frozen is not None:
        asked = _nearest(frozen.extents, start, count, newest=step.newest)
    in_pieces = asked is None and (frozen is not None or start is not None)
    if in_pieces or not context.looks or context.simulated:
        return _USE_A_SCRIPT
    keys = context.keys(step.session)
    asking = Look(keys, _commands(keys.head[: -len(HEAD)], asked, count, newest=step.newest))
    try:
        found: list[Any] | None = yield asking
    except UnavailableError:
        # Perhaps it was more than can be sent in the time: less of it, next time.
        context.saw_rows(step.session, 1, READ_BYTES)
        raise
    if found is None:
        return Looked(None, asking.patience)
    head = head_of(step.session, _described(context, *found[:3]))
    extents = frozen.extents if frozen else freeze(head.view, head.end)
    if head.status is not Status.ACTIVE or (frozen is not None and frozen.life != head.life):
        return Looked(Portion(head, None, []))
    page: list[Any] = found[3]
    try:
        picked = _picked(page, extents, asked or (0, head.end), count, newest=step.newest)
        if picked is None:
            return Looked(None, asking.patience)
        rows = _stored(picked.rows, step.kinds)
    except (ValueError, IndexError):
        # Damaged: the script says how.
        return Looked(None, asking.patience)
    if page:
        context.saw_rows(step.session, len(page), sum(len(fields[7]) for _, fields in page))
    if step.newest:
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
    tag: str, asked: tuple[int, int] | None, count: int, *, newest: bool
) -> tuple[bytes, ...]:
    """The session and a page of its log, together; the latest or the first if none is asked for."""
    low: str | int
    high: str | int
    low, high = ("-", "+") if asked is None else (asked[0] + 1, asked[1])
    if newest:
        page = packed("XREVRANGE", tag + LOG, high, low, "COUNT", count)
    else:
        page = packed("XRANGE", tag + LOG, low, high, "COUNT", count)
    head, view = (tag + HEAD).encode(), (tag + VIEW).encode()
    return (
        _MULTI,
        _SIX_OF % (len(head), head, _HEAD_FIELDS),
        _SIX_OF % (len(view), view, _VIEW_FIELDS),
        _TIME,
        page,
        _EXEC,
    )


def _described(context: Context, head: list[Any], view: list[Any], time: list[Any]) -> list[Any]:
    """The session, in the words in which scripts describe one."""
    now: Any = context.now()
    if not now:
        now = int(time[0]) * 1000 + int(time[1]) // 1000
    life, born, end, generation, deadline, staged = head
    if life is None:
        view = [None] * len(view)
    return [now, life, born or 0, end or 0, generation or 0, deadline, staged, *view]


class _Picked(NamedTuple):
    rows: list[tuple[int, list[bytes]]]
    left_off: int | None


def _picked(
    page: list[Any], extents: Extents, asked: tuple[int, int], count: int, *, newest: bool
) -> _Picked | None:
    """What of a page shows, lowest first; None if an entry is missing that should be there."""
    low, high = asked
    if newest:
        page.reverse()
    # Every id is written as the position plus one, and a sequence of zero.
    positions = [int(name[:-2]) - 1 for name, _ in page]
    if len(page) == count:
        low, high = (positions[0], high) if newest else (low, positions[-1] + 1)
    rows: list[tuple[int, list[bytes]]] = []
    for first, last in extents:
        shown_from, shown_to = max(first, low), min(last, high)
        if shown_from >= shown_to:
            continue
        begin = bisect_left(positions, shown_from)
        end = bisect_left(positions, shown_to, begin)
        if end - begin != shown_to - shown_from:
            return None
        fields = [fields for _, fields in page[begin:end]]
        rows += zip(positions[begin:end], fields, strict=True)
    if newest:
        goes_on = bool(extents) and extents[0][0] < low
        return _Picked(rows, low if goes_on else None)
    goes_on = bool(extents) and extents[-1][1] > high
    return _Picked(rows, high if goes_on else None)


def _stored(rows: list[tuple[int, list[bytes]]], kinds: frozenset[Kind] | None) -> list[Stored]:
    """Rows as core takes them, without those of other kinds."""
    # Few of them differ.
    kind_of = {meta: Meta(meta).kind for meta in {fields[3] for _, fields in rows}}
    if kinds is not None and not kinds.issuperset(kind_of.values()):
        rows = [row for row in rows if not _is_other(row[1][3], row[1][7], kinds)]
    return [
        Stored(position, kind_of[fields[3]], int(fields[1].partition(b" ")[0]), fields[7])
        for position, fields in rows
    ]


def _is_other(meta: bytes, envelope: bytes, kinds: frozenset[Kind]) -> bool:
    """Whether an entry is of a kind that was not asked for, and its envelope says so, too.

    One whose kind was damaged must not pass for one that was not asked for.
    """
    kind = KIND_OF_NUMBER.get(meta[:1])
    return kind is not None and kind not in kinds and names_kind(kind, envelope)
