"""Snapshots: a state of the session under a name, in a few bytes; and forks, which copy a state."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace

from indelible import view
from indelible.core.clock import to_datetime
from indelible.core.codec import decode, encode
from indelible.core.limits import (
    BATCH_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    LABEL_BYTES_MAX,
    PAGE_ENTRIES_DEFAULT,
)
from indelible.core.operations import (
    BeginStage,
    DeleteSnapshot,
    EntrySlice,
    FrozenView,
    Head,
    LogRow,
    Read,
    ReadSnapshots,
    SaveSnapshot,
    ShowStage,
    SnapshotRecord,
    StageRows,
)
from indelible.core.plan import Plan, perform
from indelible.core.plans.read import EntryDecoder
from indelible.core.plans.sessions import build_session_info
from indelible.core.plans.view_changes import (
    build_snapshot_not_found_error,
    is_text,
    read_snapshots,
)
from indelible.core.rules import build_exists_error, compute_deadline_ms
from indelible.core.settings import Settings, check_session_id, check_text
from indelible.errors import ClosedError, FormatError, MemoryStoreBackendError, OutcomeUnknownError
from indelible.model import (
    Entry,
    Never,
    SessionInfo,
    Snapshot,
    SnapshotDiff,
    Summary,
)


def save_snapshot(settings: Settings, session_id: str, *, label: str | None) -> Plan[Snapshot]:
    """Write down what a session shows."""
    session = check_session_id(session_id)
    if label is not None:
        label = check_text(label, what="a label", bytes_max=LABEL_BYTES_MAX)
    op = SaveSnapshot(session, settings.ids(), label, settings.ttl_s(None), fresh=True)
    try:
        record = yield from perform(op)
    except OutcomeUnknownError as unknown:
        if unknown.details.get("exhausted"):
            raise
        # The id makes it safe to ask again; a refusal now says nothing of what was done before.
        try:
            record = yield from perform(replace(op, fresh=False))
        except (MemoryStoreBackendError, FormatError, ClosedError) as error:
            raise unknown from error
    return build_snapshot(session, record)


def list_snapshots(session_id: str) -> Plan[list[Snapshot]]:
    """The snapshots of a session, oldest first."""
    session = check_session_id(session_id)
    found = yield from perform(ReadSnapshots(session))
    return [build_snapshot(session, record) for record in found.records]


def delete_snapshot(session_id: str, snapshot_id: str) -> Plan[None]:
    """Forget one snapshot."""
    session = check_session_id(session_id)
    if not is_text(snapshot_id) or not (yield from perform(DeleteSnapshot(session, snapshot_id))):
        raise build_snapshot_not_found_error(session, snapshot_id)


def diff_snapshots(session_id: str, first: str, second: str | None) -> Plan[SnapshotDiff]:
    """What a snapshot shows that another, or the session now, does not; and the other way round."""
    session = check_session_id(session_id)
    ids = (first,) if second is None else (first, second)
    found = yield from read_snapshots(session, ids)
    states = {record.id: view.freeze(record.view, record.end) for record in found.records}
    before = states[first]
    after = view.freeze(found.head.view, found.head.end) if second is None else states[second]
    removed = yield from _read_entries(session, found.head, view.subtract(before, after))
    added = yield from _read_entries(session, found.head, view.subtract(after, before))
    return SnapshotDiff(removed=removed, added=added)


def _read_entries(session: str, head: Head, extents: view.Extents) -> Plan[tuple[Entry, ...]]:
    if not extents:
        return ()
    frozen = FrozenView(head.life, extents, head.version, head.vacuums)
    found = yield from perform(Read(session, frozen=frozen))
    return tuple(EntryDecoder(session).to_entries(found.rows))


def build_snapshot(session: str, record: SnapshotRecord) -> Snapshot:
    """A stored snapshot as people see it."""
    extents = view.freeze(record.view, record.end)
    return Snapshot(
        id=record.id,
        session_id=session,
        label=record.label,
        taken_at=to_datetime(record.taken_at_ms),
        extents=extents,
        entries=view.count(extents),
    )


def fork(
    settings: Settings,
    session_id: str,
    new_session_id: str,
    *,
    at: str | None,
    ttl: float | Never | None,
) -> Plan[SessionInfo]:
    """Copy what a session shows, or showed in a snapshot, into a new session.

    The copy is staged out of everyone's view and shown by one step at the end.
    """
    session = check_session_id(session_id)
    target = check_session_id(new_session_id)
    if target == session:
        raise build_exists_error(target)
    found = yield from read_snapshots(session, () if at is None else (at,))
    head = found.head
    state = (head.view, head.end) if at is None else (found.records[0].view, found.records[0].end)
    ttl_s = settings.ttl_s(ttl)
    stage = yield from perform(BeginStage(target, session, ttl_s))
    frozen = FrozenView(head.life, view.freeze(*state), head.version, head.vacuums)
    op = Read(session, frozen=frozen, limit=PAGE_ENTRIES_DEFAULT)
    moved: list[int] = []
    while True:
        page = yield from perform(op)
        copies = _copy_rows(session, page, moved, stage.first, ttl_s)
        for rows in split_batches(copies):
            yield from perform(StageRows(target, stage.life, rows))
        if page.resume is None:
            break
        op = Read(session, frozen=frozen, limit=PAGE_ENTRIES_DEFAULT, start=page.resume)
    shown = yield from perform(ShowStage(target, stage.life, head.metadata))
    return build_session_info(target, shown)


def _copy_rows(
    session: str, page: EntrySlice, moved: list[int], first: int, ttl_s: float | None
) -> Iterator[LogRow]:
    """The same entries for another session. `moved` lists their old positions, in order.

    A copy keeps the times of its originals, but no keys: those belong to the session they were
    used in.
    """
    for row in page.rows:
        value = decode(
            row.kind,
            row.envelope,
            session=session,
            position=row.position,
            content=row.content,
        )
        if isinstance(value, Summary) and value.covers:
            value = value.model_copy(
                update={"covers": _translate_covers(value.covers, moved, first)}
            )
        kind, envelope, keep, opens, answers = encode(value)
        position = first + len(moved)
        moved.append(row.position)
        yield LogRow(
            position,
            kind,
            row.written_at_ms,
            compute_deadline_ms(page.head.now_ms, ttl_s),
            batch=1,
            generation=0,
            keep=keep,
            key=None,
            opens=opens,
            answers=answers,
            envelope=envelope,
        )


def _translate_covers(covers: view.Extents, moved: list[int], first: int) -> view.Extents:
    """What a summary covers, at the positions of the copies; what was not copied is left out."""
    return view.normalize(
        (first + bisect_left(moved, start), first + bisect_left(moved, stop))
        for start, stop in covers
    )


def split_batches(rows: Iterable[LogRow]) -> Iterator[tuple[LogRow, ...]]:
    """Rows in portions that stay within the limits of a batch."""
    batch: list[LogRow] = []
    size = 0
    for row in rows:
        full = len(batch) == BATCH_ENTRIES_MAX or size + len(row.envelope) > BATCH_BYTES_MAX
        if batch and full:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(row)
        size += len(row.envelope)
    if batch:
        yield tuple(batch)
