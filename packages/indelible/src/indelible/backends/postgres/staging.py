"""Copies in PostgreSQL's words: a life that is put together out of sight and shown at once."""

from __future__ import annotations

from indelible import view
from indelible.backends.postgres.appending import INSERT, KIND_NUMBER, links, vector_columns
from indelible.backends.postgres.maintaining import remove_life
from indelible.backends.postgres.sessions import (
    Context,
    Place,
    begin_life,
    locked,
    update_session,
)
from indelible.backends.postgres.statements import Do
from indelible.backends.postgres.views import insert_line, insert_snapshot
from indelible.core import rules
from indelible.core.checksums import entry_checksum
from indelible.core.plan import Plan
from indelible.core.waist import BeginStage, DropStage, Head, LogRow, ShowStage, Stage, StageRows
from indelible.model import Status
from indelible.view import View

_UNLESS_THERE = " ON CONFLICT (session, position) DO NOTHING"


def begin_stage(context: Context, step: BeginStage) -> Plan[Stage]:
    """Begin a life that nobody sees yet."""
    place, _ = yield from locked(context, step.session)
    if place.status is Status.ACTIVE:
        raise rules.exists(step.session)
    if step.first is not None and place.standing is not None:
        # A copy that keeps its positions needs a log of its own; what is dead there goes.
        yield from remove_life(context, place, step.session, forget=True)
        place = Place()
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
    if not step.rows:
        return
    rows, salt = step.rows, context.salt(step.session)
    yield Do(
        INSERT + _UNLESS_THERE,
        (
            place.number,
            place.life,
            [row.position for row in rows],
            [row.written_at_ms for row in rows],
            [row.deadline_ms for row in rows],
            [row.generation for row in rows],
            [row.batch for row in rows],
            [KIND_NUMBER[row.kind] if row.kind is not None else 0 for row in rows],
            [row.keep for row in rows],
            [None if row.key is None else row.key.encode() for row in rows],
            [links(row.opens) for row in rows],
            [links(row.answers) for row in rows],
            [row.envelope for row in rows],
            *vector_columns(rows),
            [_checksum_of(salt, row) for row in rows],
        ),
    )
    yield Do(
        update_session(log_end="greatest(log_end, $3)", deadline="$4"),
        (*context.named(step.session), rows[-1].position + 1, rows[-1].deadline_ms),
    )


def _checksum_of(salt: int, row: LogRow) -> int:
    return entry_checksum(
        salt,
        row.envelope,
        position=row.position,
        written_at_ms=row.written_at_ms,
        deadline_ms=row.deadline_ms,
        generation=row.generation,
        batch=row.batch,
    )


def show_stage(context: Context, step: ShowStage) -> Plan[Head]:
    """Show all that was staged."""
    if step.rows:
        yield from stage_rows(context, StageRows(step.session, step.stage, step.rows))
    place = yield from _staged(context, step.session, step.stage)
    standing = place.standing
    assert standing is not None
    shown = View((), standing.born) if step.view is None else step.view
    for record in step.snapshots:
        yield insert_snapshot(place, record)
    for generation, line in enumerate(step.journal, step.generation - len(step.journal) + 1):
        yield insert_line(place, line, generation)
    created_at = step.created_at_ms or place.created_at_ms
    yield Do(
        update_session(
            staged="false",
            metadata="$3",
            tail="$4",
            extents="$5",
            generation="$6",
            created_at="$7",
        ),
        (
            *context.named(step.session),
            step.metadata,
            shown.tail,
            view.encode(shown.extents),
            step.generation,
            created_at,
        ),
    )
    return place._replace(
        standing=standing._replace(staged=False, generation=step.generation),
        view=shown,
        metadata=step.metadata,
        created_at_ms=created_at,
    ).head()


def drop_stage(context: Context, step: DropStage) -> Plan[None]:
    """Remove a stage that will never be shown."""
    place, _ = yield from locked(context, step.session)
    if place.standing is not None and rules.is_stage(place.standing, step.stage):
        yield from remove_life(context, place, step.session, forget=True)


def _staged(context: Context, session: str, stage: str) -> Plan[Place]:
    place, _ = yield from locked(context, session)
    rules.refuse_if_not_staged(session, stage, place.standing)
    return place
