"""Reads of the log, in portions that all show the state of the first."""

from __future__ import annotations

from indelible.backends.redis.errors import build_damaged_error
from indelible.backends.redis.keys import ITEMS
from indelible.backends.redis.log_rows import parse_entry, parse_log_row, parse_row
from indelible.backends.redis.requests import HANDLERS, RedisContext, to_pairs
from indelible.backends.redis.scripts import READ_ROWS
from indelible.backends.redis.sessions import format_extents, parse_head, read_parts
from indelible.core import rules
from indelible.core.limits import LOG_ENTRIES_MAX, VIEW_ATTEMPTS_MAX
from indelible.core.operations import (
    EntrySlice,
    FindItems,
    FrozenView,
    Head,
    ItemPage,
    ItemPlace,
    LogPage,
    Outline,
    Read,
    ReadLog,
    ReadOutline,
    SessionOutline,
)
from indelible.core.plan import Plan
from indelible.core.rows import KIND_NUMBER, build_outline_error
from indelible.errors import ConflictError, FormatError
from indelible.model import Status
from indelible.view import Extents

# Positions, and rows as the log has them.
Rows = list[tuple[int, bytes]]


@HANDLERS.handles(Read)
def read(context: RedisContext, op: Read) -> Plan[EntrySlice]:
    """Read entries of one state, in order."""
    head, frozen, found = yield from _read_state(context, op)
    salt = context.keys(op.session).salt
    entries = [parse_entry(position, raw, salt) for position, raw in found]
    return rules.build_slice(op, head, frozen, entries)


def _read_state(
    context: RedisContext, op: Read, *, brief: bool = False
) -> Plan[tuple[Head, FrozenView, Rows]]:
    """Read the rows of one state: one more than the limit, if there are more."""
    for _ in range(VIEW_ATTEMPTS_MAX):
        try:
            return (yield from _read_portions(context, op, brief))
        except ConflictError:
            # It was vacuumed or expired between two portions. A reader of the latest state starts
            # again.
            if op.frozen is not None:
                raise
    raise rules.build_gone_error(op.session)


def _read_portions(
    context: RedisContext, op: Read, brief: bool
) -> Plan[tuple[Head, FrozenView, Rows]]:
    frozen, start = op.frozen, op.start
    head: Head | None = None
    rows: Rows = []
    # Empty text means all kinds, so another character stands for none of them.
    kinds = ""
    if op.kinds is not None:
        kinds = "".join(str(KIND_NUMBER[kind]) for kind in op.kinds) or "-"
    while True:
        wanted = READ_ROWS if op.limit is None else min(op.limit + 1 - len(rows), READ_ROWS)
        looked, start, found = yield from read_rows(
            context,
            op.session,
            frozen,
            start=start,
            newest=op.newest,
            wanted=wanted,
            kinds=kinds,
            brief=brief,
        )
        head = head or looked
        # Later portions continue in the state that the first one saw.
        frozen = rules.choose_frozen_view(op.session, frozen, looked)
        if frozen.vacuums != looked.vacuums and any(not raw for _, raw in found):
            raise rules.build_gone_error(op.session)
        rows += found
        if start is None or (op.limit is not None and len(rows) > op.limit):
            return head, frozen, rows


def read_rows(
    context: RedisContext,
    session: str,
    frozen: FrozenView | None = None,
    extents: Extents | None = None,
    *,
    start: int | None = None,
    newest: bool = False,
    wanted: int = READ_ROWS,
    kinds: str = "",
    brief: bool = False,
) -> Plan[tuple[Head, int | None, Rows]]:
    """Read a portion: the session, where the next one begins, and rows with their positions.

    It has the entries that are visible now, those of a frozen view, or all in `extents`. A visible
    position without a row gets an empty one. With `brief`, rows begin with the size of the envelope
    and end after its checksum.
    """
    if frozen is not None:
        extents = frozen.extents
    described, left_off, flat = yield context.read(
        "read",
        session,
        "" if frozen is None else frozen.life,
        "" if extents is None else format_extents(extents) or "0,0",
        "" if start is None else start,
        b"1" if newest else b"0",
        wanted,
        kinds,
        b"1" if brief else b"0",
    )
    return parse_head(session, described), left_off, to_pairs(flat)


@HANDLERS.handles(FindItems)
def find_items(context: RedisContext, op: FindItems) -> Plan[ItemPage]:
    """Read the index of items."""
    begin = b"(" + format_member(op.after)
    command = ("ZRANGEBYLEX", ITEMS, begin, "+", "LIMIT", 0, op.limit)
    head, _, answers = yield from read_parts(context, op.session, command)
    members = answers[0] if head.status is Status.ACTIVE else ()
    return ItemPage(head, tuple(_parse_member(op.session, member) for member in members))


def format_member(place: ItemPlace) -> bytes:
    """Build a member of the index of items, as scripts do: by id, the newest position first."""
    return b"%b\0%010d" % (place.item.encode(), LOG_ENTRIES_MAX - place.position)


def _parse_member(session: str, member: bytes) -> ItemPlace:
    item, _, rest = member.rpartition(b"\0")
    try:
        return ItemPlace(item.decode(), LOG_ENTRIES_MAX - int(rest))
    except ValueError:
        what = f"its index of items has a damaged member: {member[:40]!r}"
        raise build_damaged_error(session, what) from None


@HANDLERS.handles(ReadOutline)
def read_outline(context: RedisContext, op: ReadOutline) -> Plan[SessionOutline]:
    """Read kinds, sizes and links of what is visible."""
    head, _, rows = yield from _read_state(context, Read(op.session), brief=True)
    return SessionOutline(head, tuple(_parse_outline(op.session, *row) for row in rows))


def _parse_outline(session: str, position: int, brief: bytes) -> Outline:
    if not brief:
        raise FormatError(
            f"session {session!r} has no entry at position {position}, where it shows one; nothing"
            " was changed. verify says which are missing.",
            session=session,
        )
    size, _, raw = brief.partition(b" ")
    row = parse_row(raw)
    if row.kind is None:
        raise build_outline_error(session, position)
    try:
        return Outline(position, row.kind, int(size), row.keep, *row.parse_links())
    except ValueError as error:
        raise build_outline_error(session, position) from error


@HANDLERS.handles(ReadLog)
def read_log(context: RedisContext, op: ReadLog) -> Plan[LogPage]:
    """Read the log of the session's life, whether its entries are visible or not."""
    head, left_off, found = yield from read_rows(
        context, op.session, None, ((op.start, LOG_ENTRIES_MAX),), wanted=op.limit
    )
    salt = context.keys(op.session).salt
    rows = [parse_log_row(position, raw, salt) for position, raw in found]
    resume = rows[-1].position + 1 if rows and left_off is not None else left_off
    return LogPage(head, tuple(rows), resume)
