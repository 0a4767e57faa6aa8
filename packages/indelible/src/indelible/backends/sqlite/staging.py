"""Copies in SQLite's words: a life that is put together out of sight and shown at once."""

from __future__ import annotations

from indelible import view
from indelible.backends.sqlite.appending import INSERT, KIND_NUMBER, links
from indelible.backends.sqlite.checksums import update
from indelible.backends.sqlite.connection import Do, SqlMany
from indelible.backends.sqlite.maintaining import remove_life
from indelible.backends.sqlite.sessions import (
    NOWHERE,
    Context,
    Place,
    begin_life,
    entry_id,
    head,
    place_of,
)
from indelible.backends.sqlite.views import insert_line, insert_snapshot
from indelible.core import rules
from indelible.core.checksums import entry_checksum, session_salt
from indelible.core.plan import Plan
from indelible.core.waist import BeginStage, DropStage, Head, ReadHead, ShowStage, Stage, StageRows
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


def begin_stage(context: Context, step: BeginStage) -> Plan[Stage]:
    """Begin a life that nobody sees yet."""
    place = yield from place_of(context, step.session)
    if rules.status_of(place.standing, context.now_ms()) is Status.ACTIVE:
        raise rules.exists(step.session)
    if step.first is not None and place.standing is not None:
        # A copy that keeps its positions needs a log of its own; what is dead there goes.
        yield from remove_life(place, forget=True)
        context.tips.pop(step.session, None)
        place = NOWHERE
    begun = yield from begin_life(
        context,
        place,
        step.session,
        ttl_s=step.ttl_s,
        staged=True,
        forked_from=step.forked_from,
        first=step.first,
    )
    assert begun.standing is not None
    return Stage(begun.standing.life, begun.standing.born)


def stage_rows(context: Context, step: StageRows) -> Plan[None]:
    """Put entries at their positions."""
    place = yield from _staged(context, step.session, step.stage)
    salt = session_salt(context.namespace, step.session)
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
                links(row.opens),
                links(row.answers),
                row.envelope,
                entry_checksum(
                    salt,
                    row.envelope,
                    position=row.position,
                    written_at_ms=row.written_at_ms,
                    deadline_ms=row.deadline_ms,
                    generation=row.generation,
                    batch=row.batch,
                ),
            )
            for row in step.rows
        ],
    )


def show_stage(context: Context, step: ShowStage) -> Plan[Head]:
    """Show all that was staged."""
    if step.rows:
        yield from stage_rows(context, StageRows(step.session, step.stage, step.rows))
    place = yield from _staged(context, step.session, step.stage)
    assert place.standing is not None
    shown = View((), place.standing.born) if step.view is None else step.view
    for record in step.snapshots:
        yield insert_snapshot(place, record)
    for generation, line in enumerate(step.journal, step.generation - len(step.journal) + 1):
        yield insert_line(place, line, generation)
    yield Do(
        _SHOW,
        (
            step.metadata,
            shown.tail,
            view.encode(shown.extents),
            step.generation,
            step.created_at_ms,
            place.number,
        ),
    )
    return (yield from head(context, ReadHead(step.session)))


def drop_stage(context: Context, step: DropStage) -> Plan[None]:
    """Remove a stage that will never be shown."""
    place = yield from place_of(context, step.session)
    if place.standing is not None and rules.is_stage(place.standing, step.stage):
        yield from remove_life(place, forget=True)


def _staged(context: Context, session: str, stage: str) -> Plan[Place]:
    place = yield from place_of(context, session)
    rules.refuse_if_not_staged(session, stage, place.standing)
    return place
