"""Staging: a copy is written while it is invisible, and then shown in one step."""

from __future__ import annotations

from indelible.backends.postgres.arrays import BytesArray, IntArray
from indelible.backends.postgres.entries import EntryColumns
from indelible.backends.postgres.maintenance import remove_life
from indelible.backends.postgres.sessions import (
    PostgresSessionRow,
    begin_life,
    build_session_update,
    lock_session,
    to_array,
)
from indelible.backends.postgres.statements import WRITES, Do, PostgresContext
from indelible.backends.postgres.views import insert_line, insert_snapshot
from indelible.core import rules
from indelible.core.checksums import compute_entry_checksum
from indelible.core.operations import (
    BeginStage,
    DropStage,
    Head,
    LogRow,
    ShowStage,
    Stage,
    StageRows,
)
from indelible.core.plan import Plan
from indelible.model import Status
from indelible.view import View

# Rows as one array for each column: one statement for any number of them.
_INSERT = """
    INSERT INTO indelible.entry (session, life, position, written_at, deadline, generation, batch,
        key, kind, keep, opens, answers, payload, embedder, vector, checksum)
    SELECT $1, $2, position, written_at, deadline, generation, batch, key, kind, keep, opens,
        answers, payload, embedder, vector::real[], checksum
    FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[],
        $9::bigint[], $10::boolean[], $11::text[], $12::text[], $13::bytea[], $14::bytea[],
        $15::text[], $16::bigint[])
        AS row (position, written_at, deadline, generation, batch, key, kind, keep, opens, answers,
            payload, embedder, vector, checksum)
    ON CONFLICT (session, position) DO NOTHING"""


@WRITES.handles(BeginStage)
def begin_stage(context: PostgresContext, op: BeginStage) -> Plan[Stage]:
    """Begin a life that is not visible yet."""
    current, _ = yield from lock_session(context, op.session)
    if current.status is Status.ACTIVE:
        raise rules.build_exists_error(op.session)
    if op.first is not None and current.state is not None:
        # A copy that keeps its positions needs a log of its own; what is dead there goes.
        yield from remove_life(context, current, op.session, forget=True)
        current = PostgresSessionRow()
    begun = yield from begin_life(
        context,
        current,
        op.session,
        ttl_s=op.ttl_s,
        staged=True,
        forked_from=op.forked_from,
        first=op.first,
    )
    assert begun.state is not None
    return Stage(begun.state.life, begun.state.born)


@WRITES.handles(StageRows)
def stage_rows(context: PostgresContext, op: StageRows) -> Plan[None]:
    """Put entries at their positions."""
    current = yield from _lock_stage(context, op.session, op.stage)
    if not op.rows:
        return
    rows, salt = op.rows, context.salt(op.session)
    entries = EntryColumns()
    for row in rows:
        checksum = _compute_checksum(salt, row)
        entries.add(row.kind, row.keep, row.opens, row.answers, row.envelope, checksum)
    yield Do(
        _INSERT,
        (
            current.number,
            current.life,
            IntArray(row.position for row in rows),
            IntArray(row.written_at_ms for row in rows),
            IntArray(row.deadline_ms for row in rows),
            IntArray(row.generation for row in rows),
            IntArray(row.batch for row in rows),
            BytesArray(None if row.key is None else row.key.encode() for row in rows),
            *entries.build_params(),
        ),
    )
    yield Do(
        build_session_update(
            log_end="greatest(log_end, $3)",
            deadline="$4",
            last_activity="greatest(last_activity, $5)",
        ),
        (
            *context.named(op.session),
            rows[-1].position + 1,
            rows[-1].deadline_ms,
            rows[-1].written_at_ms,
        ),
    )


def _compute_checksum(salt: int, row: LogRow) -> int:
    return compute_entry_checksum(
        salt,
        row.envelope,
        position=row.position,
        written_at_ms=row.written_at_ms,
        deadline_ms=row.deadline_ms,
        generation=row.generation,
        batch=row.batch,
    )


@WRITES.handles(ShowStage)
def show_stage(context: PostgresContext, op: ShowStage) -> Plan[Head]:
    """Show all that was staged."""
    if op.rows:
        yield from stage_rows(context, StageRows(op.session, op.stage, op.rows))
    current = yield from _lock_stage(context, op.session, op.stage)
    state = current.state
    assert state is not None
    shown = View((), state.born) if op.view is None else op.view
    for record in op.snapshots:
        yield insert_snapshot(current, record)
    for generation, line in enumerate(op.journal, op.generation - len(op.journal) + 1):
        yield insert_line(current, line, generation)
    created_at = op.created_at_ms or current.created_at_ms
    assert created_at is not None
    last_activity = max(created_at, current.last_activity_ms)
    yield Do(
        build_session_update(
            staged="false",
            metadata="$3",
            tail="$4",
            extents="$5::bigint[]",
            generation="$6",
            created_at="$7",
            last_activity="$8::bigint",
        ),
        (
            *context.named(op.session),
            op.metadata,
            shown.tail,
            to_array(shown.extents),
            op.generation,
            created_at,
            last_activity,
        ),
    )
    return current._replace(
        state=state._replace(staged=False, generation=op.generation),
        view=shown,
        metadata=op.metadata,
        created_at_ms=created_at,
        last_activity_ms=last_activity,
    ).head()


@WRITES.handles(DropStage)
def drop_stage(context: PostgresContext, op: DropStage) -> Plan[None]:
    """Remove a stage that will never be shown."""
    current, _ = yield from lock_session(context, op.session)
    if current.state is not None and rules.is_stage(current.state, op.stage):
        yield from remove_life(context, current, op.session, forget=True)


def _lock_stage(context: PostgresContext, session: str, stage: str) -> Plan[PostgresSessionRow]:
    current, _ = yield from lock_session(context, session)
    rules.refuse_if_not_staged(session, stage, current.state)
    return current
