"""The handlers: every operation on sessions, written on the primitives of a transaction.

A handler runs inside of one transaction. One that writes checks before it writes its first row;
once it has written, it does not refuse. The operations that concern the engine itself (`Scrub`,
`CheckEngine`, `FindRisks`, `Identify`, `ReadCursorKey`) are left to the engine.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

from indelible import view
from indelible.core import audit, index_search, rules, session_list
from indelible.core.backend import Handlers
from indelible.core.limits import (
    ITEM_PAGE,
    ITEMS_FIRST,
    KEYS_KEPT,
    LOG_ENTRIES_MAX,
    PAGE_ENTRIES_MAX,
)
from indelible.core.operations import (
    Append,
    AppendResult,
    Audited,
    BeginStage,
    ChangeView,
    CheckSession,
    DeleteSnapshot,
    DropStage,
    EntrySlice,
    Erase,
    EraseItem,
    EraseResult,
    FindChange,
    FindItems,
    FindMatches,
    Head,
    IndexResult,
    IndexText,
    ItemPage,
    ItemPlace,
    JournalLine,
    JournalPage,
    ListAudits,
    ListedSession,
    ListSessions,
    LogPage,
    LogRow,
    Quarantine,
    Read,
    ReadAudit,
    ReadFound,
    ReadHead,
    ReadJournal,
    ReadLog,
    ReadOutline,
    ReadQuarantine,
    ReadSnapshots,
    Reclaim,
    ReclaimResult,
    Rollback,
    SaveSnapshot,
    SessionOrder,
    SessionOutline,
    SessionPage,
    SetMetadata,
    ShowStage,
    SnapshotList,
    SnapshotRecord,
    Stage,
    StageRows,
    StoredEntry,
    StoredLine,
    ViewChangeResult,
)
from indelible.core.plan import Operation
from indelible.core.rows import SessionRow, build_token
from indelible.core.transaction import Transaction
from indelible.errors import FormatError
from indelible.model import Status
from indelible.view import Extents

# In a transaction that holds the write lock.
WRITES: Final = Handlers[Transaction]()
# In a transaction that only reads: one committed state.
READS: Final = Handlers[Transaction]()

_WHOLE_LOG: Final = ((0, LOG_ENTRIES_MAX),)

R = TypeVar("R")


def perform_operation(tx: Transaction, op: Operation[R]) -> R:
    """Perform an operation in a transaction."""
    handler = (WRITES if type(op) in WRITES else READS).find(op)
    return handler(tx, op)


# Sessions


def _load_session(tx: Transaction, name: str) -> tuple[SessionRow | None, Head]:
    row = tx.find_session(name)
    return row, rules.build_head(row, tx.now_ms())


def _find_active(tx: Transaction, name: str) -> SessionRow | None:
    """Find a session, even if its view is damaged; None if it is not active."""
    row = tx.find_session(name)
    status = rules.compute_status(row, tx.now_ms())
    return row if status is Status.ACTIVE else None


def _begin_life(
    tx: Transaction,
    name: str,
    row: SessionRow | None,
    *,
    ttl_s: float | None,
    staged: bool = False,
    forked_from: str | None = None,
    first: int | None = None,
) -> SessionRow:
    """Begin a session, or its next life behind the end of its log."""
    now_ms = tx.now_ms()
    end = row.end if row else 0
    born = end if first is None else first
    number = row.number if row else tx.create_session(name)
    life = row.life + 1 if row else 1
    begun = SessionRow(
        name=name,
        token=build_token(number, life),
        born=born,
        end=born,
        generation=0,
        deadline_ms=rules.compute_deadline_ms(now_ms, ttl_s),
        staged=staged,
        view=view.build_empty_view(born),
        created_at_ms=now_ms,
        # That of a copy is known when it is shown.
        last_activity_ms=0 if staged else now_ms,
        forked_from=forked_from,
        number=number,
        life=life,
    )
    tx.save_session(begun)
    return begun


@READS.handles(ReadHead)
def read_head(tx: Transaction, op: ReadHead) -> Head:
    """Read a session without its entries."""
    row, head = _load_session(tx, op.session)
    if op.count_snapshots and row is not None and head.status is Status.ACTIVE:
        head.snapshots = tx.count_snapshots(row)
    return head


@WRITES.handles(SetMetadata)
def set_metadata(tx: Transaction, op: SetMetadata) -> Head:
    """Replace a session's metadata."""
    row = tx.find_session(op.session)
    head = rules.build_head(row, tx.now_ms())
    rules.refuse_if_moved(op.session, op.expected, head.version)
    rules.refuse_if_replaced(op.session, op.replaces, head.metadata)
    if row is None or head.status is not Status.ACTIVE:
        row = _begin_life(tx, op.session, row, ttl_s=op.ttl_s)
    row = row._replace(metadata=op.metadata)
    tx.save_session(row)
    return rules.build_head(row, tx.now_ms(), snapshots=tx.count_snapshots(row))


@READS.handles(ListSessions)
def list_sessions(tx: Transaction, op: ListSessions) -> SessionPage:
    """List a page of sessions, in the order of ids if no other is asked for.

    A session whose row is damaged is listed too, so that it is not overlooked.
    """
    listed: list[ListedSession] = []
    order = op.order or SessionOrder("id")
    after = last = session_list.parse_place(order, op.resume)
    # A filter may pass over many sessions, so that each query asks for twice as many.
    wanted = op.limit + 1
    left = op.scan_max
    while True:
        if left is not None:
            wanted = min(left, PAGE_ENTRIES_MAX)
        found = tx.list_sessions(op.prefix, order, after, wanted)
        for row, intact, snapshots in found:
            after = session_list.build_place(
                order, row.name, row.created_at_ms, row.last_activity_ms
            )
            head: Head | None = None
            # A session with a damaged view is listed as well.
            with suppress(FormatError):
                head = rules.build_head(row, tx.now_ms()) if intact else None
            if not session_list.is_listed(op, row.name, head):
                continue
            if len(listed) == op.limit:
                return SessionPage(tuple(listed), last.format())
            if head is not None and head.status is Status.ACTIVE:
                head.snapshots = snapshots
            listed.append(ListedSession(row.name, head))
            last = after
        if len(found) < wanted:
            return SessionPage(tuple(listed), None)
        if left is not None and not (left := left - wanted):
            return SessionPage(tuple(listed), after.format())
        wanted = min(2 * wanted, PAGE_ENTRIES_MAX + 1)


# Appending


@WRITES.handles(Append)
def append(tx: Transaction, op: Append) -> AppendResult:
    """Append a batch to the log."""
    row = tx.find_session(op.session)
    now_ms = tx.now_ms()
    status = rules.compute_status(row, now_ms)
    if row is not None and not op.fresh and status is Status.ACTIVE:
        earlier = _find_earlier(tx, row, op)
        if earlier is not None:
            return earlier
    if op.expected is not None:
        rules.refuse_if_moved(op.session, op.expected, rules.compute_version(row, now_ms))
    if op.expected_item is not None:
        active = row if status is Status.ACTIVE else None
        newest = _find_newest(tx, active, op.expected_item.item)
        rules.refuse_if_item_moved(op.session, op.expected_item, newest)
    count = len(op.drafts)
    rules.refuse_if_full(op.session, row.end if row else 0, count)
    if row is None or status is not Status.ACTIVE:
        row = _begin_life(tx, op.session, row, ttl_s=op.ttl_s)
    elif rules.is_later_step(row.last_activity_ms, now_ms):
        # Other appends do not write the session's row.
        row = row._replace(last_activity_ms=now_ms)
        tx.save_session(row)
    first, generation = row.end, row.generation
    deadline_ms = rules.compute_deadline_ms(now_ms, op.ttl_s)
    rows = [
        LogRow(
            first + offset,
            kind,
            now_ms,
            deadline_ms,
            0 if offset else count,
            generation,
            keep,
            None if offset else op.key,
            opens,
            answers,
            envelope,
        )
        for offset, (kind, envelope, keep, opens, answers) in enumerate(op.drafts)
    ]
    tx.insert_entries(row, rows)
    return AppendResult(first, count, rules.build_version(row.token, first + count, generation))


def _find_earlier(tx: Transaction, row: SessionRow, op: Append) -> AppendResult | None:
    """Return the result of the first append with this key; other content is a conflict."""
    kept = tx.find_kept_key(row, op.key)
    if kept is not None:
        use, stored = kept
    else:
        found = tx.find_key(row, op.key)
        if found is None:
            return None
        use = found
        stored = tx.read_checksums(row, use)
    rules.refuse_different_content(op, use.first, stored)
    tx.sync(row)
    return AppendResult(
        use.first,
        use.entries,
        rules.build_version(row.token, use.first + use.entries, use.generation),
        replayed=True,
        visible=rules.is_visible(row.view, row.end, use.first, use.entries),
    )


# Items


@READS.handles(FindItems)
def find_items(tx: Transaction, op: FindItems) -> ItemPage:
    """Read the index of items."""
    row, head = _load_session(tx, op.session)
    if row is None or head.status is not Status.ACTIVE:
        return ItemPage(head, ())
    return ItemPage(head, tuple(tx.find_items(row, op.after, op.limit)))


def _find_newest(tx: Transaction, row: SessionRow | None, item: str) -> int | None:
    """Find the newest visible entry of an item; None if there is none."""
    if row is None:
        return None
    shown = view.freeze(row.view, row.end)
    after, limit = ItemPlace(item, LOG_ENTRIES_MAX), ITEMS_FIRST
    while True:
        places = tx.find_items(row, after, limit)
        for place in places:
            if place.item != item:
                return None
            if view.contains(shown, place.position, place.position + 1):
                return place.position
        if len(places) < limit:
            return None
        after, limit = places[-1], ITEM_PAGE


def _find_versions(tx: Transaction, row: SessionRow, item: str) -> list[int]:
    """Find all entries of an item."""
    found: list[int] = []
    after = ItemPlace(item, LOG_ENTRIES_MAX)
    while True:
        places = tx.find_items(row, after, ITEM_PAGE)
        found += [place.position for place in places if place.item == item]
        if len(places) < ITEM_PAGE or places[-1].item != item:
            return found
        after = places[-1]


@WRITES.handles(EraseItem)
def erase_item(tx: Transaction, op: EraseItem) -> EraseResult:
    """Overwrite every entry of an item."""
    row = tx.find_session(op.session)
    if row is None:
        return EraseResult()
    # Entries of earlier lives too: they are out of reach, but still stored.
    row = row._replace(born=0)
    rows = tx.read_extents(row, view.from_positions(_find_versions(tx, row, op.item)))
    forks = tx.find_forks(op.session)
    size = sum(len(each.envelope) for each in rows)
    if rows:
        erased = [each._replace(envelope=op.envelope) for each in rows]
        tx.insert_entries(row, erased, replace=True)
    return EraseResult(len(rows), size_bytes=size, forks=forks, kept=tx.kept)


# Reading


@READS.handles(Read)
def read(tx: Transaction, op: Read) -> EntrySlice:
    """Read visible entries of one state, in order."""
    row, head = _load_session(tx, op.session)
    frozen = rules.choose_frozen_view(op.session, op.frozen, head)
    gaps_are_vacuumed = frozen.vacuums != head.vacuums
    left = _choose_extents(frozen.extents, op)
    wanted = view.count(left) if op.limit is None else op.limit + 1
    entries: list[StoredEntry] = []
    while left and (op.limit is None or len(entries) <= op.limit):
        assert row is not None
        if op.newest:
            chunk = view.take_last(left, wanted)
            left = view.clip(left, 0, chunk[0][0])
        else:
            chunk = view.take_first(left, wanted)
            left = view.clip(left, chunk[-1][1], left[-1][1])
        # Twice as many next time: what was asked for may lie behind many entries of other kinds.
        wanted *= 2
        entries += tx.read_entries(row, chunk, op.kinds, newest=op.newest)
        if gaps_are_vacuumed and any(not entry.envelope for entry in entries):
            raise rules.build_gone_error(op.session)
    return rules.build_slice(op, head, frozen, entries)


def _choose_extents(extents: Extents, op: Read) -> Extents:
    """Return what is still to be read."""
    if op.start is None or not extents:
        return extents
    stop = extents[-1][1]
    return view.clip(extents, 0, op.start) if op.newest else view.clip(extents, op.start, stop)


@READS.handles(ReadLog)
def read_log(tx: Transaction, op: ReadLog) -> LogPage:
    """Read the log of the session's life, whether its entries are visible or not."""
    row, head = _load_session(tx, op.session)
    if row is None or head.status is not Status.ACTIVE:
        return LogPage(head, (), None)
    start = min(max(op.start, head.born), head.end)
    rows = tuple(tx.read_log(row, start, head.end, op.limit))
    return LogPage(head, rows, rows[-1].position + 1 if len(rows) == op.limit else None)


@READS.handles(ReadOutline)
def read_outline(tx: Transaction, op: ReadOutline) -> SessionOutline:
    """Read kinds, sizes and tool call ids of the visible entries."""
    row, head = _load_session(tx, op.session)
    extents = head.visible
    if row is None or not extents:
        return SessionOutline(head, ())
    entries = tx.read_outlines(row, extents)
    if len(entries) != view.count(extents):
        raise FormatError(
            f"session {op.session!r} has entries missing; nothing was changed. verify says which.",
            session=op.session,
        )
    return SessionOutline(head, tuple(entries))


READS.handles(FindMatches)(index_search.find_matches)
READS.handles(ReadFound)(index_search.read_found)


# The view and its journal


@WRITES.handles(ChangeView)
def change_view(tx: Transaction, op: ChangeView) -> ViewChangeResult:
    """Replace the view, if it is still the one that the change was computed from."""
    row, head = _load_session(tx, op.session)
    done = None if op.fresh else _find_line(tx, row, head, op.change, op.key)
    if done is not None:
        return ViewChangeResult(done, replayed=True)
    return _write_change(tx, row, head, op)


@WRITES.handles(Rollback)
def rollback(tx: Transaction, op: Rollback) -> ViewChangeResult:
    """Make visible what a snapshot froze."""
    row, head = _load_session(tx, op.session)
    done = None if op.fresh else _find_line(tx, row, head, rules.ROLLBACK, op.key)
    if done is not None:
        return ViewChangeResult(done, replayed=True)
    record = tx.find_snapshot(row, op.snapshot) if row else None
    return _write_change(tx, row, head, rules.plan_rollback(op, head, record))


@WRITES.handles(FindChange)
def find_change(tx: Transaction, op: FindChange) -> JournalLine | None:
    """Find a change by its key, and sync it."""
    row, head = _load_session(tx, op.session)
    return _find_line(tx, row, head, op.change, op.key)


def _find_line(
    tx: Transaction, row: SessionRow | None, head: Head, change: str, key: str
) -> JournalLine | None:
    if row is None or head.status is not Status.ACTIVE:
        return None
    line = tx.find_line(row, key)
    if line is not None:
        rules.refuse_different_change(row.name, key, change, line)
        tx.sync(row)
    return line


def _write_change(
    tx: Transaction, row: SessionRow | None, head: Head, op: ChangeView
) -> ViewChangeResult:
    rules.refuse_if_changed(op, head)
    assert row is not None
    line = rules.build_journal_line(op, head, tx.now_ms())
    tx.save_session(row._replace(view=line.after, generation=row.generation + 1))
    tx.insert_line(row, line)
    if op.undoes is not None:
        tx.mark_undone(row, op.undoes, op.key)
    return ViewChangeResult(line)


@READS.handles(ReadJournal)
def read_journal(tx: Transaction, op: ReadJournal) -> JournalPage:
    """Read the newest changes of the view."""
    row, head = _load_session(tx, op.session)
    if row is None or head.status is not Status.ACTIVE:
        return JournalPage(head, ())
    return JournalPage(head, tuple(tx.read_lines(row, limit=op.limit, changes_only=True)))


# Snapshots


@WRITES.handles(SaveSnapshot)
def save_snapshot(tx: Transaction, op: SaveSnapshot) -> SnapshotRecord:
    """Store the view and the end of the log under an id."""
    row, head = _load_session(tx, op.session)
    is_active = row is not None and head.status is Status.ACTIVE
    if row is not None and is_active and not op.fresh:
        earlier = tx.find_snapshot(row, op.id)
        if earlier is not None:
            tx.sync(row)
            return earlier
    rules.refuse_if_moved(op.session, op.expected, head.version)
    if row is None or not is_active:
        row = _begin_life(tx, op.session, row, ttl_s=op.ttl_s)
        head = rules.build_head(row, tx.now_ms())
    rules.refuse_too_many_extents(op.session, head.visible)
    record = SnapshotRecord(op.id, op.label, tx.now_ms(), head.view, head.end)
    tx.insert_snapshot(row, record)
    return record


@READS.handles(ReadSnapshots)
def read_snapshots(tx: Transaction, op: ReadSnapshots) -> SnapshotList:
    """Read all snapshots of the session's life, or those with certain ids."""
    row, head = _load_session(tx, op.session)
    if row is None or head.status is not Status.ACTIVE:
        return SnapshotList(head, ())
    if op.ids is None:
        return SnapshotList(head, tuple(tx.read_snapshots(row)))
    found = [tx.find_snapshot(row, snapshot_id) for snapshot_id in op.ids]
    return SnapshotList(head, tuple(record for record in found if record is not None))


@WRITES.handles(DeleteSnapshot)
def delete_snapshot(tx: Transaction, op: DeleteSnapshot) -> bool:
    """Delete one snapshot; entries stay."""
    row, head = _load_session(tx, op.session)
    if row is None or head.status is not Status.ACTIVE:
        return False
    if tx.find_snapshot(row, op.id) is None:
        return False
    tx.delete_snapshot(row, op.id)
    return True


# Staging


@WRITES.handles(BeginStage)
def begin_stage(tx: Transaction, op: BeginStage) -> Stage:
    """Begin a life that is not visible yet."""
    row = tx.find_session(op.session)
    if row is not None:
        if rules.compute_status(row, tx.now_ms()) is Status.ACTIVE:
            raise rules.build_exists_error(op.session)
        if op.first is not None:
            # A copy that keeps its positions needs a log of its own: delete the dead session.
            tx.delete_session(row)
            row = None
    begun = _begin_life(
        tx,
        op.session,
        row,
        ttl_s=op.ttl_s,
        staged=True,
        forked_from=op.forked_from,
        first=op.first,
    )
    return Stage(begun.token, begun.born)


@WRITES.handles(StageRows)
def stage_rows(tx: Transaction, op: StageRows) -> None:
    """Write entries at their positions."""
    tx.insert_entries(_find_stage(tx, op.session, op.stage), op.rows, replace=True)


@WRITES.handles(ShowStage)
def show_stage(tx: Transaction, op: ShowStage) -> Head:
    """Make the stage the session's life."""
    row = _find_stage(tx, op.session, op.stage)
    known = tuple(tx.read_audit(op.session, 0, len(op.audit))) if op.audit else ()
    if known != op.audit[: len(known)]:
        raise rules.build_audit_conflict(op.session)
    tx.insert_entries(row, op.rows, replace=True)
    # Once more, for the new end of its log.
    row = _find_stage(tx, op.session, op.stage)
    shown = view.build_empty_view(row.born) if op.view is None else op.view
    created_at_ms = row.created_at_ms if op.created_at_ms is None else op.created_at_ms
    newest = tx.read_log(row, max(row.born, row.end - 1), row.end)
    row = row._replace(
        staged=False,
        metadata=op.metadata,
        view=shown,
        generation=op.generation,
        created_at_ms=created_at_ms,
        last_activity_ms=max([created_at_ms, *(each.written_at_ms for each in newest)]),
    )
    # A view that reaches outside of the log is refused here: the stage is not shown.
    head = rules.build_head(row, tx.now_ms())
    for record in op.snapshots:
        tx.insert_snapshot(row, record)
    for generation, line in enumerate(op.journal, op.generation - len(op.journal) + 1):
        version = rules.build_version(row.token, line.end, generation)
        tx.insert_line(row, replace(line, version=version))
    tx.save_session(row)
    if len(known) < len(op.audit):
        tx.insert_audit_lines(op.session, op.audit[len(known) :])
    return head


@WRITES.handles(DropStage)
def drop_stage(tx: Transaction, op: DropStage) -> None:
    """Remove a stage that will never be shown."""
    row = tx.find_session(op.session)
    if row is not None and rules.is_stage(row, op.stage):
        tx.delete_session(row)


def _find_stage(tx: Transaction, session: str, stage: str) -> SessionRow:
    row = tx.find_session(session)
    if row is None or not rules.is_stage(row, stage):
        # Another writer wrote to it.
        raise rules.build_exists_error(session)
    return row


# Maintenance


@WRITES.handles(Reclaim)
def reclaim(tx: Transaction, op: Reclaim) -> ReclaimResult:
    """Remove entries that nothing can reach."""
    row, head = _load_session(tx, op.session)
    if row is None:
        return ReclaimResult()
    if head.status is Status.ACTIVE:
        return _reclaim_active(tx, op, row, head)
    if row.staged and not rules.is_abandoned(row.created_at_ms, head.now_ms):
        return ReclaimResult()
    removed = tx.measure_entries(row, _WHOLE_LOG)
    if op.dry_run:
        return ReclaimResult(*removed)
    if head.status is Status.EXPIRED:
        # The row stays, says that the session has expired, and remembers the end of the log.
        tx.delete_parts(row)
        emptied = row._replace(born=row.end, view=view.build_empty_view(row.end), metadata=b"{}")
        tx.save_session(emptied._replace(forked_from=None))
    else:
        tx.delete_session(row)
    return ReclaimResult(*removed)


def _reclaim_active(tx: Transaction, op: Reclaim, row: SessionRow, head: Head) -> ReclaimResult:
    lines = tx.read_lines(row)
    snapshots = tx.read_snapshots(row)
    dead, kept = rules.plan_vacuum(head, snapshots, lines, op.undo_since_ms)
    count, size = tx.measure_entries(row, dead)
    # Entries of earlier lives may be gone already: some engines free them when a life begins.
    own = view.clip(dead, head.born, head.end)
    is_vacuumed = count > 0 if own == dead else tx.measure_entries(row, own)[0] > 0
    if not op.dry_run:
        uses = tx.read_keys(row, KEYS_KEPT)
        tx.keep_keys(
            row, [use for use in uses if view.clip(dead, use.first, use.first + use.entries)]
        )
        tx.delete_entries(row, dead)
        tx.delete_old_parts(row, {line.key for line in kept}, KEYS_KEPT)
        if is_vacuumed:
            tx.save_session(row._replace(vacuums=row.vacuums + 1))
    return ReclaimResult(count, size, rules.count_removed_changes(lines, kept))


@WRITES.handles(Erase)
def erase(tx: Transaction, op: Erase) -> EraseResult:
    """Remove everything of a session."""
    forks = tx.find_forks(op.session)
    # Its contents are not read, so a damaged session can be erased like any other.
    row = tx.find_session(op.session, damaged=op.expected is None)
    if op.expected is not None:
        rules.refuse_if_moved(op.session, op.expected, rules.compute_version(row, tx.now_ms()))
    if row is None:
        return EraseResult(forks=forks, kept=tx.kept)
    count, size = tx.measure_entries(row, _WHOLE_LOG)
    snapshots = tx.count_snapshots(row, all_lives=True)
    tx.delete_session(row)
    return EraseResult(count, snapshots, size, forks, tx.kept)


@WRITES.handles(IndexText)
def index_text(tx: Transaction, op: IndexText) -> IndexResult:
    """Add words to the index of words."""
    return tx.index_text(op)


@READS.handles(CheckSession)
def check_session(tx: Transaction, op: CheckSession) -> tuple[str, ...]:
    """Compare the indexes of search with the entries; other operations read every other row."""
    row = tx.find_session(op.session) if op.indexes else None
    if row is None or tx.is_indexed_right(row):
        return ()
    return ("an index of search differs from the entries: reindex with rebuild=True",)


@WRITES.handles(Quarantine)
def quarantine(tx: Transaction, op: Quarantine) -> None:
    """Keep the bytes of entries that cannot be read."""
    row = _find_active(tx, op.session)
    if row is not None:
        tx.insert_quarantine(row, op.entries)


@READS.handles(ReadQuarantine)
def read_quarantine(tx: Transaction, op: ReadQuarantine) -> tuple[tuple[int, str, bytes], ...]:
    """Read what was put into quarantine."""
    row = _find_active(tx, op.session)
    if row is None:
        return ()
    # Positions continue from one life to the next.
    return tuple(each for each in tx.read_quarantine(row) if each[0] >= row.born)


# Audit


@WRITES.handles(Audited)
def perform_audited(tx: Transaction, op: Audited[R]) -> R | None:
    """Perform a change, and write its line behind the newest one."""
    erases = isinstance(op.change, Erase)
    row = tx.find_session(op.session, damaged=erases)
    # A damaged session can be erased; its version is not known then.
    version = "" if erases else rules.compute_version(row, tx.now_ms())
    result = None
    if op.change is not None:
        # A snapshot that is there already is not saved again.
        repeated = (
            isinstance(op.change, SaveSnapshot)
            and not op.change.fresh
            and (active := _find_active(tx, op.session)) is not None
            and tx.find_snapshot(active, op.change.id) is not None
        )
        result = WRITES.find(op.change)(tx, op.change)
        if repeated or not (row is not None if erases else rules.has_effect(result)):
            return result
    newest = tx.read_audit(op.session, None, 1)
    line = audit.build_line(op, newest[0] if newest else None, tx.now_ms(), version)
    tx.insert_audit_lines(op.session, (line,))
    return result


@READS.handles(ListAudits)
def list_audits(tx: Transaction, _op: ListAudits) -> tuple[str, ...]:
    """Return the ids of all sessions that have lines."""
    return tuple(tx.list_audits())


@READS.handles(ReadAudit)
def read_audit(tx: Transaction, op: ReadAudit) -> tuple[StoredLine, ...]:
    """Read lines of the audit."""
    return tuple(tx.read_audit(op.session, op.start, op.limit))
