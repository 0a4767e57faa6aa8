"""The values of the public API. All are immutable, and independent of how they are stored."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from operator import index
from typing import Annotated, Final, NamedTuple, Protocol, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, Strict

from indelible.errors import UsageError
from indelible.view import Extents, from_positions, iter_positions, normalize, subtract


class Never:
    """The type of `NEVER`: a session that has no time to live."""

    def __repr__(self) -> str:
        return "NEVER"

    def __reduce__(self) -> str:
        return "NEVER"


NEVER: Final = Never()


class Absent:
    """The type of `ABSENT`: a memory that is not there."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


class Status(StrEnum):
    """Whether a session is unknown, active, or expired and still known.

    A list also has sessions that are damaged; other calls raise for them.
    """

    NEW = "new"
    ACTIVE = "active"
    EXPIRED = "expired"
    DAMAGED = "damaged"


class Durability(StrEnum):
    """What an acknowledged append survives, from least to most."""

    NONE = "none"
    PROCESS = "process"
    POWER = "power"
    REPLICATED = "replicated"

    def covers(self, other: Durability) -> bool:
        """Return whether this level promises at least what `other` does."""
        order = list(Durability)
        return order.index(self) >= order.index(other)


class Kind(StrEnum):
    """What an entry of the log is."""

    MESSAGE = "message"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    SUMMARY = "summary"
    MEMORY = "memory"
    VALUE = "value"
    CHECKPOINT = "checkpoint"


# Strict: pydantic must not convert bytes to text, or numbers to flags.
Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]


class Payload(BaseModel):
    """The base of all values in entries. Unknown fields are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", ser_json_inf_nan="constants")
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)


class ChatMessage(Payload):
    """A message: text or content blocks, and the tool fields of chat models."""

    role: Text = Field(min_length=1, max_length=64)
    content: Text | list[dict[str, JsonValue]] | None = None
    name: Text | None = None
    pinned: Flag = False
    tool_calls: list[dict[str, JsonValue]] | None = None
    tool_call_id: Text | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class ToolCall(Payload):
    """A tool call: its id, the name of the tool, and the arguments."""

    call_id: Text = Field(min_length=1)
    name: Text
    arguments: JsonValue = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class ToolResult(Payload):
    """The result of the tool call with the same id."""

    call_id: Text = Field(min_length=1)
    content: JsonValue = None
    is_error: Flag = False
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class Summary(Payload):
    """A summary of the positions in `covers`, with a vector for search."""

    text: Text
    vector: tuple[float, ...] | None = None
    embedder: Text | None = None
    covers: Extents = ()
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class Source(BaseModel):
    """Where a memory comes from: positions of a session."""

    model_config = ConfigDict(frozen=True)
    session_id: Text = Field(min_length=1)
    positions: Extents = ()


class StoredMemory(Payload):
    """A version of a memory, as its collection stores it.

    A retraction has no text and no value. One that was erased does not even have an id.
    """

    id: Text = ""
    text: Text | None = None
    value: JsonValue = None
    vector: tuple[float, ...] | None = None
    embedder: Text | None = None
    source: Source | None = None
    # Counted from when it was written, by the clock of the store.
    ttl_s: float | None = None
    retracted: Flag = False
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class StoredValue(Payload):
    """A value of a checkpointed thread, as its serializer wrote it. Checkpoints refer to it."""

    type: Text
    # In base 64.
    data: Text


class StoredCheckpoint(Payload):
    """A record of a thread: a checkpoint, or writes that are pending for one.

    Records with one id are versions of one item, as those of a memory are.
    """

    id: Text
    record: dict[str, JsonValue]


Value = (
    ChatMessage | ToolCall | ToolResult | Summary | StoredMemory | StoredValue | StoredCheckpoint
)
KIND_OF: Final[dict[type, Kind]] = {
    ChatMessage: Kind.MESSAGE,
    ToolCall: Kind.TOOL_CALL,
    ToolResult: Kind.TOOL_RESULT,
    Summary: Kind.SUMMARY,
    StoredMemory: Kind.MEMORY,
    StoredValue: Kind.VALUE,
    StoredCheckpoint: Kind.CHECKPOINT,
}


class Embedder(Protocol):
    """Computes the vector of a text. Vectors of different embedders are never compared.

    `embed` may also be a coroutine function. An embedder may have a method `embed_many`, from a
    list of texts to a list of vectors, which then computes several vectors in one call.
    """

    @property
    def name(self) -> str:
        """The name that is stored with its vectors, such as "all-minilm-l6-v2"."""
        ...

    def embed(self, text: str, /) -> Sequence[float] | Awaitable[Sequence[float]]:
        """Compute the vector of a text."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a session's log."""

    position: int
    kind: Kind
    value: Value
    written_at: datetime


@dataclass(frozen=True, slots=True)
class CorruptEntry:
    """A stored entry that cannot be read: its position, the reason, and its bytes."""

    position: int
    reason: str
    raw: bytes


class Receipt(NamedTuple):
    """The result of an append: the positions of its entries, and the version after it.

    `replayed` says that an earlier append with the same key was found, and nothing was written.
    `visible` is False if its entries were hidden since: only with `replay="hidden-ok"`, or if the
    reply to this call's first attempt was lost and its entries were hidden before the retry.
    """

    session_id: str
    positions: range
    key: str
    version: str
    replayed: bool = False
    visible: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewChange:
    """The result of a view change: the positions that it hid, and those that it restored.

    With `dry_run` nothing was changed: it is what the change would do.
    """

    session_id: str
    change: str
    key: str | None
    version: str
    dropped: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    replayed: bool = False
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A saved view of a session. Its size does not depend on the length of the history."""

    id: str
    session_id: str
    label: str | None
    taken_at: datetime
    extents: Extents = field(repr=False)
    entries: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotDiff:
    """The difference between two states of a session."""

    removed: tuple[Entry, ...]
    added: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionInfo:
    """The current state of a session, without its entries.

    `last_activity` is when its newest entry was written, or when it began if that was later.
    """

    session_id: str
    status: Status
    version: str
    entries: int
    logged: int
    snapshots: int
    created_at: datetime | None
    last_activity: datetime | None
    expires_at: datetime | None
    ttl_s: float | None
    metadata: dict[str, JsonValue]
    forked_from: str | None


class SessionList(list[SessionInfo]):
    """A page of sessions; `cursor` opens the next page, and is None on the last."""

    def __init__(self, sessions: Iterable[SessionInfo], cursor: str | None) -> None:
        super().__init__(sessions)
        self.cursor = cursor

    @property
    def ids(self) -> list[str]:
        """The ids of the sessions."""
        return [session.session_id for session in self]


class CallStatus(StrEnum):
    """The state of a tool call."""

    DONE = "done"
    FAILED = "failed"
    DANGLING = "dangling"
    ORPHAN = "orphan"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallRecord:
    """A tool call joined with its result by call id.

    A call without a result is `dangling`; a result without a call is an `orphan`.
    """

    call_id: str
    status: CallStatus
    name: str | None = None
    arguments: JsonValue = None
    result: JsonValue = None
    call_position: int | None = None
    result_position: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSummary:
    """A summary and its position."""

    position: int
    summary: Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class SummaryMatch:
    """A search result: a summary, and its cosine similarity to the query."""

    position: int
    score: float
    summary: Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """A memory: the version of it that is at `position` in its collection."""

    collection: str
    id: str
    position: int
    text: str | None
    value: JsonValue
    metadata: dict[str, JsonValue]
    vector: tuple[float, ...] | None = field(repr=False)
    embedder: str | None
    source: Source | None
    written_at: datetime
    expires_at: datetime | None


class MemoryList(list[Memory]):
    """A page of memories, by id; `cursor` opens the next page, and is None on the last."""

    def __init__(self, memories: Iterable[Memory], cursor: str | None) -> None:
        super().__init__(memories)
        self.cursor = cursor


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryVersion:
    """A version of a memory in the past, and what removed it.

    `removed_by` is None for the current version. Otherwise it is "replaced", "retracted",
    "expired", or the change of the view that hid it, such as "rollback" or "hide"; None with a
    version that is not current says that nothing is known of that change any more.
    """

    memory: Memory
    current: bool
    removed_by: str | None = None
    removed_at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """An entry that a search found, with where it is and why it was found.

    `ranks` are its places in the lists that made the result: by "text", by "vector". `snippet` is
    the part of its text with the first matching words, in brackets. `around` are its neighbours.
    `dropped` are words of the query that were not looked for, since too many entries have them.
    """

    session_id: str
    position: int
    entry: Entry
    score: float
    ranks: dict[str, int]
    snippet: str
    around: tuple[Entry, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineEntry:
    """An entry of the log, visible or hidden."""

    entry: Entry | CorruptEntry
    visible: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A change of the view in the past: a trim, hide, clear, rollback, undo or repair.

    `before` and `after` are the positions that were visible right before and right after it.
    """

    change: str
    at: datetime
    key: str
    undone: bool
    before: Extents = field(repr=False)
    after: Extents = field(repr=False)

    @property
    def dropped(self) -> tuple[int, ...]:
        """The positions that it hid."""
        return tuple(iter_positions(subtract(self.before, self.after)))

    @property
    def restored(self) -> tuple[int, ...]:
        """The positions that it showed again."""
        return tuple(iter_positions(subtract(self.after, self.before)))


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditLine:
    """A line of the audit of a session: who changed what, when, and at which version.

    `version` is that of the session before the change; empty for `forget`. `count` is how many
    entries were appended, or how many reads a line stands for.
    """

    number: int
    at: datetime
    actor: str
    change: str
    count: int
    version: str
    hash: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """The entries of a session, visible or hidden, with its snapshots and view changes.

    `changes` come newest first; `undo` is the change that `undo()` would undo. `hidden` are the
    positions of the log that are not visible; a vacuum may have removed some of their entries.
    """

    info: SessionInfo
    entries: tuple[TimelineEntry, ...]
    hidden: Extents
    snapshots: tuple[Snapshot, ...]
    changes: tuple[Change, ...]
    undo: Change | None


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A problem that a check found, and where."""

    severity: Severity
    what: str
    session_id: str | None = None
    position: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """The result of `verify`: what was checked, and what was found."""

    sessions: int
    entries: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no errors; warnings are allowed."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairAction:
    """One action of a repair, done or planned."""

    session_id: str
    what: str
    positions: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairReport:
    """The actions of a repair, done or planned."""

    actions: tuple[RepairAction, ...]
    dry_run: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferReport:
    """The result of an export or an import.

    `damaged` counts the entries that cannot be read; their bytes are transferred as they are.
    `skipped` lists sessions that an import would refuse: damaged ones, and those that exceed its
    limits. All others were exported.
    """

    sessions: int
    entries: int
    snapshots: int
    damaged: int = 0
    skipped: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyReport:
    """The result of a copy, done or planned.

    `equal` counts sessions that were in the target already; `differ` lists those that were there
    with other content, which were not changed. `changed` lists those that changed in the source
    after they were copied. `expired` sessions are not copied.
    """

    sessions: int
    entries: int
    snapshots: int
    equal: int
    expired: int
    differ: tuple[str, ...]
    changed: tuple[str, ...]
    findings: tuple[Finding, ...]
    dry_run: bool

    @property
    def ok(self) -> bool:
        """Whether all requested sessions are in the target, equal; warnings are allowed."""
        wrong = any(finding.severity is Severity.ERROR for finding in self.findings)
        return not (wrong or self.differ or self.changed)


@dataclass(frozen=True, kw_only=True, slots=True)
class VacuumReport:
    """What a vacuum deleted, or would delete."""

    sessions: int
    entries: int
    bytes: int
    journal_lines: int
    dry_run: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ReindexReport:
    """How many entries were added to the index of words, and how many are damaged."""

    entries: int
    damaged: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ForgetReceipt:
    """What was erased of a session, and where its bytes may still be.

    `pending` says that calling `forget` again later can clear some of the places in `left`; the
    others are files that a server rewrites by itself. `forks` are sessions that were copied from
    this one; they were not erased.
    """

    session_id: str
    entries: int
    snapshots: int
    bytes: int
    forks: tuple[str, ...]
    pending: bool
    left: tuple[str, ...]


class Gravity(StrEnum):
    """The severity of a risk: `danger` means that acknowledged data can be lost."""

    DANGER = "danger"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class Risk:
    """What the engine can lose as it runs now, in which event, and what to change."""

    severity: Gravity
    subject: str
    risk: str
    remedy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Claims:
    """What this store promises on the engine as it is configured right now."""

    engine: str
    engine_version: str
    durability: Durability
    multi_process: bool
    ttl_clock: str
    simulated: bool = False
    entry_bytes_max: int
    batch_entries_max: int
    warnings: tuple[str, ...] = ()


def parse_covers(covers: range | Iterable[int] | Iterable[tuple[int, int]] | None) -> Extents:
    """Parse positions, a range, or `(start, stop)` pairs."""
    if covers is None:
        return ()
    # A range may have more positions than fit into memory; do not iterate over it.
    if isinstance(covers, range) and covers.step == 1:
        covers = [(covers.start, covers.stop)]
    try:
        items = list(covers)
        if all(isinstance(item, tuple) for item in items):
            pairs = cast(list[tuple[int, int]], items)
            extents = normalize((index(start), index(stop)) for start, stop in pairs)
        else:
            extents = from_positions(map(index, items))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UsageError(f"not positions that a summary covers: {covers!r}") from None
    if extents and extents[0][0] < 0:
        raise UsageError(f"positions begin at 0: {covers!r}")
    return extents
