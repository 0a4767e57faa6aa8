"""One transaction of an engine: the primitives that the shared handlers are written on.

An engine whose transactions Python code can take part in implements this class, and gets the
operations on sessions from the handlers beside it: memory, SQLite and PostgreSQL. A primitive reads
or writes rows and decides nothing. All calls on one object see one state, and what they write
becomes visible at once, or not at all.

Primitives that are not abstract are written on others, or stand for an index that the engine does
not have. An engine implements one of them if it has a faster way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import ClassVar

from indelible import view
from indelible.core import rules
from indelible.core.codec import parse_checksum
from indelible.core.operations import (
    FindMatches,
    IndexResult,
    IndexText,
    ItemPlace,
    JournalLine,
    LogRow,
    Outline,
    SessionOrder,
    SnapshotRecord,
    StoredEntry,
    StoredLine,
)
from indelible.core.ranking import Occurrences
from indelible.core.rows import KeyUse, SearchScope, SessionRow, build_outline_error
from indelible.core.session_list import Place
from indelible.model import Kind
from indelible.view import Extents


class Transaction(ABC):
    """The primitives. Each concerns the current life of a session, unless it says otherwise."""

    __slots__ = ("_now_ms",)

    def __init__(self) -> None:
        self._now_ms: int | None = None

    # Where erased bytes may remain, for the receipt of an erasure.
    kept: ClassVar[tuple[str, ...]] = ()

    def now_ms(self) -> int:
        """Return the time of this transaction by the store's clock: all calls see the same.

        On PostgreSQL, a later query of a read may renew it.
        """
        if self._now_ms is None:
            self._now_ms = self.read_clock()
        return self._now_ms

    @abstractmethod
    def read_clock(self) -> int:
        """Read the store's clock."""

    # Sessions

    @abstractmethod
    def find_session(self, name: str, *, damaged: bool = False) -> SessionRow | None:
        """Find a session. A damaged row is a `FormatError`, unless `damaged` allows it."""

    @abstractmethod
    def list_sessions(
        self, prefix: str, order: SessionOrder, after: Place, limit: int
    ) -> Sequence[tuple[SessionRow, bool, int]]:
        """List sessions with a prefix in an order, after a place.

        Return each with whether its row is intact, and how many snapshots its life has.
        """

    @abstractmethod
    def find_forks(self, name: str) -> tuple[str, ...]:
        """Return the names of the sessions that were forked from this one, in order."""

    @abstractmethod
    def create_session(self, name: str) -> int:
        """Add a session and return its number; `save_session` then writes its row."""

    @abstractmethod
    def save_session(self, row: SessionRow) -> None:
        """Write the row of a session. A new `life` has no entries, keys, lines or snapshots yet."""

    @abstractmethod
    def delete_parts(self, row: SessionRow) -> None:
        """Delete everything that belongs to a session, of all its lives, but not its row."""

    @abstractmethod
    def delete_session(self, row: SessionRow) -> None:
        """Delete a session and everything that belongs to it."""

    @abstractmethod
    def sync(self, row: SessionRow) -> None:
        """Make sure that the commit of this transaction syncs what was written before it."""

    # Entries. The newest one carries the end of the log and the deadline.

    @abstractmethod
    def insert_entries(
        self, row: SessionRow, rows: Sequence[LogRow], *, replace: bool = False
    ) -> None:
        """Write entries at their positions; with `replace`, over existing entries.

        Those differ in their envelopes alone: PostgreSQL leaves the other columns as they are.
        `row` says which session it is; it need not be the row that was saved.
        If the last of them is the newest entry of the log, or comes after it, `find_session` then
        returns a row whose `end` is one after it and whose `deadline_ms` is its own. Its
        `last_activity_ms` is when it was written, as far as that is in the step of the saved row.
        """

    @abstractmethod
    def read_log(
        self, row: SessionRow, start: int, stop: int, limit: int | None = None
    ) -> list[LogRow]:
        """Read the first entries at positions `[start, stop)`, of all lives, with all columns.

        Gaps are skipped. An entry whose columns are damaged has no kind.
        """

    def read_extents(self, row: SessionRow, extents: Extents) -> list[LogRow]:
        """Read the entries at these positions as `read_log` does."""
        return [each for extent in extents for each in self.read_log(row, *extent)]

    def read_entries(
        self, row: SessionRow, extents: Extents, kinds: frozenset[Kind] | None, *, newest: bool
    ) -> list[StoredEntry]:
        """Read the entries of these kinds at these positions, with `newest` backwards.

        For a position without an entry, return one with kind None and an empty envelope; if there
        are too many of them, raise. An entry of which the kind cannot be trusted is always
        returned.
        """
        found = {each.position: each for each in self.read_extents(row, extents)}
        missing = view.count(extents) - len(found)
        rules.refuse_many_missing(row.name, missing, extents[0][0], extents[-1][1])
        entries: list[StoredEntry] = []
        for position in view.iter_positions(extents):
            each = found.get(position)
            if each is None:
                entries.append(StoredEntry(position, None, 0, b""))
            elif kinds is None or each.kind is None or each.kind in kinds:
                entries.append(
                    StoredEntry(
                        position, each.kind, each.written_at_ms, each.envelope, each.content
                    )
                )
        return entries[::-1] if newest else entries

    def read_outlines(self, row: SessionRow, extents: Extents) -> list[Outline]:
        """Read entries without their bodies, in order; raise if one is damaged, skip gaps."""
        outlines: list[Outline] = []
        for each in self.read_extents(row, extents):
            if each.kind is None:
                raise build_outline_error(row.name, each.position)
            size = len(each.envelope)
            outlines.append(
                Outline(each.position, each.kind, size, each.keep, each.opens, each.answers)
            )
        return outlines

    def read_checksums(self, row: SessionRow, use: KeyUse) -> list[bytes]:
        """Read the checksums in the envelopes of an append's entries."""
        stop = min(use.first + use.entries, row.end)
        return [parse_checksum(each.envelope) for each in self.read_log(row, use.first, stop)]

    def measure_entries(self, row: SessionRow, extents: Extents) -> tuple[int, int]:
        """Return the number of entries at these positions, of all lives, and their size."""
        sizes = [len(each.envelope) for each in self.read_extents(row, extents)]
        return len(sizes), sum(sizes)

    @abstractmethod
    def delete_entries(self, row: SessionRow, extents: Extents) -> None:
        """Delete the entries at these positions, of all lives, and their places in indexes."""

    # The index of items

    @abstractmethod
    def find_items(self, row: SessionRow, after: ItemPlace, limit: int) -> list[ItemPlace]:
        """Read the index: by id, newest position first, after a place."""

    # The indexes of words and of vectors, for engines that have them. Entries are given as
    # numbers (`rows.split_entry_id`), words as they are compared.

    def find_scope(self, op: FindMatches) -> SearchScope | None:  # noqa: ARG002
        """Find the sessions that a search is about, active or not; None if there is no index."""
        return None

    def count_words(
        self, words: Collection[str], scope: SearchScope, most: int | None
    ) -> dict[str, int]:
        """Count the entries with each word in a large scope, up to `most`; an estimate will do.

        Words that few entries have may be left out: they are found and counted then.
        """
        raise NotImplementedError

    def find_words(
        self, words: Collection[str], scope: SearchScope, *, among: Collection[int] | None = None
    ) -> Occurrences:
        """Find the entries that have each word; only those in `among` are needed."""
        raise NotImplementedError

    def find_nearest(
        self, vector: Sequence[float], embedder: str, scope: SearchScope, limit: int
    ) -> Sequence[tuple[float, int]]:
        """Find up to so many entries with vectors of an embedder, the nearest first.

        Each is returned with its similarity, which is `NOT_COMPARABLE` for another dimension.
        """
        raise NotImplementedError

    def find_unindexed(self, scope: SearchScope, limit: int) -> Sequence[int]:
        """Find up to so many entries that the indexes lack."""
        raise NotImplementedError

    def find_newer(self, ids: Sequence[int], limit: int) -> Sequence[tuple[int, int]]:
        """Find up to so many newer versions of each memory, newest first, visible or not.

        Each is returned as the id of the entry that was given, and its own.
        """
        raise NotImplementedError

    def find_sessions_by_number(self, numbers: Collection[int]) -> Sequence[SessionRow]:
        """Find the sessions of this namespace by their numbers; a damaged one is an error."""
        raise NotImplementedError

    def read_found(self, names: Mapping[int, str]) -> dict[int, StoredEntry]:
        """Read entries, given with the names of their sessions."""
        raise NotImplementedError

    def index_text(self, op: IndexText) -> IndexResult:  # noqa: ARG002
        """Index entries that the indexes lack."""
        return IndexResult()

    def is_indexed_right(self, row: SessionRow) -> bool:  # noqa: ARG002
        """Return whether the indexes agree with the entries of a session."""
        return True

    # Keys of appends

    @abstractmethod
    def find_key(self, row: SessionRow, key: str) -> KeyUse | None:
        """Find the append with this key among the entries.

        A generated key need only be looked for among the newest `KEYS_KEPT` entries.
        """

    def read_keys(self, row: SessionRow, limit: int) -> list[KeyUse]:
        """Read the keys of the newest appends that have entries, newest first."""
        found = (
            KeyUse(each.key, each.position, each.batch, each.generation)
            for each in reversed(self.read_log(row, row.born, row.end))
            if each.key is not None
        )
        return list(islice(found, limit))

    @abstractmethod
    def find_kept_key(self, row: SessionRow, key: str) -> tuple[KeyUse, list[bytes]] | None:
        """Find a key that a vacuum kept, and the checksums of its entries."""

    @abstractmethod
    def keep_keys(self, row: SessionRow, uses: Sequence[KeyUse]) -> None:
        """Keep keys and the checksums of their entries; one that is kept already stays."""

    # The journal

    @abstractmethod
    def find_line(self, row: SessionRow, key: str) -> JournalLine | None:
        """Find the journal line with this key."""

    @abstractmethod
    def read_lines(
        self, row: SessionRow, *, limit: int | None = None, changes_only: bool = False
    ) -> list[JournalLine]:
        """Read journal lines, last inserted first; with `changes_only` those that changed the view.

        Times do not order them.
        """

    @abstractmethod
    def insert_line(self, row: SessionRow, line: JournalLine) -> None:
        """Add a journal line."""

    @abstractmethod
    def mark_undone(self, row: SessionRow, key: str, by: str) -> None:
        """Write the key of the change that undid this line into it."""

    @abstractmethod
    def delete_old_parts(self, row: SessionRow, lines: Collection[str], keys_max: int) -> None:
        """Delete journal lines, kept keys and snapshots that a vacuum does not keep.

        These are lines whose keys are not in `lines`, kept keys but those of the newest `keys_max`
        appends, and all of earlier lives, with what they put into quarantine.
        """

    # Snapshots

    @abstractmethod
    def find_snapshot(self, row: SessionRow, snapshot_id: str) -> SnapshotRecord | None:
        """Find a snapshot by its id."""

    @abstractmethod
    def read_snapshots(self, row: SessionRow) -> list[SnapshotRecord]:
        """Read all snapshots, in the order in which they were inserted."""

    @abstractmethod
    def count_snapshots(self, row: SessionRow, *, all_lives: bool = False) -> int:
        """Count the snapshots."""

    @abstractmethod
    def insert_snapshot(self, row: SessionRow, record: SnapshotRecord) -> None:
        """Add a snapshot."""

    @abstractmethod
    def delete_snapshot(self, row: SessionRow, snapshot_id: str) -> None:
        """Delete a snapshot."""

    # Quarantine

    @abstractmethod
    def insert_quarantine(self, row: SessionRow, entries: Sequence[tuple[int, str, bytes]]) -> None:
        """Keep position, reason and bytes of entries; a position that is kept already stays."""

    @abstractmethod
    def read_quarantine(self, row: SessionRow) -> list[tuple[int, str, bytes]]:
        """Read what was kept, by position. It may be of an earlier life."""

    # Audit. Lines belong to a name, not to a session: they stay when it is deleted.

    @abstractmethod
    def insert_audit_lines(self, session: str, lines: Sequence[StoredLine]) -> None:
        """Add lines."""

    @abstractmethod
    def list_audits(self) -> list[str]:
        """Return the ids of all sessions that have lines."""

    @abstractmethod
    def read_audit(self, session: str, start: int | None, limit: int) -> list[StoredLine]:
        """Read lines from a number on, oldest first; the newest one if it is None."""
