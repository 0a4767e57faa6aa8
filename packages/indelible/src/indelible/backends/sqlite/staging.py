"""Copies in SQLite's words: a life that is put together out of sight and shown at once."""

from __future__ import annotations

from indelible import view
from indelible.backends.sqlite.append import INSERT, KIND_NUMBER, encode_links
from indelible.backends.sqlite.checksums import update
from indelible.backends.sqlite.connection import Do, SqlMany
from indelible.backends.sqlite.maintenance import remove_life
from indelible.backends.sqlite.sessions import (
    NO_SESSION,
    Context,
    SessionRow,
    begin_life,
    entry_id,
    find_session,
    head,
)
from indelible.backends.sqlite.views import insert_line, insert_snapshot
from indelible.core import rules
from indelible.core.checksums import compute_entry_checksum, compute_session_salt
from indelible.core.operations import (
    BeginStage,
    DropStage,
    Head,
    ReadHead,
    ShowStage,
    Stage,
    StageRows,
)
from indelible.core.plan import Plan
from indelible.model import Status
from indelible.view import View

_SHOW = update(
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


def begin_stage(context: Context, op: BeginStage) -> Plan[Stage]:
    """Begin a life that nobody sees yet."""
    place = yield from find_session(context, op.session)
    if rules.compute_status(place.standing, context.now_ms()) is Status.ACTIVE:
        raise rules.build_exists_error(op.session)
    if op.first is not None and place.standing is not None:
        # A copy that keeps its positions needs a log of its own; what is dead there goes.
        yield from remove_life(place, forget=True)
        context.tips.pop(op.session, None)
        place = NO_SESSION
    begun = yield from begin_life(
        context,
        place,
        op.session,
        ttl_s=op.ttl_s,
        staged=True,
        forked_from=op.forked_from,
        first=op.first,
    )
    assert begun.standing is not None
    return Stage(begun.standing.life, begun.standing.born)


def stage_rows(context: Context, op: StageRows) -> Plan[None]:
    """Put entries at their positions."""
    place = yield from _staged(context, op.session, op.stage)
    salt = compute_session_salt(context.namespace, op.session)
    yield SqlMany(
        INSERT.replace("INSERT", "INSERT OR REPLACE", 1),
        [
            (
                entry_id(place.number, row.position),
                KIND_NUMBER[row.kind] if row.kind is not None else 0,
                row.written_at_ms,
                row.deadline_ms,
                row.batch,
                row.generation,
                row.keep,
                row.key,
                encode_links(row.opens),
                encode_links(row.answers),
                row.envelope,
                compute_entry_checksum(
                    salt,
                    row.envelope,
                    position=row.position,
                    written_at_ms=row.written_at_ms,
                    deadline_ms=row.deadline_ms,
                    generation=row.generation,
                    batch=row.batch,
                ),
            )
            for row in op.rows
        ],
    )


def show_stage(context: Context, op: ShowStage) -> Plan[Head]:
    """Show all that was staged."""
    if op.rows:
        yield from stage_rows(context, StageRows(op.session, op.stage, op.rows))
    place = yield from _staged(context, op.session, op.stage)
    assert place.standing is not None
    shown = View((), place.standing.born) if op.view is None else op.view
    for record in op.snapshots:
        yield insert_snapshot(place, record)
    for generation, line in enumerate(op.journal, op.generation - len(op.journal) + 1):
        yield insert_line(place, line, generation)
    yield Do(
        _SHOW,
        (
            op.metadata,
            shown.tail,
            view.encode(shown.extents),
            op.generation,
            op.created_at_ms,
            place.number,
        ),
    )
    return (yield from head(context, ReadHead(op.session)))


def drop_stage(context: Context, op: DropStage) -> Plan[None]:
    """Remove a stage that will never be shown."""
    place = yield from find_session(context, op.session)
    if place.standing is not None and rules.is_stage(place.standing, op.stage):
        yield from remove_life(place, forget=True)


def _staged(context: Context, session: str, stage: str) -> Plan[SessionRow]:
    place = yield from find_session(context, session)
    rules.refuse_if_not_staged(session, stage, place.standing)
    return place
