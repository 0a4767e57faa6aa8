"""Copies in the words of scripts: a life that is put together out of sight and shown at once."""

from __future__ import annotations

from indelible.backends.redis.appending import meta_text, stamp_text
from indelible.backends.redis.calls import Context, ttl_ms
from indelible.backends.redis.protocol import Argument
from indelible.backends.redis.sessions import extents_text, head_of
from indelible.backends.redis.views import line_text, record_text
from indelible.core import rules
from indelible.core.plan import Plan, ask
from indelible.core.waist import BeginStage, DropStage, Head, ShowStage, Stage, StageRows

# Lua hands at most some thousand values to one call, and a script's arguments are one list.
ROWS_PER_CALL = 500


def begin_stage(context: Context, step: BeginStage) -> Plan[Stage]:
    """Begin a life that nobody sees yet."""
    first = "" if step.first is None else step.first
    answer, *rest = yield from ask(
        context.write(
            "begin_stage", step.session, step.forked_from or "", ttl_ms(step.ttl_s), first
        )
    )
    if answer == b"exists":
        raise rules.exists(step.session)
    life, born = rest
    return Stage(life.decode(), int(born))


def stage_rows(context: Context, step: StageRows) -> Plan[None]:
    """Put entries at their positions, in order."""
    salt = context.keys(step.session).salt
    for start in range(0, len(step.rows), ROWS_PER_CALL):
        arguments: list[Argument] = []
        for row in step.rows[start : start + ROWS_PER_CALL]:
            arguments += (
                row.position,
                stamp_text(row, salt),
                meta_text(row.kind, row.keep, row.batch, row.opens, row.answers),
                row.key or "",
                row.envelope,
                "" if row.deadline_ms is None else row.deadline_ms,
            )
        (answer,) = yield from ask(
            context.write("stage_rows", step.session, step.stage, *arguments)
        )
        if answer == b"exists":
            raise rules.exists(step.session)


def show_stage(context: Context, step: ShowStage) -> Plan[Head]:
    """Show all that was staged."""
    if step.rows:
        yield from stage_rows(context, StageRows(step.session, step.stage, step.rows))
    shown = step.view
    arguments: list[Argument] = [
        step.stage,
        step.metadata,
        "" if shown is None else shown.tail,
        "" if shown is None else extents_text(shown.extents),
        step.generation,
        "" if step.created_at_ms is None else step.created_at_ms,
        len(step.snapshots),
    ]
    for number, record in enumerate(step.snapshots, 1):
        arguments += (record.id, record_text(number, record))
    arguments.append(len(step.journal))
    first = step.generation - len(step.journal)
    for number, line in enumerate(step.journal, 1):
        arguments += (line.operation, line_text(number, line, first + number), line.undone_by or "")
    answer, *rest = yield from ask(context.write("show_stage", step.session, *arguments))
    if answer == b"exists":
        raise rules.exists(step.session)
    return head_of(step.session, rest[0])


def drop_stage(context: Context, step: DropStage) -> Plan[None]:
    """Remove a stage that will never be shown."""
    yield from ask(context.write("drop_stage", step.session, step.stage))
