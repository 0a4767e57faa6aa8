"""Snapshots: a state of the session under a name, in a few bytes; and forks, which copy a state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from indelible import view
from indelible.core.codec import decode, encode
from indelible.core.limits import BATCH_BYTES_MAX, LABEL_BYTES_MAX, PAGE_ENTRIES_DEFAULT
from indelible.core.plan import Plan, ask
from indelible.core.plans.appending import append
from indelible.core.plans.changing import require_active, snapshot_not_found
from indelible.core.plans.reading import Decoding
from indelible.core.plans.sessions import info_of
from indelible.core.rules import exists
from indelible.core.settings import Settings, checked_session_id, checked_text
from indelible.core.sources import MADE_PREFIX, moment
from indelible.core.waist import (
    Append,
    BeginStage,
    DeleteSnapshot,
    Draft,
    Frozen,
    Head,
    Read,
    ReadSnapshots,
    SaveSnapshot,
    ShowStage,
    SnapshotRecord,
    Stored,
)
from indelible.errors import OutcomeUnknownError
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
    session = checked_session_id(session_id)
    if label is not None:
        label = checked_text(label, what="a label", bytes_max=LABEL_BYTES_MAX)
    step = SaveSnapshot(session, settings.ids(), label, settings.ttl_s(None))
    try:
        record = yield from ask(step)
    except OutcomeUnknownError:
        # The id makes it safe to ask again.
        record = yield from ask(step)
    return _snapshot(session, record)


def list_snapshots(session_id: str) -> Plan[list[Snapshot]]:
    """The snapshots of a session, oldest first."""
    session = checked_session_id(session_id)
    found = yield from ask(ReadSnapshots(session))
    return [_snapshot(session, record) for record in found.records]


def delete_snapshot(session_id: str, snapshot_id: str) -> Plan[None]:
    """Forget one snapshot."""
    session = checked_session_id(session_id)
    was_there = yield from ask(DeleteSnapshot(session, snapshot_id))
    if not was_there:
        raise snapshot_not_found(session, snapshot_id)


def diff_snapshots(session_id: str, first: str, second: str | None) -> Plan[SnapshotDiff]:
    """What a snapshot shows that another, or the session now, does not; and the other way round."""
    session = checked_session_id(session_id)
    ids = (first,) if second is None else (first, second)
    found = yield from ask(ReadSnapshots(session, ids))
    require_active(session, found.head)
    states = {record.id: view.freeze(record.view, record.end) for record in found.records}
    for snapshot_id in ids:
        if snapshot_id not in states:
            raise snapshot_not_found(session, snapshot_id)
    before = states[first]
    after = view.freeze(found.head.view, found.head.end) if second is None else states[second]
    removed = yield from _entries(session, found.head, view.subtract(before, after))
    added = yield from _entries(session, found.head, view.subtract(after, before))
    return SnapshotDiff(removed=removed, added=added)


def _entries(session: str, head: Head, extents: view.Extents) -> Plan[tuple[Entry, ...]]:
    if not extents:
        return ()
    frozen = Frozen(head.life, extents, head.version, head.vacuums)
    found = yield from ask(Read(session, frozen=frozen))
    return tuple(Decoding(session).entries(found.rows))


def _snapshot(session: str, record: SnapshotRecord) -> Snapshot:
    extents = view.freeze(record.view, record.end)
    return Snapshot(
        id=record.id,
        session_id=session,
        label=record.label,
        taken_at=moment(record.taken_at_ms),
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
    session = checked_session_id(session_id)
    target = checked_session_id(new_session_id)
    if target == session:
        raise exists(target)
    found = yield from ask(ReadSnapshots(session, () if at is None else (at,)))
    head = found.head
    require_active(session, head)
    if at is not None and not found.records:
        raise snapshot_not_found(session, at)
    state = (head.view, head.end) if at is None else (found.records[0].view, found.records[0].end)
    ttl_s = settings.ttl_s(ttl)
    stage = yield from ask(BeginStage(target, session, ttl_s))
    frozen = Frozen(head.life, view.freeze(*state), head.version, head.vacuums)
    step = Read(session, frozen=frozen, limit=PAGE_ENTRIES_DEFAULT)
    moved: dict[int, int] = {}
    while True:
        page = yield from ask(step)
        for drafts in _batches(_copies(session, page.rows, moved, stage.first)):
            key = MADE_PREFIX + settings.ids()
            yield from append(Append(target, drafts, key, True, None, ttl_s, stage.life))
        if page.resume is None:
            break
        step = Read(session, frozen=frozen, limit=PAGE_ENTRIES_DEFAULT, start=page.resume)
    shown = yield from ask(ShowStage(target, stage.life, head.metadata))
    return info_of(target, shown)


def _copies(
    session: str, rows: tuple[Stored, ...], moved: dict[int, int], first: int
) -> Iterator[Draft]:
    """The same entries for another session. `moved` maps old positions to new, from `first` on."""
    for row in rows:
        value = decode(row.kind, row.envelope, session=session, position=row.position)
        moved[row.position] = first + len(moved)
        if isinstance(value, Summary) and value.covers:
            covered = (moved[p] for p in view.positions(value.covers) if p in moved)
            value = value.model_copy(update={"covers": view.from_positions(covered)})
        yield encode(value)._replace(written_at_ms=row.written_at_ms)


def _batches(drafts: Iterable[Draft]) -> Iterator[tuple[Draft, ...]]:
    """Batches that stay within the limit on bytes."""
    batch: list[Draft] = []
    size = 0
    for draft in drafts:
        if batch and size + len(draft.envelope) > BATCH_BYTES_MAX:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(draft)
        size += len(draft.envelope)
    if batch:
        yield tuple(batch)
