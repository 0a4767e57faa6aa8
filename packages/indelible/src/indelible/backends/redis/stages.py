"""Stages: lives that are invisible until they are complete."""

from __future__ import annotations

from indelible.backends.redis.audit import format_audit_line
from indelible.backends.redis.log_rows import format_row
from indelible.backends.redis.requests import HANDLERS, Argument, RedisContext, encode_ttl_ms
from indelible.backends.redis.sessions import format_extents, parse_head
from indelible.backends.redis.views import format_line, format_record
from indelible.core import rules
from indelible.core.operations import BeginStage, DropStage, Head, ShowStage, Stage, StageRows
from indelible.core.plan import Plan

# Rows in one call of a script, during which all clients of the server wait.
ROWS_PER_CALL = 500


@HANDLERS.handles(BeginStage)
def begin_stage(context: RedisContext, op: BeginStage) -> Plan[Stage]:
    """Begin a life that is not visible yet."""
    first = "" if op.first is None else op.first
    answer, *rest = yield context.write(
        "begin_stage", op.session, op.forked_from or "", encode_ttl_ms(op.ttl_s), first
    )
    if answer == b"exists":
        raise rules.build_exists_error(op.session)
    life, born = rest
    return Stage(life.decode(), int(born))


@HANDLERS.handles(StageRows)
def stage_rows(context: RedisContext, op: StageRows) -> Plan[None]:
    """Write entries at their positions, in order."""
    salt = context.keys(op.session).salt
    for start in range(0, len(op.rows), ROWS_PER_CALL):
        rows = op.rows[start : start + ROWS_PER_CALL]
        arguments: list[Argument] = []
        for row in rows:
            arguments += (row.position, format_row(row, salt))
        call = context.write("stage_rows", op.session, op.stage, *arguments)
        call.size = sum(len(row.envelope) for row in rows)
        (answer,) = yield call
        if answer == b"exists":
            raise rules.build_exists_error(op.session)


@HANDLERS.handles(ShowStage)
def show_stage(context: RedisContext, op: ShowStage) -> Plan[Head]:
    """Make the stage the session's life."""
    if op.rows:
        yield from stage_rows(context, StageRows(op.session, op.stage, op.rows))
    shown = op.view
    arguments: list[Argument] = [
        op.stage,
        context.lookup,
        op.metadata,
        "" if shown is None else shown.tail,
        "" if shown is None else format_extents(shown.extents),
        op.generation,
        "" if op.created_at_ms is None else op.created_at_ms,
        len(op.audit),
        *map(format_audit_line, op.audit),
        len(op.snapshots),
    ]
    for number, record in enumerate(op.snapshots, 1):
        arguments += (record.id, format_record(number, record))
    arguments.append(len(op.journal))
    first = op.generation - len(op.journal)
    for number, line in enumerate(op.journal, 1):
        arguments += (line.key, format_line(number, line, first + number), line.undone_by or "")
    answer, *rest = yield context.change("show_stage", op.session, *arguments)
    if answer == b"exists":
        raise rules.build_exists_error(op.session)
    if answer == b"audit":
        raise rules.build_audit_conflict(op.session)
    return parse_head(op.session, rest[0])


@HANDLERS.handles(DropStage)
def drop_stage(context: RedisContext, op: DropStage) -> Plan[None]:
    """Remove a stage that will never be shown."""
    yield context.write("delete_expired", op.session, op.stage)
