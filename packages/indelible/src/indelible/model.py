"""The values that people hand in and get back. All are frozen; none knows how it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from operator import index
from typing import Annotated, Final, NamedTuple, Protocol, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, Strict

from indelible.errors import UsageError
from indelible.view import Extents, from_positions, normalize


class Never:
    """The type of `NEVER`: a session that has no time to live."""

    def __repr__(self) -> str:
        return "NEVER"

    def __reduce__(self) -> str:
        return "NEVER"


NEVER: Final = Never()


class Status(StrEnum):
    """Whether a session is a stranger, a running conversation, or a known one that ran out."""

    NEW = "new"
    ACTIVE = "active"
    EXPIRED = "expired"


class Durability(StrEnum):
    """What an acknowledged append survives, from least to most."""

    NONE = "none"
    PROCESS = "process"
    POWER = "power"
    REPLICATED = "replicated"

    def covers(self, other: Durability) -> bool:
        """Whether this level promises at least what `other` does."""
        order = list(Durability)
        return order.index(self) >= order.index(other)


class Kind(StrEnum):
    """What an entry of the log is."""

    MESSAGE = "message"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    SUMMARY = "summary"


# Text is text, not bytes that happen to decode: what is stored is what was given.
Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]


class Payload(BaseModel):
    """What an entry holds. Fields that this version does not know are kept and written back."""

    model_config = ConfigDict(frozen=True, extra="allow", ser_json_inf_nan="constants")
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)


class ChatMessage(Payload):
    """One message of a conversation: text or content blocks, and the tool fields models use."""

    role: Text = Field(min_length=1, max_length=64)
    content: Text | list[dict[str, JsonValue]] | None = None
    name: Text | None = None
    pinned: Flag = False
    tool_calls: list[dict[str, JsonValue]] | None = None
    tool_call_id: Text | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class ToolCall(Payload):
    """A tool was called: the call's id, the tool's name and its arguments."""

    call_id: Text = Field(min_length=1)
    name: Text
    arguments: JsonValue = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class ToolResult(Payload):
    """What a tool answered to the call of the same id."""

    call_id: Text = Field(min_length=1)
    content: JsonValue = None
    is_error: Flag = False
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class Summary(Payload):
    """A text that sums up the positions in `covers`, with the vector that finds it again."""

    text: Text
    vector: tuple[float, ...] | None = None
    embedder: Text | None = None
    covers: Extents = ()
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


Value = ChatMessage | ToolCall | ToolResult | Summary
KIND_OF: Final[dict[type, Kind]] = {
    ChatMessage: Kind.MESSAGE,
    ToolCall: Kind.TOOL_CALL,
    ToolResult: Kind.TOOL_RESULT,
    Summary: Kind.SUMMARY,
}


class Embedder(Protocol):
    """Turns text into a vector. Vectors of differently named embedders are never compared."""

    @property
    def name(self) -> str:
        """The name that its vectors are filed under, such as "all-minilm-l6-v2"."""
        ...

    def embed(self, text: str) -> Sequence[float]:
        """The vector of one text."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a session's log: where it stands, what it is, and when it was written."""

    position: int
    kind: Kind
    value: Value
    written_at: datetime


@dataclass(frozen=True, slots=True)
class CorruptEntry:
    """A stored entry that cannot be read: where it stands, why, and its bytes as they are."""

    position: int
    reason: str
    raw: bytes


Item = TypeVar("Item")


class ReadList(list[Item]):
    """What a read gives: a plain list that also knows which state of the session it is."""

    def __init__(
        self,
        items: Iterable[Item],
        *,
        version: str,
        status: Status,
        corrupt: tuple[CorruptEntry, ...] = (),
        cursor: str | None = None,
    ) -> None:
        super().__init__(items)
        #: Hand it to `expected=` to append only if nobody moved the session since.
        self.version = version
        #: `new`, `active` or `expired`: the empty list of a stranger, or of a known user.
        self.status = status
        #: What could not be read, when the read was asked to quarantine it.
        self.corrupt = corrupt
        #: Where the next page begins, in the very state that the first page saw; None at the end.
        self.cursor = cursor


class History(ReadList[ChatMessage]):
    """Messages in order."""


class Entries(ReadList[Entry]):
    """A page of entries in order."""


class SessionIds(list[str]):
    """A page of session ids; `cursor` opens the next page, and is None on the last."""

    def __init__(self, ids: Iterable[str], cursor: str | None) -> None:
        super().__init__(ids)
        self.cursor = cursor


class Receipt(NamedTuple):
    """The proof of an append: where its entries stand, and the version of the session with them.

    `replayed` says that an earlier attempt with the same key had landed. `visible` is False if
    entries of it were hidden since: only with `replay="hidden-ok"`, or when the reply to this
    call's own first attempt was lost and somebody hid its entries before the store asked again.
    """

    session_id: str
    positions: range
    key: str
    version: str
    replayed: bool = False
    visible: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewChange:
    """What a change of the view did: which positions no longer show, and which do again."""

    session_id: str
    change: str
    key: str | None
    version: str
    dropped: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A state of a session, written down: a few bytes, whatever the length of the history."""

    id: str
    session_id: str
    label: str | None
    taken_at: datetime
    extents: Extents = field(repr=False)
    entries: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotDiff:
    """What two states of a session do not share."""

    removed: tuple[Entry, ...]
    added: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionInfo:
    """What a session is right now, without its contents."""

    session_id: str
    status: Status
    version: str
    entries: int
    logged: int
    snapshots: int
    created_at: datetime | None
    expires_at: datetime | None
    ttl_s: float | None
    metadata: dict[str, JsonValue]
    forked_from: str | None


class CallStatus(StrEnum):
    """How a tool call stands."""

    DONE = "done"
    FAILED = "failed"
    DANGLING = "dangling"
    ORPHAN = "orphan"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallRecord:
    """A tool call joined with its result by call id, wherever the two stand.

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
    """A summary and the position that it stands at."""

    position: int
    summary: Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class SummaryMatch:
    """A summary that a search found, and its cosine similarity to the query."""

    position: int
    score: float
    summary: Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineEntry:
    """An entry of the log, whether the session shows it or not."""

    entry: Entry | CorruptEntry
    visible: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A trim, hide, clear, rollback or undo in a session's past."""

    change: str
    at: datetime
    key: str
    undone: bool
    dropped: tuple[int, ...]
    restored: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """All that a session's life holds: what shows, what does not, and how that came to be.

    `changes` come newest first; `undo` is the one that `undo()` would take back.
    """

    info: SessionInfo
    entries: tuple[TimelineEntry, ...]
    snapshots: tuple[Snapshot, ...]
    changes: tuple[Change, ...]
    undo: Change | None


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something that a check found: where, and what is wrong there."""

    severity: Severity
    what: str
    session_id: str | None = None
    position: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """What a check looked at, and what it found. A check changes nothing."""

    sessions: int
    entries: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no error was found; warnings are allowed."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairAction:
    """One thing that a repair did, or would do."""

    session_id: str
    what: str
    positions: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairReport:
    """All that a repair did, or would do."""

    actions: tuple[RepairAction, ...]
    dry_run: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferReport:
    """What an export wrote, or an import read.

    `skipped` names sessions that are too damaged to be exported; all others were.
    """

    sessions: int
    entries: int
    snapshots: int
    skipped: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyReport:
    """What a copy brought into its target, or would bring, and what it left as it is.

    `equal` sessions were there already, and `differ` names those that were there with something
    else. `changed` names those that went on in the source after they were copied. `expired` ones
    are over, and not copied.
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
        """Whether all that was asked for is in the target, equal; warnings are allowed."""
        wrong = any(finding.severity is Severity.ERROR for finding in self.findings)
        return not (wrong or self.differ or self.changed)


@dataclass(frozen=True, kw_only=True, slots=True)
class VacuumReport:
    """What a vacuum removed, or would remove: nothing that anyone could still have reached."""

    sessions: int
    entries: int
    bytes: int
    journal_lines: int
    dry_run: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ForgetReceipt:
    """What was erased of a session, and where its bytes may still be.

    `pending` says that another `forget` can clear some of the places in `left` later; the others
    are files of a server, which rewrites them in its own time. `forks` are the sessions that were
    copied from this one: they are sessions of their own, and stay.
    """

    session_id: str
    entries: int
    snapshots: int
    bytes: int
    forks: tuple[str, ...]
    pending: bool
    left: tuple[str, ...]


class Gravity(StrEnum):
    """How much is at stake: `danger` may lose what was acknowledged, `note` is good to know."""

    DANGER = "danger"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class Risk:
    """What a store may lose on its engine as it runs now, in which event, and what to change."""

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
    """Positions, a range, or `(start, stop)` pairs, as extents."""
    if covers is None:
        return ()
    # A range may be longer than memory; every other iterable names its positions one by one.
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
