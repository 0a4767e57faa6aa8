"""The in-memory store's sessions, and its transactions on them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from indelible.core.clock import Clock, read_clock_ms
from indelible.core.codec import parse_item
from indelible.core.operations import (
    ItemPlace,
    JournalLine,
    LogRow,
    SessionOrder,
    SnapshotRecord,
    StoredLine,
)
from indelible.core.rows import KeyUse, SessionRow
from indelible.core.session_list import Place, build_place
from indelible.core.transaction import Transaction
from indelible.view import Extents


@dataclass(slots=True)
class Session:
    """A session with everything that belongs to it."""

    row: SessionRow
    # All lives share the log. An append that was interrupted may have left entries behind the end.
    log: dict[int, LogRow] = field(default_factory=dict)
    # The position of the append that used a key last.
    keys: dict[str, int] = field(default_factory=dict)
    # Where there are or were entries of an item.
    items: dict[str, set[int]] = field(default_factory=dict)
    kept_keys: dict[str, tuple[KeyUse, list[bytes]]] = field(default_factory=dict)
    journal: tuple[JournalLine, ...] = ()
    snapshots: dict[str, SnapshotRecord] = field(default_factory=dict)
    quarantine: dict[int, tuple[int, str, bytes]] = field(default_factory=dict)


@dataclass(slots=True)
class MemoryDatabase:
    """All sessions by name."""

    clock: Clock
    sessions: dict[str, Session] = field(default_factory=dict)
    # How many numbers of sessions were assigned.
    numbers: int = 0
    # Lines of audits, by the names of sessions and their numbers.
    audit: dict[str, dict[int, StoredLine]] = field(default_factory=dict)


class MemoryTransaction(Transaction):
    """Works on a copy of a session, which `commit` puts in place by one assignment.

    Ctrl-C may come after any call, and must not leave half a write behind. An operation changes
    one session at most. Its parts are replaced and not changed, except that entries are added to
    the log behind its end, and their keys and items, which count only if the log has an entry with
    them.
    """

    __slots__ = ("_added", "_changed", "_database", "_deleted", "_lines")

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__()
        self._database = database
        self._changed: Session | None = None
        self._deleted: str | None = None
        # New lines of an audit, and the lines that they follow.
        self._added: dict[int, StoredLine] = {}
        self._lines: dict[int, StoredLine] = {}

    def commit(self) -> None:
        """Make the changes visible."""
        sessions, changed = self._database.sessions, self._changed
        # No call comes between this and the next assignment, so that Ctrl-C cannot.
        self._lines |= self._added
        if changed is not None:
            sessions[changed.row.name] = changed
        elif self._deleted is not None:
            del sessions[self._deleted]

    def read_clock(self) -> int:
        return read_clock_ms(self._database.clock)

    def _get(self, row: SessionRow) -> Session:
        """Return a session, to be read."""
        return self._changed or self._database.sessions[row.name]

    def _change(self, row: SessionRow) -> Session:
        """Return the copy of a session, to be changed."""
        if self._changed is None:
            self._changed = replace(self._database.sessions[row.name])
        return self._changed

    # Sessions

    def find_session(self, name: str, *, damaged: bool = False) -> SessionRow | None:  # noqa: ARG002
        session = self._changed or self._database.sessions.get(name)
        return session.row if session else None

    def list_sessions(
        self, prefix: str, order: SessionOrder, after: Place, limit: int
    ) -> Sequence[tuple[SessionRow, bool, int]]:
        found: list[tuple[Place, SessionRow]] = []
        for name, session in self._database.sessions.items():
            row = session.row
            place = build_place(order, name, row.created_at_ms, row.last_activity_ms)
            if name.startswith(prefix) and (place < after if order.descending else place > after):
                found.append((place, row))
        found.sort(reverse=order.descending)
        return [(row, True, self.count_snapshots(row)) for _, row in found[:limit]]

    def find_forks(self, name: str) -> tuple[str, ...]:
        rows = [session.row for session in self._database.sessions.values()]
        return tuple(sorted(row.name for row in rows if row.forked_from == name))

    def create_session(self, name: str) -> int:  # noqa: ARG002 (it is added by `save_session`)
        self._database.numbers += 1
        return self._database.numbers

    def save_session(self, row: SessionRow) -> None:
        if self._changed is None:
            known = self._database.sessions.get(row.name)
            self._changed = replace(known) if known and not self._deleted else Session(row)
        if self._changed.row.life != row.life:
            earlier = self._changed
            self._changed = Session(row, log=earlier.log, items=earlier.items)
        self._changed.row = row

    def delete_parts(self, row: SessionRow) -> None:
        self._changed = Session(row)

    def delete_session(self, row: SessionRow) -> None:
        self._deleted = row.name

    def sync(self, row: SessionRow) -> None:
        """Do nothing: memory has nothing to sync."""

    # Entries

    def insert_entries(
        self,
        row: SessionRow,
        rows: Sequence[LogRow],
        *,
        replace: bool = False,  # noqa: ARG002
    ) -> None:
        if not rows:
            return
        session = self._change(row)
        if any(each.position < session.row.end and each.position in session.log for each in rows):
            session.log = dict(session.log)
        session.log.update((each.position, each) for each in rows)
        session.keys.update((each.key, each.position) for each in rows if each.key is not None)
        for each in rows:
            item = parse_item(each.kind, each.envelope)
            if item is not None:
                session.items.setdefault(item, set()).add(each.position)
        newest = max(rows, key=lambda each: each.position)
        if newest.position >= session.row.end - 1:
            session.row = session.row._replace(
                end=newest.position + 1,
                deadline_ms=newest.deadline_ms,
                last_activity_ms=max(session.row.last_activity_ms, newest.written_at_ms),
            )

    def read_log(
        self, row: SessionRow, start: int, stop: int, limit: int | None = None
    ) -> list[LogRow]:
        log = self._get(row).log
        # A log may have a gap of any size.
        positions = range(start, stop) if stop - start < len(log) else sorted(log)
        found = (log[at] for at in positions if start <= at < stop and at in log)
        return list(islice(found, limit))

    def delete_entries(self, row: SessionRow, extents: Extents) -> None:
        dead = {each.position for each in self.read_extents(row, extents)}
        session = self._change(row)
        session.log = {at: each for at, each in session.log.items() if at not in dead}

    # The index of items

    def find_items(self, row: SessionRow, after: ItemPlace, limit: int) -> list[ItemPlace]:
        session = self._get(row)
        found: list[ItemPlace] = []
        for item in sorted(name for name in session.items if name >= after.item):
            stop = min(row.end, after.position) if item == after.item else row.end
            for position in sorted(session.items[item], reverse=True):
                entry = session.log.get(position)
                if entry is None or not row.born <= position < stop:
                    continue
                if parse_item(entry.kind, entry.envelope) == item:
                    found.append(ItemPlace(item, position))
                    if len(found) == limit:
                        return found
        return found

    # Keys of appends

    def find_key(self, row: SessionRow, key: str) -> KeyUse | None:
        session = self._get(row)
        position = session.keys.get(key, row.end)
        entry = session.log.get(position)
        if entry is None or entry.key != key or not row.born <= position < row.end:
            return None
        return KeyUse(key, position, entry.batch, entry.generation)

    def find_kept_key(self, row: SessionRow, key: str) -> tuple[KeyUse, list[bytes]] | None:
        return self._get(row).kept_keys.get(key)

    def keep_keys(self, row: SessionRow, uses: Sequence[KeyUse]) -> None:
        session = self._change(row)
        kept = {use.key: (use, self.read_checksums(row, use)) for use in uses}
        session.kept_keys = {**kept, **session.kept_keys}

    # The journal

    def find_line(self, row: SessionRow, key: str) -> JournalLine | None:
        return next((line for line in self._get(row).journal if line.key == key), None)

    def read_lines(
        self, row: SessionRow, *, limit: int | None = None, changes_only: bool = False
    ) -> list[JournalLine]:
        lines = reversed(self._get(row).journal)
        found = (line for line in lines if not changes_only or line.before != line.after)
        return list(islice(found, limit))

    def insert_line(self, row: SessionRow, line: JournalLine) -> None:
        session = self._change(row)
        session.journal = (*session.journal, line)

    def mark_undone(self, row: SessionRow, key: str, by: str) -> None:
        session = self._change(row)
        session.journal = tuple(
            replace(line, undone_by=by) if line.key == key else line for line in session.journal
        )

    def delete_old_parts(self, row: SessionRow, lines: Collection[str], keys_max: int) -> None:
        session = self._change(row)
        session.journal = tuple(line for line in session.journal if line.key in lines)
        kept = sorted(session.kept_keys.items(), key=lambda each: each[1][0].first)
        session.kept_keys = dict(kept[-keys_max:])

    # Snapshots

    def find_snapshot(self, row: SessionRow, snapshot_id: str) -> SnapshotRecord | None:
        return self._get(row).snapshots.get(snapshot_id)

    def read_snapshots(self, row: SessionRow) -> list[SnapshotRecord]:
        return list(self._get(row).snapshots.values())

    def count_snapshots(self, row: SessionRow, *, all_lives: bool = False) -> int:  # noqa: ARG002
        return len(self._get(row).snapshots)

    def insert_snapshot(self, row: SessionRow, record: SnapshotRecord) -> None:
        session = self._change(row)
        session.snapshots = {**session.snapshots, record.id: record}

    def delete_snapshot(self, row: SessionRow, snapshot_id: str) -> None:
        session = self._change(row)
        left = session.snapshots.items()
        session.snapshots = {each: record for each, record in left if each != snapshot_id}

    # Quarantine

    def insert_quarantine(self, row: SessionRow, entries: Sequence[tuple[int, str, bytes]]) -> None:
        session = self._change(row)
        session.quarantine = {**{entry[0]: entry for entry in entries}, **session.quarantine}

    def read_quarantine(self, row: SessionRow) -> list[tuple[int, str, bytes]]:
        return [entry for _, entry in sorted(self._get(row).quarantine.items())]

    # Audit

    def insert_audit_lines(self, session: str, lines: Sequence[StoredLine]) -> None:
        self._lines = self._database.audit.setdefault(session, {})
        self._added |= {line.number: line for line in lines}

    def list_audits(self) -> list[str]:
        return list(self._database.audit)

    def read_audit(self, session: str, start: int | None, limit: int) -> list[StoredLine]:
        lines = self._database.audit.get(session, {})
        if self._added:
            lines = lines | self._added
        first = max(0, len(lines) - 1) if start is None else start
        return [lines[number] for number in range(first, min(first + limit, len(lines)))]
