"""What a backend performs: the operations that plans yield, and their results.

Every operation is atomic by itself: one transaction on an SQL engine, one script on Redis. Plans
never need two of them to be atomic together. The docstring of an operation states all that a
backend has to do for it; `rules.py` holds the decisions, and `backends/memory` is the reference.

Terms used below:

- A session **is active** if it has a life that was not staged and has not expired. A session that
  is not active and is written to begins a new life behind the end of its log.
- A **version** changes with every append and every change of the view, and with nothing else: not
  with metadata, snapshots or quarantine.
- To **sync** an earlier write is to make sure that it has the durability that the store promises
  before it is reported again: the attempt that wrote it may have been interrupted before that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Self, TypeVar

from indelible.core.filters import Filter
from indelible.core.plan import Operation
from indelible.core.ranking import Statistics
from indelible.model import Kind, Risk, Status
from indelible.view import Extents, View, freeze

R = TypeVar("R")

# Values. Requests are frozen. Results that every call builds are not: a frozen `Head` takes four
# times as long to build.


class Draft(NamedTuple):
    """An entry that is ready to be stored: its envelope, and what trim needs without decoding."""

    kind: Kind
    envelope: bytes
    keep: bool = False
    opens: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


class StoredEntry(NamedTuple):
    """An entry as it is stored in the log."""

    position: int
    # None if the stored kind is unknown: the entry is damaged or missing.
    kind: Kind | None
    written_at_ms: int
    envelope: bytes
    # The content checksum that follows from the row's checksum (see `checksums`); None if the
    # engine keeps no checksum of rows.
    content: int | None = None


class LogRow(NamedTuple):
    """An entry with all its columns: what a copy, a check or an export needs."""

    position: int
    kind: Kind | None
    written_at_ms: int
    deadline_ms: int | None
    # How many entries its append had, on the first of them; 0 on the others.
    batch: int
    generation: int
    keep: bool
    key: str | None
    opens: tuple[str, ...]
    answers: tuple[str, ...]
    envelope: bytes
    # As in `StoredEntry`; ignored in a row that is to be written.
    content: int | None = None

    @property
    def place(self) -> tuple[int | None, ...]:
        """What the checksum of the row covers beside the content; see `checksums`."""
        return self.position, self.written_at_ms, self.deadline_ms, self.generation, self.batch

    @property
    def trim_columns(self) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
        """What follows from the content of an intact row; see `codec.build_trim_columns`."""
        return self.keep, self.opens, self.answers


class Outline(NamedTuple):
    """An entry without its body."""

    position: int
    kind: Kind
    size_bytes: int
    keep: bool
    opens: tuple[str, ...]
    answers: tuple[str, ...]


@dataclass(slots=True)
class Head:
    """A session at one moment: everything about it but its entries."""

    status: Status
    # Opaque; differs between any two lives of any two sessions of this name.
    life: str
    # The first position of this life, and the end of the log.
    born: int
    end: int
    view: View
    generation: int
    version: str
    created_at_ms: int | None = None
    # The later of when its life began and when its newest entry was written.
    last_activity_ms: int | None = None
    # That of the newest entry of this life, where SQLite stores it; of a life without entries, the
    # one that it began with.
    deadline_ms: int | None = None
    now_ms: int = 0
    metadata: bytes = b"{}"
    snapshots: int = 0
    forked_from: str | None = None
    # How often a vacuum removed entries of this session.
    vacuums: int = 0

    @property
    def visible(self) -> Extents:
        """The visible positions."""
        return freeze(self.view, self.end)

    def freeze(self, extents: Extents | None = None) -> FrozenView:
        """Return the state of what is visible, or of other positions, for later reads."""
        shown = self.visible if extents is None else extents
        return FrozenView(self.life, shown, self.version, self.vacuums)


@dataclass(slots=True)
class FrozenView:
    """A state of a session that later reads continue with: its life and what was visible.

    If a vacuum has removed entries of it since, reading them is a conflict, not a shorter list.
    """

    life: str
    extents: Extents
    version: str
    vacuums: int = 0


@dataclass(slots=True)
class SnapshotRecord:
    """A stored snapshot: the view and the end of the log at one moment."""

    id: str
    label: str | None
    taken_at_ms: int
    view: View
    end: int


@dataclass(slots=True)
class JournalLine:
    """One change of the view, with what is needed to undo it or to answer its retry."""

    key: str
    change: str
    changed_at_ms: int
    # The version right after the change.
    version: str
    end: int
    before: View
    after: View
    # The key of the change that undid this one.
    undone_by: str | None = None


# Appending


class AppendResult(NamedTuple):
    """The entries of an append, or of the first append with its key."""

    first: int
    entries: int
    version: str
    replayed: bool = False
    visible: bool = True
    # The backend sent the append more than once by itself, because a reply was lost: a replay may
    # be this call's own first attempt.
    resent: bool = False


class ItemGuard(NamedTuple):
    """What an append expects of an item: where its newest visible entry is; None for nowhere."""

    item: str
    position: int | None


@dataclass(frozen=True, slots=True)
class Append(Operation[AppendResult]):
    """Append a batch to the log: all of it or nothing, once per key and life.

    The key is looked up first, among the entries of the life and among the keys that a vacuum
    kept. If it was used, the result is that of the first append, which is synced before it is
    reported; different content under it is a `ConflictError`. Only then `expected` is compared,
    and `expected_item`: unless that is so, it is a `ConflictError` with the reason "item".

    `fresh` says that the key was generated for this append and not sent before, so that it cannot
    have been used. A generated key that is not fresh need only be looked for among the newest
    `KEYS_KEPT` entries.
    """

    session: str
    drafts: tuple[Draft, ...]
    key: str
    fresh: bool
    expected: str | None
    ttl_s: float | None
    expected_item: ItemGuard | None = None

    def repeat(self) -> Self:
        """Return the same, whose key is looked up."""
        return replace(self, fresh=False)


# Items: entries that have an id, of which the newest visible one counts (`codec.parse_item`)


class ItemPlace(NamedTuple):
    """An entry in the index of items."""

    item: str
    position: int


@dataclass(slots=True)
class ItemPage:
    """Places of items, whether their entries are visible or not."""

    head: Head
    places: tuple[ItemPlace, ...]


@dataclass(frozen=True, slots=True)
class FindItems(Operation[ItemPage]):
    """Read the index of the items of the session's life: by id, and the newest of each first.

    It begins after a place; `ItemPlace(item, LOG_ENTRIES_MAX)` is before the newest of an item.
    There are `limit` places, unless the index ends before.
    """

    session: str
    after: ItemPlace
    limit: int


@dataclass(frozen=True, slots=True)
class EraseResult:
    """What was erased of a session, its forks, and the places where no store can erase it."""

    entries: int = 0
    snapshots: int = 0
    size_bytes: int = 0
    # Sessions that were forked from it and still hold copies of its entries.
    forks: tuple[str, ...] = ()
    # Where bytes of it remain for good: append-only files, replicas, write-ahead logs.
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EraseItem(Operation[EraseResult]):
    """Overwrite every entry of an item with `envelope`: their positions stay.

    All else in their rows stays, except that the index of items loses them. If the session is not
    active, or had an earlier life, what is still stored of it is overwritten as far as the engine
    can reach it.
    """

    session: str
    item: str
    envelope: bytes


# Reading


@dataclass(frozen=True, slots=True)
class ReadHead(Operation[Head]):
    """Read a session without its entries. Snapshots are counted only if that is asked for."""

    session: str
    count_snapshots: bool = False


@dataclass(slots=True)
class EntrySlice:
    """Entries of one state, in order; `resume` is the position to continue from, or None."""

    head: Head
    frozen: FrozenView
    rows: tuple[StoredEntry, ...]
    resume: int | None = None


@dataclass(frozen=True, slots=True)
class Read(Operation[EntrySlice]):
    """Read visible entries of one state: the session's current one, or the one in `frozen`.

    Forwards from `start`, or with `newest` backwards from before it. Entries of other kinds are
    skipped and do not count to `limit`. An entry that should be there and is not is returned with
    kind None, unless a vacuum has removed it: then the read is a `ConflictError`.
    """

    session: str
    frozen: FrozenView | None = None
    kinds: frozenset[Kind] | None = None
    limit: int | None = None
    newest: bool = False
    start: int | None = None


class SessionMatches(NamedTuple):
    """Entries of a session that fit a search, and the state that they are visible in."""

    session: str
    head: Head
    frozen: FrozenView
    rows: tuple[StoredEntry, ...]


@dataclass(frozen=True, slots=True)
class MatchPage:
    """What the indexes of an engine have found, and the statistics that it is ranked by."""

    matches: tuple[SessionMatches, ...]
    # Whether there are more entries with these words, or with vectors.
    more: bool
    # They may count entries that are not visible.
    statistics: Statistics
    # Words that were not looked for, since they are common and others are not.
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FindMatches(Operation[MatchPage | None]):
    """Find visible entries of these kinds by their words and vectors, by the engine's indexes.

    The scope is some sessions, or those `under` a collection, or all; `frozen` is the state of a
    single session. Words are normalized; the vector has length 1, and is compared with those of its
    embedder. The result has `limit` entries, if there
    are so many, whose words are the rarest, and as many whose vectors are the nearest; an entry
    whose vector is of another dimension is the farthest. None says that there are no indexes: the
    plan then reads all entries and ranks them itself.
    """

    words: tuple[str, ...]
    kinds: frozenset[Kind]
    limit: int
    sessions: tuple[str, ...] | None = None
    under: str | None = None
    frozen: FrozenView | None = None
    vector: tuple[float, ...] | None = None
    embedder: str = ""

    default: ClassVar = None


@dataclass(frozen=True, slots=True)
class ReadFound(Operation[tuple[tuple[StoredEntry, ...], ...]]):
    """Read entries of these kinds beside some that were found, of many sessions at once.

    Each session is given with its state, of which the extents are read. The result has the entries
    of each, in order; what was removed meanwhile is left out.
    """

    states: tuple[tuple[str, FrozenView], ...]
    kinds: frozenset[Kind]


@dataclass(frozen=True, slots=True)
class SessionOutline:
    """The outline of the visible entries of a session."""

    head: Head
    entries: tuple[Outline, ...]


@dataclass(frozen=True, slots=True)
class ReadOutline(Operation[SessionOutline]):
    """Read kinds, sizes and tool call ids of the visible entries, without bodies."""

    session: str


# Changing the view


@dataclass(slots=True)
class ViewChangeResult:
    """The journal line of a change; `replayed` if it was made by an earlier call."""

    line: JournalLine
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class ChangeView(Operation[ViewChangeResult]):
    """Replace the view, if life, generation and vacuums are still those that it was computed from.

    Otherwise it is a `ConflictError` with the reason "view", as is a session that is not active.
    Then `expected` is compared. `tail` None means the end of the log when the change is made. The
    change is written to the journal, even if it changes nothing: its key must be found again.

    A key that was used before returns the first result, synced; for another kind of change it is a
    `ConflictError`. `fresh` says that the key cannot have been used.
    """

    session: str
    life: str
    generation: int
    vacuums: int
    change: str
    key: str
    extents: Extents
    tail: int | None
    expected: str | None = None
    fresh: bool = False
    # The key of the change that this one undoes.
    undoes: str | None = None

    def repeat(self) -> Self:
        """Return the same, whose key is looked up."""
        return replace(self, fresh=False)


@dataclass(frozen=True, slots=True)
class Rollback(Operation[ViewChangeResult]):
    """Make visible what a snapshot froze, and nothing else; otherwise as `ChangeView`.

    It depends on no earlier state, so no read precedes it. A session that is not active, or has no
    such snapshot, is a `ConflictError` with the reason "view"; the plan then reads why.
    """

    session: str
    snapshot: str
    key: str
    expected: str | None = None
    fresh: bool = False

    def repeat(self) -> Self:
        """Return the same, whose key is looked up."""
        return replace(self, fresh=False)


@dataclass(frozen=True, slots=True)
class FindChange(Operation[JournalLine | None]):
    """Find the change with this key in the journal of the session's life, and sync it.

    One of another kind is a `ConflictError`.
    """

    session: str
    change: str
    key: str


@dataclass(frozen=True, slots=True)
class JournalPage:
    """View changes of a session's life, newest first."""

    head: Head
    lines: tuple[JournalLine, ...]


@dataclass(frozen=True, slots=True)
class ReadJournal(Operation[JournalPage]):
    """Read the newest view changes; those that changed nothing are left out."""

    session: str
    limit: int


# Snapshots


@dataclass(frozen=True, slots=True)
class SaveSnapshot(Operation[SnapshotRecord]):
    """Store the view and the end of the log under an id. A session that is not active begins.

    The same id again returns the stored snapshot, synced, and changes nothing. Then `expected` is
    compared. `fresh` says that the id cannot have been used.
    """

    session: str
    id: str
    label: str | None
    ttl_s: float | None
    fresh: bool = False
    expected: str | None = None

    def repeat(self) -> Self:
        """Return the same, whose id is looked up."""
        return replace(self, fresh=False)


@dataclass(frozen=True, slots=True)
class SnapshotList:
    """Snapshots of a session's life, oldest first, with the session at that moment."""

    head: Head
    records: tuple[SnapshotRecord, ...]


@dataclass(frozen=True, slots=True)
class ReadSnapshots(Operation[SnapshotList]):
    """Read all snapshots of the session's life, or those with these ids that are there."""

    session: str
    ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DeleteSnapshot(Operation[bool]):
    """Delete one snapshot; the result says whether it was there. Entries stay."""

    session: str
    id: str


# Sessions


@dataclass(frozen=True, slots=True)
class SetMetadata(Operation[Head]):
    """Replace a session's metadata. A session that is not active begins with it.

    With `replaces`, only if that is the metadata now; otherwise it is a conflict.
    """

    session: str
    metadata: bytes
    expected: str | None
    ttl_s: float | None
    replaces: bytes | None = None


class SessionOrder(NamedTuple):
    """The order of a list: by "id", "last_activity" or "created", and then by id."""

    by: str
    descending: bool = False


class ListedSession(NamedTuple):
    """A session of a list; no head if it is damaged."""

    name: str
    head: Head | None


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, and where the next page begins."""

    sessions: tuple[ListedSession, ...]
    resume: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """Their names alone."""
        return tuple(session.name for session in self.sessions)


@dataclass(frozen=True, slots=True)
class ListSessions(Operation[SessionPage]):
    """List a page of active sessions that match `where`; with `dead`, expired and staged ones too.

    `session_list.is_listed` decides; a page is full if that many match. No entry is read. Without
    `order`, they come in any order, and all pages together take as long as one that has them all;
    one may come again if sessions are added between two pages.
    With it, a page continues after the `session_list.Place` of the last one; a session is ordered
    by what is stored, even if it is expired or damaged.

    With `scan_max`, a page ends after about so many sessions, whether they match or not; one in an
    order on Redis always looks at all.

    With `damaged`, sessions of which only parts are left are listed as well, perhaps repeatedly.
    """

    prefix: str
    resume: str | None
    limit: int
    dead: bool = False
    damaged: bool = False
    where: Filter = ()
    order: SessionOrder | None = None
    scan_max: int | None = None


@dataclass(frozen=True, slots=True)
class LogPage:
    """Entries of a life, visible or not, gaps left out; `resume` is where to continue, or None."""

    head: Head
    rows: tuple[LogRow, ...]
    resume: int | None


@dataclass(frozen=True, slots=True)
class ReadLog(Operation[LogPage]):
    """Read the log of the session's life, whether its entries are visible or not."""

    session: str
    start: int
    limit: int


# Staging: a fork or an import is written out of sight and then shown at once


@dataclass(frozen=True, slots=True)
class Stage:
    """A life that is not visible yet: its token, and the position of its first entry."""

    life: str
    first: int


@dataclass(frozen=True, slots=True)
class BeginStage(Operation[Stage]):
    """Begin a life that is not visible yet. An active session is a conflict.

    `first` asks for a certain first position: a session that is not active is removed for it.
    Anyone who writes to the session meanwhile begins a life of its own; the stage is then lost.
    """

    session: str
    forked_from: str | None
    ttl_s: float | None
    first: int | None = None


@dataclass(frozen=True, slots=True)
class StageRows(Operation[None]):
    """Write entries at their positions in a stage. Repeating it changes nothing."""

    session: str
    stage: str
    rows: tuple[LogRow, ...]


@dataclass(frozen=True, slots=True)
class ShowStage(Operation[Head]):
    """Write the last `rows` and the session's other parts, and make the stage the session's life.

    `view` None shows every staged entry. A stage that was lost is a conflict. `audit` has the lines
    of an imported audit, from the first on. Those that are there already must be equal: otherwise
    it is a `ConflictError` with the reason "audit". The others are added.
    """

    session: str
    stage: str
    metadata: bytes
    view: View | None = None
    generation: int = 0
    created_at_ms: int | None = None
    snapshots: tuple[SnapshotRecord, ...] = ()
    journal: tuple[JournalLine, ...] = ()
    rows: tuple[LogRow, ...] = ()
    audit: tuple[StoredLine, ...] = ()


@dataclass(frozen=True, slots=True)
class DropStage(Operation[None]):
    """Remove a stage that will never be shown. One that was lost or shown is left alone."""

    session: str
    stage: str


# Maintenance


@dataclass(frozen=True, slots=True)
class ReclaimResult:
    """What a vacuum removed, or would remove, of one session."""

    entries: int = 0
    size_bytes: int = 0
    # Changes of the view; lines that changed nothing are not counted.
    journal_lines: int = 0


@dataclass(frozen=True, slots=True)
class Reclaim(Operation[ReclaimResult]):
    """Remove entries that no view, snapshot or kept journal line can reach (`find_reachable`).

    Journal lines older than `undo_since_ms` go first. The newest entry of the log always stays: it
    carries the end of the log and the deadline. Keys of removed appends are kept with the
    checksums of their entries, so that a late retry is recognised. A life counts the vacuums that
    removed entries of it, from 0. A session that is not active loses all its entries; one that has
    expired is still known, by the same version.
    """

    session: str
    undo_since_ms: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Erase(Operation[EraseResult]):
    """Remove every trace of a session, as far as the engine allows.

    A damaged session can be erased, too, unless a version is `expected`: its own cannot be read.
    """

    session: str
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class IndexResult:
    """How many entries were indexed, how many are damaged, and where to continue, or None."""

    entries: int = 0
    damaged: int = 0
    resume: int | None = None
    # The last session that was looked at.
    session: str = ""


@dataclass(frozen=True, slots=True)
class IndexText(Operation[IndexResult]):
    """Add the words of up to `limit` entries that the index lacks, in all namespaces.

    With `rebuild`, those that it has are added anew: an engine may empty the index when `resume` is
    None, or replace what each entry has. An engine without an index has nothing to do.
    """

    resume: int | None
    limit: int
    rebuild: bool = False

    default: ClassVar = IndexResult()


@dataclass(frozen=True, slots=True)
class Scrub(Operation[tuple[str, ...]]):
    """Clear what erased sessions left in the engine's own logs; the result names what remains."""

    default: ClassVar = ()


@dataclass(frozen=True, slots=True)
class CheckEngine(Operation[tuple[str, ...]]):
    """Run the engine's own check of itself; the result is its list of problems."""

    default: ClassVar = ()


@dataclass(frozen=True, slots=True)
class CheckSession(Operation[tuple[str, ...]]):
    """Check what no other operation of a verification reads; the result is a list of problems.

    With `indexes`, also compare the indexes of search with the entries, none of which is damaged.
    """

    session: str
    indexes: bool


@dataclass(frozen=True, slots=True)
class FindRisks(Operation[tuple[Risk, ...]]):
    """Inspect the engine as it is configured, and say what it can lose."""


@dataclass(frozen=True, slots=True)
class Identify(Operation[str | None]):
    """Return what tells this store from every other, whatever URL named it; None if nothing does.

    A copy refuses to write a store onto itself by it.
    """


@dataclass(frozen=True, slots=True)
class ReadCursorKey(Operation[bytes]):
    """Return the key that signs page cursors of this store and namespace.

    It is derived from a random secret that the store keeps, and that is created when it is first
    needed. A backend may cache it; with `again` it must read it.
    """

    again: bool = False


@dataclass(frozen=True, slots=True)
class Quarantine(Operation[None]):
    """Keep the bytes of entries that cannot be read, beyond any vacuum of the session's life.

    Repeating it is safe. In a session that is not active, nothing is kept.
    """

    session: str
    # Position, reason, bytes.
    entries: tuple[tuple[int, str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ReadQuarantine(Operation[tuple[tuple[int, str, bytes], ...]]):
    """Read what was put into quarantine in the session's life, by position."""

    session: str


# Audit


class StoredLine(NamedTuple):
    """A line of the audit of a session, as it is stored."""

    # Counts from 0, through all lives of the session.
    number: int
    text: str
    hash: str


@dataclass(frozen=True, slots=True)
class Audited(Operation[R]):
    """Perform a change of a session, and write its line, both or neither.

    A change that has no effect, such as the repeat of a key, adds no line. Without a change, the
    line is all that is written. Lines stay when the session is vacuumed, expires or is erased.
    """

    change: Operation[R] | None
    session: str
    actor: str
    # What the line calls the change.
    name: str
    count: int
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ListAudits(Operation[tuple[str, ...]]):
    """Return the ids of all sessions that have lines, in any order, also of those that are gone."""


@dataclass(frozen=True, slots=True)
class ReadAudit(Operation[tuple[StoredLine, ...]]):
    """Return lines of a session from a number on, oldest first; the newest one if it is None."""

    session: str
    start: int | None
    limit: int
