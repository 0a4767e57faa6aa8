"""Entries out of the log: portion after portion, all inside the state that the first one saw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from indelible.backends.redis.appending import Meta, log_row_of
from indelible.backends.redis.calls import Context
from indelible.backends.redis.looking import Portion, look
from indelible.backends.redis.scripts import KIND_NUMBER, READ_ROWS
from indelible.backends.redis.sessions import extents_text, head_of
from indelible.core import rules
from indelible.core.limits import VIEW_ATTEMPTS_MAX
from indelible.core.patience import Patience
from indelible.core.plan import Plan, ask
from indelible.core.waist import (
    Frozen,
    Head,
    LogPage,
    LogRow,
    Nearest,
    Outline,
    Outlined,
    Read,
    ReadLog,
    ReadOutline,
    Slice,
    Stored,
)
from indelible.errors import ConflictError, CorruptEntryError, FormatError
from indelible.model import Status

Rows = list[tuple[bytes, bytes, bytes, bytes]]


def read(context: Context, step: Read) -> Plan[Slice]:
    """Entries of one state, in order."""
    for _ in range(VIEW_ATTEMPTS_MAX):
        try:
            return (yield from _read(context, step))
        except ConflictError:
            # Vacuumed or expired between two portions. A reader who holds a state is told; one
            # who asked for the latest gets the latest.
            if step.frozen is not None:
                raise
    raise rules.gone(step.session)


def _read(context: Context, step: Read) -> Plan[Slice]:
    frozen, start = step.frozen, step.start
    head: Head | None = None
    rows: list[Stored] = []
    while True:
        wanted = READ_ROWS if step.limit is None else step.limit + 1 - len(rows)
        looked, left_off, stored = yield from _looked_or_called(
            context, step, frozen, start, min(wanted, READ_ROWS)
        )
        head = head or looked
        # Of the first portion: what it saw, later ones go on with.
        frozen = rules.frozen_of(step.session, frozen, looked)
        if frozen.vacuums != looked.vacuums and any(not row.envelope for row in stored):
            raise rules.gone(step.session)
        rows += stored
        if left_off is None or (step.limit is not None and len(rows) > step.limit):
            break
        start = left_off
    resume = None
    if step.limit is not None and len(rows) > step.limit:
        rows = rows[: step.limit]
        resume = rows[-1].position + (0 if step.newest else 1)
    return Slice(head, frozen, tuple(reversed(rows) if step.newest else rows), resume)


def _looked_or_called(
    context: Context, step: Read, frozen: Frozen | None, start: int | None, wanted: int
) -> Plan[Portion]:
    """A portion by plain commands, or by the script where it takes one."""
    portion, patience = yield from look(context, step, frozen, start, wanted)
    if portion is not None:
        return portion
    head, left_off, found = yield from _portion(context, step, frozen, start, wanted, patience)
    salt = context.keys(step.session).salt
    return Portion(head, left_off, [_stored(*row, salt=salt) for row in found])


def _portion(
    context: Context,
    step: Read | ReadOutline,
    frozen: Frozen | None,
    start: int | None,
    wanted: int,
    patience: Patience | None = None,
) -> Plan[tuple[Head, int | None, Rows]]:
    newest = isinstance(step, Read) and step.newest
    kinds = ""
    if isinstance(step, Read) and step.kinds is not None:
        # A digit that is no kind's stands for "none of them", since nothing stands for "all".
        kinds = "".join(str(KIND_NUMBER[kind]) for kind in step.kinds) or "-"
    described, _, left_off, flat = yield from ask(
        context.read(
            "read",
            step.session,
            "" if frozen is None else frozen.life,
            "" if frozen is None else extents_text(frozen.extents),
            "" if start is None else start,
            b"1" if newest else b"0",
            wanted,
            kinds,
            b"1" if isinstance(step, ReadOutline) else b"0",
            patience=patience,
        )
    )
    head = head_of(step.session, described)
    rows = list(zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True))
    return head, None if left_off is None else int(left_off), rows


def _stored(position: bytes, meta: bytes, stamp: bytes, envelope: bytes, *, salt: int) -> Stored:
    row = log_row_of(position, stamp, meta, b"", envelope, salt=salt)
    return Stored(row.position, row.kind, row.written_at_ms, envelope, row.content)


def nearest(_context: Context, _step: Nearest) -> Plan[None]:
    """Nothing on these servers compares vectors that every one of them has."""
    yield from ()


def outline(context: Context, step: ReadOutline) -> Plan[Outlined]:
    """Kinds, sizes and links of what the session shows."""
    for _ in range(VIEW_ATTEMPTS_MAX):
        try:
            return (yield from _outline(context, step))
        except ConflictError:
            continue
    raise rules.gone(step.session)


def _outline(context: Context, step: ReadOutline) -> Plan[Outlined]:
    head: Head | None = None
    frozen: Frozen | None = None
    start: int | None = None
    entries: list[Outline] = []
    while True:
        looked, start, rows = yield from _portion(context, step, frozen, start, READ_ROWS)
        head = head or looked
        frozen = rules.frozen_of(step.session, frozen, looked)
        gone = looked.vacuums != frozen.vacuums
        for position, meta, size, _ in rows:
            if gone and not meta:
                raise rules.gone(step.session)
            entries.append(_outlined(step.session, int(position), meta, int(size)))
        if start is None:
            return Outlined(head, tuple(entries))


def _outlined(session: str, position: int, meta: bytes, size: int) -> Outline:
    if not meta:
        raise FormatError(
            f"session {session!r} has no entry at position {position}, where it shows one; nothing"
            " was changed. verify says which are missing.",
            session=session,
        )
    beside = Meta(meta)
    if beside.kind is None:
        raise CorruptEntryError(
            f"entry {position} of session {session!r} is damaged; nothing was changed. repair takes"
            " it out of view.",
            session=session,
            position=position,
        )
    return Outline(position, beside.kind, size, beside.keep, beside.opens, beside.answers)


def read_log(context: Context, step: ReadLog) -> Plan[LogPage]:
    """The log of the session's life itself, whether it shows or not."""
    described, more, flat = yield from ask(
        context.read("read_log", step.session, step.start, step.limit)
    )
    head = head_of(step.session, described)
    if head.status is not Status.ACTIVE:
        return LogPage(head, (), None)
    rows = tuple(log_rows(flat, salt=context.keys(step.session).salt))
    return LogPage(head, rows, rows[-1].position + 1 if more and rows else None)


def log_rows(flat: list[Any], *, salt: int) -> Iterator[LogRow]:
    """Rows as a script gives them, five values each."""
    columns = (flat[at::5] for at in range(5))
    for position, stamp, meta, key, envelope in zip(*columns, strict=True):
        yield log_row_of(position, stamp, meta, key, envelope, salt=salt)
