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
from indelible.core.plan import Plan, ask
from indelible.core.waist import Changed, ChangeView, JournalLine, SaveSnapshot, SnapshotRecord

# Given a step and how long to wait for its session's row: its answer, or None if it must go the
# long way. Then nothing was written.
Shortcut = Callable[[Context, Any, float], Plan[Any]]


def save_snapshot(context: Context, step: SaveSnapshot, wait_s: float) -> Plan[Any]:
    """Write the view and the log's end down, if the session is active and its view is short."""
    label = None if step.label is None else step.label.encode()
    named, wait = context.named(step.session), milliseconds_of(wait_s).encode()
    now = bigint(context.now_ms())
    said = yield from _called(Call(SAVE_SNAPSHOT, [*named, now, wait, step.id.encode(), label]))
    if said is None:
        return None
    taken_at, end, tail, extents = said.split(".")
    frozen = view.view_of(view.decode(bytes.fromhex(extents)), int(tail))
    return SnapshotRecord(step.id, step.label, int(taken_at), frozen, int(end))


def roll_back(context: Context, step: ChangeView, wait_s: float) -> Plan[Any]:
    """Show what a snapshot froze, if the session is active, and the views are short."""
    if step.snapshot is None or not is_sayable(step.expected):
        return None
    named, wait = context.named(step.session), milliseconds_of(wait_s).encode()
    said = yield from _called(
        Call(
            ROLL_BACK,
            [
                *named,
                bigint(context.now_ms()),
                wait,
                ascii_text(step.expected),
                step.snapshot.encode(),
                step.operation.encode(),
                step.change.encode(),
            ],
        )
    )
    if said is None:
        return None
    number, life, changed_at, generation, end, tail_before, tail_after, *extents = said.split(".")
    before, after = (view.decode(bytes.fromhex(one)) for one in extents)
    return Changed(
        JournalLine(
            operation=step.operation,
            change=step.change,
            changed_at_ms=int(changed_at),
            version=rules.version_token(f"{number}.{life}", int(end), int(generation)),
            end=int(end),
            before=view.view_of(before, int(tail_before)),
            after=view.view_of(after, int(tail_after)),
        )
    )


def _called(call: Call) -> Plan[str | None]:
    try:
        return (yield from ask(call))
    except KeyUsedError:
        # An earlier attempt landed; a look tells.
        return None
