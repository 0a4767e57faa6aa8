"""Snapshots and rollbacks by one call of a function each, where nothing has to be decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indelible import view
from indelible.backends.postgres.errors import KeyUsedError
from indelible.backends.postgres.named import (
    ROLL_BACK,
    SAVE_SNAPSHOT,
    ascii_text,
    bigint,
    is_sayable,
)
from indelible.backends.postgres.sessions import Context
from indelible.backends.postgres.statements import Call, milliseconds_of
from indelible.core import rules
from indelible.core.operations import (
    JournalLine,
    Rollback,
    SaveSnapshot,
    SnapshotRecord,
    ViewChangeResult,
)
from indelible.core.plan import Plan, perform

# Given a step and how long to wait for its session's row: its answer, or None if it must go the
# long way. Then nothing was written.
Shortcut = Callable[[Context, Any, float], Plan[Any]]


def save_snapshot(context: Context, op: SaveSnapshot, wait_s: float) -> Plan[Any]:
    """Write the view and the log's end down, if the session is active and its view is short."""
    label = None if op.label is None else op.label.encode()
    named, wait = context.named(op.session), milliseconds_of(wait_s).encode()
    now = bigint(context.now_ms())
    said = yield from _called(Call(SAVE_SNAPSHOT, [*named, now, wait, op.id.encode(), label]))
    if said is None:
        return None
    taken_at, end, tail, extents = said.split(".")
    frozen = view.build_view(view.decode(bytes.fromhex(extents)), int(tail))
    return SnapshotRecord(op.id, op.label, int(taken_at), frozen, int(end))


def roll_back(context: Context, op: Rollback, wait_s: float) -> Plan[Any]:
    """Show what a snapshot froze, if the session is active, and the views are short."""
    if not is_sayable(op.expected):
        return None
    named, wait = context.named(op.session), milliseconds_of(wait_s).encode()
    said = yield from _called(
        Call(
            ROLL_BACK,
            [
                *named,
                bigint(context.now_ms()),
                wait,
                ascii_text(op.expected),
                op.snapshot.encode(),
                op.key.encode(),
                rules.ROLLBACK.encode(),
            ],
        )
    )
    if said is None:
        return None
    number, life, changed_at, generation, end, tail_before, tail_after, *extents = said.split(".")
    before, after = (view.decode(bytes.fromhex(one)) for one in extents)
    return ViewChangeResult(
        JournalLine(
            key=op.key,
            change=rules.ROLLBACK,
            changed_at_ms=int(changed_at),
            version=rules.build_version(f"{number}.{life}", int(end), int(generation)),
            end=int(end),
            before=view.build_view(before, int(tail_before)),
            after=view.build_view(after, int(tail_after)),
        )
    )


def _called(call: Call) -> Plan[str | None]:
    try:
        return (yield from perform(call))
    except KeyUsedError:
        # An earlier attempt landed; a look tells.
        return None
