"""Snapshots and rollbacks: one call of a function each, if its guard holds."""

from __future__ import annotations

from typing import Final

from indelible import view
from indelible.backends.postgres.connection import HANDLERS, PostgresConnection
from indelible.backends.postgres.errors import KeyUsedError
from indelible.backends.postgres.sessions import to_extents
from indelible.backends.postgres.statements import Row, format_expected
from indelible.backends.postgres.transaction import open_view, perform_in_transaction
from indelible.core import rules
from indelible.core.operations import (
    JournalLine,
    Rollback,
    SaveSnapshot,
    SnapshotRecord,
    ViewChangeResult,
)

# See the migration that creates the functions.
_SAVE_SNAPSHOT: Final = "SELECT * FROM indelible.save_snapshot($1, $2, $3, $4, $5, $6, $7)"
_ROLL_BACK: Final = "SELECT * FROM indelible.roll_back($1, $2, $3, $4, $5, $6, $7, $8)"
# This many extents are within both limits of a snapshot, however long the log is: start and length
# of an extent take at most five bytes each.
_EXTENTS_SURE: Final = min(view.EXTENTS_MAX, view.VIEW_BYTES_MAX // 10)


@HANDLERS.handles(Rollback)
def rollback(db: PostgresConnection, op: Rollback) -> ViewChangeResult:
    """Make visible what a snapshot froze."""
    row = _call_guarded(
        db,
        _ROLL_BACK,
        *db.context.get_primary_key(op.session),
        db.context.now_ms(),
        format_expected(op.expected),
        op.snapshot.encode(),
        op.key.encode(),
        rules.ROLLBACK.encode(),
    )
    if row is None:
        return perform_in_transaction(db, op.repeat())
    changed_at, version, end, *tails, before, after = row
    return ViewChangeResult(
        JournalLine(
            key=op.key,
            change=rules.ROLLBACK,
            changed_at_ms=changed_at,
            version=version,
            end=end,
            before=view.View(to_extents(before), tails[0]),
            after=view.View(to_extents(after), tails[1]),
        )
    )


@HANDLERS.handles(SaveSnapshot)
def save_snapshot(db: PostgresConnection, op: SaveSnapshot) -> SnapshotRecord:
    """Store the view and the end of the log under a new id."""
    # The function does not compare versions: `expected` is rare, and may take more round trips.
    if op.expected is None:
        row = _call_guarded(
            db,
            _SAVE_SNAPSHOT,
            *db.context.get_primary_key(op.session),
            db.context.now_ms(),
            op.id.encode(),
            None if op.label is None else op.label.encode(),
            _EXTENTS_SURE,
        )
        if row is not None:
            taken_at, end, extents = row
            return SnapshotRecord(op.id, op.label, taken_at, open_view(extents, end), end)
    return perform_in_transaction(db, op.repeat())


def _call_guarded(db: PostgresConnection, function: str, *params: object) -> Row | None:
    """Call a guarded write; None if it wrote nothing."""
    try:
        row = db.call(function, params)
    except KeyUsedError:
        # An earlier attempt, which was still waiting in the server, was committed in between.
        return None
    return None if row[0] is None else row
