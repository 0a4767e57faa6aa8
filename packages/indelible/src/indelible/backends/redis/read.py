"""Entries out of the log: portion after portion, all inside the state that the first one saw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from indelible.backends.redis.calls import HANDLERS, RedisContext
from indelible.backends.redis.log_rows import parse_meta, parse_row
from indelible.backends.redis.requests import call_script
from indelible.backends.redis.scripts import KIND_NUMBER, READ_ROWS
from indelible.backends.redis.sessions import format_extents, parse_head
from indelible.core import rules
from indelible.core.limits import VIEW_ATTEMPTS_MAX
from indelible.core.operations import (
    EntrySlice,
    FindNearest,
    FrozenView,
    Head,
    LogPage,
    LogRow,
    Outline,
    Read,
    ReadLog,
    ReadOutline,
    SessionOutline,
    StoredEntry,
)
from indelible.core.plan import Plan
from indelible.errors import ConflictError, CorruptEntryError, FormatError
from indelible.model import Status

Rows = list[tuple[bytes, bytes, bytes, bytes]]


@HANDLERS.handles(Read)
def read(context: RedisContext, op: Read) -> Plan[EntrySlice]:
    """Entries of one state, in order."""
    for _ in range(VIEW_ATTEMPTS_MAX):
        try:
            return (yield from _read(context, op))
        except ConflictError:
            # Vacuumed or expired between two portions. A reader who holds a state is told; one
            # who asked for the latest gets the latest.
            if op.frozen is not None:
                raise
    raise rules.build_gone_error(op.session)


def _read(context: RedisContext, op: Read) -> Plan[EntrySlice]:
    frozen, start = op.frozen, op.start
    head: Head | None = None
    rows: list[StoredEntry] = []
    salt = context.keys(op.session).salt
    while True:
        wanted = READ_ROWS if op.limit is None else min(op.limit + 1 - len(rows), READ_ROWS)
        looked, start, found = yield from _read_portion(context, op, frozen, start, wanted)
        head = head or looked
        # Later portions continue in the state that the first one saw.
        frozen = rules.choose_frozen_view(op.session, frozen, looked)
        stored = [_parse_entry(*row, salt=salt) for row in found]
        if frozen.vacuums != looked.vacuums and any(not row.envelope for row in stored):
            raise rules.build_gone_error(op.session)
        rows += stored
        if start is None or (op.limit is not None and len(rows) > op.limit):
            break
    resume = None
    if op.limit is not None and len(rows) > op.limit:
        rows = rows[: op.limit]
        resume = rows[-1].position + (0 if op.newest else 1)
    return EntrySlice(head, frozen, tuple(reversed(rows) if op.newest else rows), resume)


def _read_portion(
    context: RedisContext,
    op: Read | ReadOutline,
    frozen: FrozenView | None,
    start: int | None,
    wanted: int,
) -> Plan[tuple[Head, int | None, Rows]]:
    """One call: the session, where the next portion starts, and rows of four values each."""
    newest = isinstance(op, Read) and op.newest
    kinds = ""
    if isinstance(op, Read) and op.kinds is not None:
        # A digit that is no kind's stands for "none of them", since nothing stands for "all".
        kinds = "".join(str(KIND_NUMBER[kind]) for kind in op.kinds) or "-"
    described, left_off, flat = yield from call_script(
        context,
        context.read(
            "read",
            op.session,
            "" if frozen is None else frozen.life,
            "" if frozen is None else format_extents(frozen.extents),
            "" if start is None else start,
            b"1" if newest else b"0",
            wanted,
            kinds,
            b"1" if isinstance(op, ReadOutline) else b"0",
        ),
    )
    head = parse_head(op.session, described)
    rows = list(zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True))
    return head, None if left_off is None else int(left_off), rows


def _parse_entry(
    position: bytes, meta: bytes, stamp: bytes, envelope: bytes, *, salt: int
) -> StoredEntry:
    row = parse_row(position, stamp, meta, b"", envelope, salt=salt)
    return StoredEntry(row.position, row.kind, row.written_at_ms, envelope, row.content)


@HANDLERS.handles(FindNearest)
def find_nearest(_context: RedisContext, _op: FindNearest) -> Plan[None]:
    """Nothing on these servers compares vectors that every one of them has."""
    yield from ()


@HANDLERS.handles(ReadOutline)
def read_outline(context: RedisContext, op: ReadOutline) -> Plan[SessionOutline]:
    """Kinds, sizes and links of what the session shows."""
    for _ in range(VIEW_ATTEMPTS_MAX):
        try:
            return (yield from _read_outline(context, op))
        except ConflictError:
            continue
    raise rules.build_gone_error(op.session)


def _read_outline(context: RedisContext, op: ReadOutline) -> Plan[SessionOutline]:
    head: Head | None = None
    frozen: FrozenView | None = None
    start: int | None = None
    entries: list[Outline] = []
    while True:
        looked, start, rows = yield from _read_portion(context, op, frozen, start, READ_ROWS)
        head = head or looked
        frozen = rules.choose_frozen_view(op.session, frozen, looked)
        gone = looked.vacuums != frozen.vacuums
        for position, meta, size, _ in rows:
            if gone and not meta:
                raise rules.build_gone_error(op.session)
            entries.append(_parse_outline(op.session, int(position), meta, int(size)))
        if start is None:
            return SessionOutline(head, tuple(entries))


def _parse_outline(session: str, position: int, meta: bytes, size: int) -> Outline:
    if not meta:
        raise FormatError(
            f"session {session!r} has no entry at position {position}, where it shows one; nothing"
            " was changed. verify says which are missing.",
            session=session,
        )
    beside = parse_meta(meta)
    if beside.kind is None:
        raise CorruptEntryError(
            f"entry {position} of session {session!r} is damaged; nothing was changed. repair takes"
            " it out of view.",
            session=session,
            position=position,
        )
    return Outline(position, beside.kind, size, beside.keep, beside.opens, beside.answers)


@HANDLERS.handles(ReadLog)
def read_log(context: RedisContext, op: ReadLog) -> Plan[LogPage]:
    """The log of the session's life itself, whether it shows or not."""
    described, more, flat = yield from call_script(
        context, context.read("read_log", op.session, op.start, op.limit)
    )
    head = parse_head(op.session, described)
    if head.status is not Status.ACTIVE:
        return LogPage(head, (), None)
    rows = tuple(parse_rows(flat, salt=context.keys(op.session).salt))
    return LogPage(head, rows, rows[-1].position + 1 if more and rows else None)


def parse_rows(flat: list[Any], *, salt: int) -> Iterator[LogRow]:
    """Rows as a script gives them, five values each."""
    columns = (flat[at::5] for at in range(5))
    for position, stamp, meta, key, envelope in zip(*columns, strict=True):
        yield parse_row(position, stamp, meta, key, envelope, salt=salt)
