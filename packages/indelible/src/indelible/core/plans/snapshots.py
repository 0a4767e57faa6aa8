"""Snapshots, which save a view under an id, and forks, which copy the entries of a view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, count

from indelible import view
from indelible.core.clock import to_datetime
from indelible.core.codec import build_trim_columns, check_row, decode_row, encode
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
    Head,
    LogRow,
    Read,
    ReadSnapshots,
    SaveSnapshot,
    ShowStage,
    SnapshotRecord,
    StageRows,
)
from indelible.core.plan import Plan, perform, send_until_known
from indelible.core.plans.read import EntryDecoder
from indelible.core.plans.sessions import build_session_info
from indelible.core.plans.view_changes import (
    check_snapshot_name,
    find_snapshot,
    read_snapshots,
)
from indelible.core.rules import build_exists_error, compute_deadline_ms, refuse_if_moved
from indelible.core.settings import Settings, check_session_id, check_text, check_version
from indelible.model import (
    Entry,
    Kind,
    Never,
    SessionInfo,
    Snapshot,
    SnapshotDiff,
    Summary,
)


def save_snapshot(
    settings: Settings, session_id: str, *, label: str | None, expected: str | None
) -> Plan[Snapshot]:
    """Save the current view of a session."""
    session = check_session_id(session_id)
    if label is not None:
        label = check_text(label, what="a label", bytes_max=LABEL_BYTES_MAX)
    version = check_version(expected)
    op = SaveSnapshot(session, settings.ids(), label, settings.ttl_s(None), True, version)
    record, _ = yield from send_until_known(op)
    return build_snapshot(session, record)


def list_snapshots(session_id: str) -> Plan[list[Snapshot]]:
    """Read the snapshots of a session, oldest first."""
    session = check_session_id(session_id)
    found = yield from perform(ReadSnapshots(session))
    return [build_snapshot(session, record) for record in found.records]


def delete_snapshot(session_id: str, snapshot_id: str) -> Plan[None]:
    """Delete one snapshot."""
    session = check_session_id(session_id)
    check_snapshot_name(snapshot_id)
    if not (yield from perform(DeleteSnapshot(session, snapshot_id))):
        found = yield from perform(ReadSnapshots(session))
        record = find_snapshot(session, found.records, snapshot_id)
        yield from perform(DeleteSnapshot(session, record.id))


def diff_snapshots(session_id: str, first: str, second: str | None) -> Plan[SnapshotDiff]:
    """Compare a snapshot with another, or with the current view."""
    session = check_session_id(session_id)
    ids = (first,) if second is None else (first, second)
    found = yield from read_snapshots(session, ids)
    before, *others = (view.freeze(record.view, record.end) for record in found.records)
    after = found.head.visible if second is None else others[0]
    removed = yield from _read_entries(session, found.head, view.subtract(before, after))
    added = yield from _read_entries(session, found.head, view.subtract(after, before))
    return SnapshotDiff(removed=removed, added=added)


def _read_entries(session: str, head: Head, extents: view.Extents) -> Plan[tuple[Entry, ...]]:
    if not extents:
        return ()
    frozen = head.freeze(extents)
    found = yield from perform(Read(session, frozen=frozen))
    return tuple(EntryDecoder(session).to_entries(found.rows))


def build_snapshot(session: str, record: SnapshotRecord) -> Snapshot:
    """Build the public description of a snapshot."""
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
    expected: str | None,
) -> Plan[SessionInfo]:
    """Copy the visible entries, or those of a snapshot, into a new session.

    The copy is staged, and made visible by one operation at the end. Its entries are numbered anew,
    except in a thread of checkpoints, whose entries refer to one another by their positions.
    """
    session = check_session_id(session_id)
    target = check_session_id(new_session_id)
    if target == session:
        raise build_exists_error(target)
    found = yield from read_snapshots(session, () if at is None else (at,))
    head = found.head
    refuse_if_moved(session, check_version(expected), head.version)
    state = (head.view, head.end) if at is None else (found.records[0].view, found.records[0].end)
    ttl_s = settings.ttl_s(ttl)
    extents = view.freeze(*state)
    frozen = head.freeze(extents)
    first, shown = None, None
    if (yield from perform(Read(session, frozen, _REFERRING, limit=1))).rows:
        first, shown = head.born, view.build_view(extents, extents[-1][1])
    page = yield from perform(Read(session, frozen, limit=PAGE_ENTRIES_DEFAULT))
    stage = yield from perform(BeginStage(target, session, ttl_s, first))
    numbers = None if shown else count(stage.first)
    waiting: tuple[LogRow, ...] = ()
    while True:
        copies = _copy_rows(session, page, extents, stage.first, numbers, ttl_s)
        *full, waiting = [*split_batches(chain(waiting, copies))] or [()]
        for rows in full:
            yield from perform(StageRows(target, stage.life, rows))
        if page.resume is None:
            break
        op = Read(session, frozen, limit=PAGE_ENTRIES_DEFAULT, start=page.resume)
        page = yield from perform(op)
    copied = yield from perform(
        ShowStage(target, stage.life, head.metadata, view=shown, rows=waiting)
    )
    return build_session_info(target, copied)


# Entries of a thread of checkpoints.
_REFERRING = frozenset({Kind.VALUE, Kind.CHECKPOINT})


def _copy_rows(
    session: str,
    page: EntrySlice,
    extents: view.Extents,
    first: int,
    numbers: Iterator[int] | None,
    ttl_s: float | None,
) -> Iterator[LogRow]:
    """Build the rows of a copy: of those in `extents`, numbered from `first`, or as they are.

    A copy keeps the times of the originals, but not their keys, which belong to their session.
    """
    for row in page.rows:
        kind, envelope = row.kind, row.envelope
        if kind not in _REFERRING:
            value = decode_row(row, session=session)
            if isinstance(value, Summary) and value.covers and numbers is not None:
                covers = _translate_covers(value.covers, extents, first)
                envelope = encode(value.model_copy(update={"covers": covers})).envelope
            keep, opens, answers = build_trim_columns(value)
        else:
            # Trim keeps them, whatever they hold.
            check_row(row, session=session)
            keep, opens, answers = True, (), ()
        assert kind is not None
        yield LogRow(
            row.position if numbers is None else next(numbers),
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


def _translate_covers(covers: view.Extents, copied: view.Extents, first: int) -> view.Extents:
    """Translate the positions that a summary covers; those that are not copied are left out."""
    return view.normalize(
        (first + _count_before(copied, start), first + _count_before(copied, stop))
        for start, stop in covers
    )


def _count_before(extents: view.Extents, position: int) -> int:
    return view.count(view.clip(extents, 0, position))


def split_batches(rows: Iterable[LogRow]) -> Iterator[tuple[LogRow, ...]]:
    """Split rows into parts within the limits of a batch."""
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
