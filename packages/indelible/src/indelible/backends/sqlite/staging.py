"""Copies: a life that is written out of sight and then shown at once."""

from __future__ import annotations

from indelible import view
from indelible.backends.sqlite.append import replace_entries
from indelible.backends.sqlite.checksums import build_update
from indelible.backends.sqlite.connection import SqliteConnection
from indelible.backends.sqlite.handlers import WRITES
from indelible.backends.sqlite.maintenance import remove_session
from indelible.backends.sqlite.sessions import (
    NO_SESSION,
    SqliteSessionRow,
    begin_life,
    find_session,
    read_head,
)
from indelible.backends.sqlite.views import insert_line, insert_snapshot
from indelible.core import rules
from indelible.core.operations import (
    BeginStage,
    DropStage,
    Head,
    ReadHead,
    ShowStage,
    Stage,
    StageRows,
)
from indelible.model import Status
from indelible.view import View

_SHOW = build_update(
    "session",
    {
        "staged": "0",
        "metadata": "?1",
        "tail": "?2",
        "extents": "?3",
        "generation": "?4",
        "created_at": "ifnull(?5, created_at)",
    },
    where="number = ?6",
)


@WRITES.handles(BeginStage)
def begin_stage(db: SqliteConnection, op: BeginStage) -> Stage:
    """Begin a life that is not visible yet."""
    row = find_session(db, op.session)
    if rules.compute_status(row.state, db.now_ms()) is Status.ACTIVE:
        raise rules.build_exists_error(op.session)
    if op.first is not None and row.state is not None:
        # A copy that keeps its positions needs a log of its own; what is dead there goes.
        remove_session(db, row)
        row = NO_SESSION
    begun = begin_life(
        db,
        row,
        op.session,
        ttl_s=op.ttl_s,
        staged=True,
        forked_from=op.forked_from,
        first=op.first,
    )
    assert begun.state is not None
    return Stage(begun.state.life, begun.state.born)


@WRITES.handles(StageRows)
def stage_rows(db: SqliteConnection, op: StageRows) -> None:
    """Write entries at their positions."""
    replace_entries(db, _find_stage(db, op.session, op.stage), op.rows)


@WRITES.handles(ShowStage)
def show_stage(db: SqliteConnection, op: ShowStage) -> Head:
    """Make the stage the session's life."""
    row = _find_stage(db, op.session, op.stage)
    assert row.state is not None
    replace_entries(db, row, op.rows)
    shown = View((), row.state.born) if op.view is None else op.view
    for record in op.snapshots:
        insert_snapshot(db, row, record)
    for generation, line in enumerate(op.journal, op.generation - len(op.journal) + 1):
        insert_line(db, row, line, generation)
    db.execute(
        _SHOW,
        (
            op.metadata,
            shown.tail,
            view.encode(shown.extents),
            op.generation,
            op.created_at_ms,
            row.number,
        ),
    )
    return read_head(db, ReadHead(op.session))


@WRITES.handles(DropStage)
def drop_stage(db: SqliteConnection, op: DropStage) -> None:
    """Remove a stage that will never be shown."""
    row = find_session(db, op.session)
    if row.state is not None and rules.is_stage(row.state, op.stage):
        remove_session(db, row)


def _find_stage(db: SqliteConnection, session: str, stage: str) -> SqliteSessionRow:
    row = find_session(db, session)
    rules.refuse_if_not_staged(session, stage, row.state)
    return row
