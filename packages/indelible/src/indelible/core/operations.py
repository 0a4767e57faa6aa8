"""The waist: all that core ever asks of a backend.

Each step is atomic by itself: one transaction on an SQL engine, one script call on Redis. Core
never needs two of them to be atomic together. A backend that performs these steps and passes the
contract is a backend; nothing else in the project knows its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from indelible.core.plan import Operation
from indelible.model import Kind, Risk, Status
from indelible.view import Extents, View

# What a named tuple's own constructor calls. Paths that make one for each entry call it themselves:
# the constructor is Python, and takes longer than all the rest of it.
tuple_new = tuple.__new__

# Nobody changes an answer either, but those that every call makes are not declared frozen: that
# would make a `Head` take four times as long to make.


class Draft(NamedTuple):
    """An entry that is ready to be stored: its envelope, and what trim needs without reading it."""

    kind: Kind
    envelope: bytes
    keep: bool = False
    opens: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


class StoredEntry(NamedTuple):
    """An entry as it stands in the log."""

    position: int
    # None where the engine holds nothing that it could be: the entry is damaged or missing.
    kind: Kind | None
    written_at_ms: int
    envelope: bytes
    # The content checksum that the row's checksum stands for at this place (see `checksums`);
    # None if the engine keeps no checksum of rows.
    content: int | None = None


class LogRow(NamedTuple):
    """An entry with all that stands beside it: what a copy, a check or an export needs."""

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
    # As in `Stored`; of no meaning in a row that is to be written.
    content: int | None = None


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
    # Where this life begins, and where the log ends.
    born: int
    end: int
    view: View
    generation: int
    version: str
    created_at_ms: int | None = None
    deadline_ms: int | None = None
    now_ms: int = 0
    metadata: bytes = b"{}"
    snapshots: int = 0
    forked_from: str | None = None
    # How often entries out of reach were removed for good.
    vacuums: int = 0


@dataclass(slots=True)
class FrozenView:
    """A state of a session that later reads go on with: its life and what it showed.

    If entries of it were vacuumed away since, reading them is a conflict, not a shorter list.
    """

    life: str
    extents: Extents
    version: str
    vacuums: int = 0


@dataclass(slots=True)
class SnapshotRecord:
    """A snapshot as stored: the view and the log's end at one moment, from which it is computed."""

    id: str
    label: str | None
    taken_at_ms: int
    view: View
    end: int


@dataclass(slots=True)
class JournalLine:
    """One change of the view, with what is needed to undo it or to answer its retry."""

    operation: str
    change: str
    changed_at_ms: int
    # The version right after the change.
    version: str
    end: int
    before: View
    after: View
    undone_by: str | None = None


class AppendResult(NamedTuple):
    """What became of an append."""

    first: int
    entries: int
    version: str
    replayed: bool = False
    visible: bool = True


@dataclass(slots=True)
class Append(Operation[AppendResult]):
    """Put a batch at the end of the log, whole, once per key.

    `fresh` says that the key was just made for this append, so that no earlier attempt can have
    used it. `expected` is checked after the key. A backend that sends it again by itself, because
    the outcome of an attempt is unknown, sets `resent`.
    """

    session: str
    drafts: tuple[Draft, ...]
    key: str
    fresh: bool
    expected: str | None
    ttl_s: float | None
    resent: bool = False


@dataclass(slots=True)
class ReadHead(Operation[Head]):
    """Look at a session without its entries; counting its snapshots takes as long as there are."""

    session: str
    count_snapshots: bool = False


@dataclass(slots=True)
class EntrySlice:
    """Entries of one state, in order; `resume` is the position to go on from, or None."""

    head: Head
    frozen: FrozenView
    rows: tuple[StoredEntry, ...]
    resume: int | None = None


@dataclass(slots=True)
class Read(Operation[EntrySlice]):
    """Read entries of one state: the session's current one, or the one in `frozen`.

    Forwards from `start`, or with `newest` backwards from before it. Entries of other kinds are
    passed over and do not count to `limit`.
    """

    session: str
    frozen: FrozenView | None = None
    kinds: frozenset[Kind] | None = None
    limit: int | None = None
    newest: bool = False
    start: int | None = None


@dataclass(slots=True)
class FindNearest(Operation[tuple[StoredEntry, ...] | None]):
    """Narrow a search down to some summaries of one state, the session's current one.

    The `k` that show and are nearest to the vector, of those with its embedder and its dimension,
    are among them for certain, and so is every entry that cannot be read. None says that the engine
    cannot tell, and that whoever asks must read and compare them all.
    """

    session: str
    vector: Sequence[float]
    embedder: str
    k: int


@dataclass(frozen=True, slots=True)
class SessionOutline:
    """The outline of what a session shows."""

    head: Head
    entries: tuple[Outline, ...]


@dataclass(slots=True)
class ReadOutline(Operation[SessionOutline]):
    """Read kinds, sizes and links of what the session shows, without bodies."""

    session: str


@dataclass(slots=True)
class ViewChangeResult:
    """What became of a view change."""

    line: JournalLine
    replayed: bool = False


@dataclass(slots=True)
class ChangeView(Operation[ViewChangeResult]):
    """Show something else, if the view is still the one that was looked at.

    `tail` None means the end of the log at this very moment. An operation that was done before
    answers with its first result. A session that moved is a `ConflictError`.
    """

    session: str
    life: str
    generation: int
    change: str
    operation: str
    extents: Extents
    tail: int | None
    expected: str | None = None
    undoes: str | None = None
    # How often the session had been vacuumed when the change was computed: what a vacuum removed
    # since must not be shown again.
    vacuums: int = 0
    # Show what this snapshot froze, whatever the session shows now: nobody needs to look first, so
    # life, generation, extents and vacuums say nothing. One that is not there is a `ConflictError`
    # too, and a look tells why.
    snapshot: str | None = None
    # The operation was just made for this change: no earlier attempt can have used it.
    fresh: bool = False


@dataclass(slots=True)
class SaveSnapshot(Operation[SnapshotRecord]):
    """Write the view and the log's end down under a new id; the same id again changes nothing."""

    session: str
    id: str
    label: str | None
    ttl_s: float | None
    # The id was just made for this snapshot: no earlier attempt can have used it.
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotList:
    """Snapshots of a session's life, oldest first, with the session at that moment."""

    head: Head
    records: tuple[SnapshotRecord, ...]


@dataclass(slots=True)
class ReadSnapshots(Operation[SnapshotList]):
    """Read all snapshots of the session's life, or the named ones."""

    session: str
    ids: tuple[str, ...] | None = None


@dataclass(slots=True)
class DeleteSnapshot(Operation[bool]):
    """Forget one snapshot; says whether it was there. Entries stay."""

    session: str
    id: str


@dataclass(frozen=True, slots=True)
class JournalPage:
    """View changes of a session's life, newest first."""

    head: Head
    lines: tuple[JournalLine, ...]


@dataclass(slots=True)
class ReadJournal(Operation[JournalPage]):
    """Read the newest view changes."""

    session: str
    limit: int


@dataclass(slots=True)
class SetMetadata(Operation[Head]):
    """Replace a session's metadata; a session that is not there begins with it."""

    session: str
    metadata: bytes
    expected: str | None
    ttl_s: float | None


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Names of sessions, and where the next page begins."""

    names: tuple[str, ...]
    resume: str | None


@dataclass(slots=True)
class ListSessions(Operation[SessionPage]):
    """Name a page of active sessions, in no order; with `dead`, expired and unfinished ones too.

    With `damaged`, sessions that an engine finds only by what is left of them are named as well,
    perhaps more than once.
    """

    prefix: str
    resume: str | None
    limit: int
    dead: bool = False
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class LogPage:
    """Entries of a life as they are stored, gaps left out; `resume` is where to go on, or None."""

    head: Head
    rows: tuple[LogRow, ...]
    resume: int | None


@dataclass(slots=True)
class ReadLog(Operation[LogPage]):
    """Read the log of the session's life itself, whether it shows or not."""

    session: str
    start: int
    limit: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A life that nobody sees yet: its token, and the position of its first entry."""

    life: str
    first: int


@dataclass(slots=True)
class BeginStage(Operation[Stage]):
    """Begin a life that nobody sees yet. An active session is a conflict.

    `first` asks for a certain first position; one that is taken is a conflict too. Anyone who
    writes to the session meanwhile takes it over; the stage is then lost.
    """

    session: str
    forked_from: str | None
    ttl_s: float | None
    first: int | None = None


@dataclass(slots=True)
class StageRows(Operation[None]):
    """Put entries at their positions in a stage. The same again changes nothing."""

    session: str
    stage: str
    rows: tuple[LogRow, ...]


@dataclass(slots=True)
class ShowStage(Operation[Head]):
    """Stage the last `rows`, and show all that was staged, at once, with the session's other parts.

    `view` None shows every staged entry. A stage that was taken over is a conflict.
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


@dataclass(slots=True)
class DropStage(Operation[None]):
    """Remove a stage that will never be shown. One that was taken over, or shown, is left alone."""

    session: str
    stage: str


@dataclass(frozen=True, slots=True)
class ReclaimResult:
    """What a vacuum removed, or would remove, of one session."""

    entries: int = 0
    size_bytes: int = 0
    journal_lines: int = 0


@dataclass(slots=True)
class Reclaim(Operation[ReclaimResult]):
    """Remove what no view, snapshot or newer journal line can reach; keys stay known."""

    session: str
    # Journal lines older than this go, and with them what only they could bring back.
    undo_since_ms: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class EraseResult:
    """What was erased of a session, its forks, and the places where no store can erase it."""

    entries: int = 0
    snapshots: int = 0
    size_bytes: int = 0
    forks: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(slots=True)
class Erase(Operation[EraseResult]):
    """Remove every trace of a session that the engine lets us remove."""

    session: str


@dataclass(slots=True)
class Scrub(Operation[tuple[str, ...]]):
    """Clear what erased sessions left in the engine's own logs; names what is still there."""


@dataclass(slots=True)
class CheckEngine(Operation[tuple[str, ...]]):
    """The engine's own check of itself: what is wrong, in its words."""


@dataclass(slots=True)
class CheckSession(Operation[tuple[str, ...]]):
    """What is wrong with rows of a session that no other step of a check reads, in plain words."""

    session: str


@dataclass(slots=True)
class FindRisks(Operation[tuple[Risk, ...]]):
    """Look at the engine as it runs, and say what it can lose."""


class Identify(Operation[str | None]):
    """Say what tells this place from every other, however it was named; None if nothing does."""


@dataclass(slots=True)
class ReadCursorKey(Operation[bytes]):
    """Return the key that signs page cursors of this store and namespace.

    It comes from a random secret that the store keeps, which is created when it is first needed. A
    backend may remember it; with `again` it must look.
    """

    again: bool = False


@dataclass(slots=True)
class Quarantine(Operation[None]):
    """Keep the bytes of entries that cannot be read, beyond any vacuum. Again changes nothing."""

    session: str
    # Position, reason, bytes.
    entries: tuple[tuple[int, str, bytes], ...]


@dataclass(slots=True)
class ReadQuarantine(Operation[tuple[tuple[int, str, bytes], ...]]):
    """Read what was put into quarantine, by position."""

    session: str
