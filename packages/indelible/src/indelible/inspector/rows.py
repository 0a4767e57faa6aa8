"""Entries as rows of a page: their parts, and tool calls joined with their results.

Everything here is computed from values of the public API; templates escape all of it.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from indelible.adapters.checkpoint_records import BranchFinder, RecordSummary, summarize_record
from indelible.core.content import KNOWN_ROLES, get_block_kind, get_block_text, to_common_role
from indelible.core.tool_calls import OpenCalls, find_answers_given, find_calls_made
from indelible.model import (
    KIND_OF,
    Change,
    ChatMessage,
    CorruptEntry,
    Snapshot,
    Source,
    StoredCheckpoint,
    StoredMemory,
    StoredValue,
    Summary,
    TimelineEntry,
    ToolCall,
    ToolResult,
    Value,
)
from indelible.view import Extents, contains, subtract

# The longest text in a timeline; the page of an entry shows more.
TEXT_CHARS_MAX: Final = 4_000
# A longer JSON value is written in several lines.
LINE_CHARS_MAX: Final = 80
# A longer one is not: if it is deep, its indentation could take a hundred times its size.
INDENTED_CHARS_MAX: Final = 100_000
# Shorter runs of characters are bytes of a format, not words.
WORD_CHARS_MIN: Final = 4
_NO_WORDS: Final = re.compile("[\x00-\x1f\x7f\ufffd]+")
# Lengths of texts in MessagePack, which may look like a letter. No UTF-8 has these bytes.
_LENGTHS: Final = re.compile(rb"[\xc7\xd9][\x00-\x7f]|[\xc8\xda][\x00-\x7f].", re.DOTALL)
REDACTED: Final = "redacted"

# Roles with a colour of their own.
_TONES: Final = ("user", "assistant")


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownText:
    """A text, or a value as JSON, cut to the limit of a page."""

    text: str
    cut: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerCard:
    """The result of a tool call."""

    position: int
    content: ShownText
    failed: bool
    visible: bool
    written_at: datetime


@dataclass(kw_only=True, slots=True)
class CallCard:
    """A tool call; `answer` is None if it has no result up to the position `read_to`."""

    call_id: str
    name: str
    arguments: ShownText | None
    answer: AnswerCard | None = None
    read_to: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueCard:
    """A value of a checkpointed thread.

    It is not deserialized, which would run code; `text` has the words that its bytes contain.
    """

    position: int
    type: str
    bytes: int
    text: ShownText | None = None


@dataclass(kw_only=True, slots=True)
class StepCard:
    """A step of a checkpointed thread, with the values that were stored for it."""

    summary: RecordSummary
    is_branch: bool = False
    # Where the checkpoint is that it continues, if that was read.
    parent_at: int | None = None
    values: list[ValueCard] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class PageRow:
    """An entry, or a snapshot between entries, as a page shows it."""

    position: int
    author: str
    tone: str
    visible: bool = True
    written_at: datetime | None = None
    day: str = ""
    texts: list[ShownText] = field(default_factory=list)
    thoughts: list[ShownText] = field(default_factory=list)
    data: list[ShownText] = field(default_factory=list)
    calls: list[CallCard] = field(default_factory=list)
    # The positions of calls that it answers and that are not on this page; None for unknown ones.
    answers: list[int | None] = field(default_factory=list)
    failed: bool = False
    pinned: bool = False
    name: str = ""
    metadata: ShownText | None = None
    covers: Extents = ()
    memory_id: str = ""
    source: Source | None = None
    hidden_by: Change | None = None
    # Whether the row above was hidden by the same change, which then says so for both.
    is_run: bool = False
    step: StepCard | None = None
    value: ValueCard | None = None
    snapshot: Snapshot | None = None
    # In a comparison: + if the entry was added, - if it was removed.
    sign: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextWriter:
    """Turns values into texts for a page. With `redact`, their content is left out."""

    chars_max: int = TEXT_CHARS_MAX
    redact: bool = False

    def write(self, value: Any) -> ShownText:
        """Return a text, or any other value as JSON."""
        text = value if isinstance(value, str) else _format_json(value)
        if self.redact:
            return ShownText(text=f"{REDACTED}, {len(text):,} characters")
        return ShownText(text=text[: self.chars_max], cut=max(0, len(text) - self.chars_max))

    def name(self, name: str) -> str:
        """Return a name from the content of an entry."""
        return REDACTED if self.redact and name else name

    def role(self, role: str) -> str:
        """Return the role of a message; unusual roles may reveal content."""
        return role if role in KNOWN_ROLES else self.name(role)


def _format_json(value: Any) -> str:
    """Format a value as JSON, in several lines unless it is short, or too long to indent."""
    line = json.dumps(value, ensure_ascii=False)
    if LINE_CHARS_MAX < len(line) <= INDENTED_CHARS_MAX:
        return json.dumps(value, ensure_ascii=False, indent=2)
    return line


def build_rows(
    entries: Sequence[TimelineEntry],
    *,
    first: int = 0,
    end: int | None = None,
    begin: int | None = None,
    changes: Sequence[Change] = (),
    snapshots: Iterable[Snapshot] = (),
    writer: TextWriter | None = None,
) -> list[PageRow]:
    """Build the rows of the entries in `[first, end)`; entries around them complete their calls.

    An entry that has only results of calls on this page is shown with these calls. The page
    begins at `first`, or at `begin` if it has earlier rows.
    """
    writer = writer or TextWriter()
    hidden = [(each, subtract(each.before, each.after)) for each in changes]
    rows: dict[int, PageRow] = {}
    for each in entries:
        rows[each.entry.position] = _build_row(each, writer)
        if not each.visible:
            rows[each.entry.position].hidden_by = _find_hiding(hidden, each.entry.position)
    joined = _join_calls(entries, rows, first if begin is None else begin, writer)
    joined |= _join_values(entries, rows)
    stop = math.inf if end is None else end
    inside = (
        row for position, row in rows.items() if first <= position < stop and position not in joined
    )
    return list(_mark_runs(_add_snapshots(inside, snapshots, first, stop)))


def _build_row(item: TimelineEntry, writer: TextWriter) -> PageRow:
    entry = item.entry
    if isinstance(entry, CorruptEntry):
        reason = f"{entry.reason}; its {len(entry.raw)} bytes are kept"
        return PageRow(
            position=entry.position,
            author="unreadable",
            tone="damaged",
            visible=item.visible,
            texts=[writer.write(reason)],
        )
    value = entry.value
    if isinstance(value, ChatMessage):
        role = to_common_role(value.role)
        author, tone = writer.role(value.role), role if role in _TONES else "other"
    else:
        tone = KIND_OF[type(value)]
        author = tone.replace("_", " ")
    row = PageRow(
        position=entry.position,
        author=author,
        tone=tone,
        visible=item.visible,
        written_at=entry.written_at,
    )
    for call_id, name, arguments in find_calls_made(value):
        given = None if arguments in (None, {}) else writer.write(arguments)
        called = writer.name(name)
        row.calls.append(CallCard(call_id=call_id, name=called, arguments=given))
    _add_content(row, value, writer)
    if metadata := getattr(value, "metadata", None):
        row.metadata = writer.write(metadata)
    return row


def _add_content(row: PageRow, value: Value, writer: TextWriter) -> None:
    """Add the content of the value, without its calls."""
    match value:
        case ChatMessage():
            _add_message(row, value, writer)
        case ToolResult():
            row.failed = value.is_error
            row.texts.append(writer.write(value.content))
        case Summary():
            row.covers = value.covers
            row.texts.append(writer.write(value.text))
        case StoredMemory():
            _add_memory(row, value, writer)
        case StoredValue():
            row.value = _build_value(row.position, value, writer)
        case StoredCheckpoint():
            _add_step(row, value, writer)
        case ToolCall():
            pass


def _add_message(row: PageRow, message: ChatMessage, writer: TextWriter) -> None:
    row.pinned = message.pinned
    row.name = writer.name(message.name or "")
    if isinstance(message.content, str):
        row.texts.append(writer.write(message.content))
    for block in message.content if isinstance(message.content, list) else ():
        kind, words = get_block_kind(block), get_block_text(block)
        if kind == "result":
            row.texts.append(writer.write(_join_texts(block.get("content"))))
        elif kind != "call" and words is None:
            row.data.append(writer.write(block))
        elif words is not None:
            (row.thoughts if kind == "thinking" else row.texts).append(writer.write(words))


def _build_value(position: int, value: StoredValue, writer: TextWriter) -> ValueCard:
    try:
        data = base64.b64decode(value.data, validate=True)
    except ValueError:
        data = b""
    readable = _LENGTHS.sub(b"\0", data).decode("utf-8", "replace")
    words = (each.strip() for each in _NO_WORDS.split(readable))
    text = " · ".join(each for each in words if len(each) >= WORD_CHARS_MIN)
    return ValueCard(
        position=position,
        type=writer.name(value.type),
        bytes=len(data),
        text=writer.write(text) if text else None,
    )


def _add_step(row: PageRow, value: StoredCheckpoint, writer: TextWriter) -> None:
    summary = summarize_record(value)
    if not summary.name:
        row.data.append(writer.write(value.record))
        return
    if writer.redact:
        summary = RecordSummary(summary.kind, REDACTED)
    row.author = {"writes": "task", "pack": "packed"}.get(summary.kind, "checkpoint")
    row.step = StepCard(summary=summary)


def _add_memory(row: PageRow, memory: StoredMemory, writer: TextWriter) -> None:
    row.memory_id = writer.name(memory.id)
    row.source = None if writer.redact else memory.source
    if memory.retracted or not memory.id:
        row.texts.append(ShownText(text="retracted" if memory.id else "erased"))
    if memory.text is not None:
        row.texts.append(writer.write(memory.text))
    if memory.value is not None:
        row.data.append(writer.write(memory.value))


def _join_calls(
    entries: Sequence[TimelineEntry], rows: dict[int, PageRow], begin: int, writer: TextWriter
) -> set[int]:
    """Give calls their results; return the entries that are only shown with their calls."""
    waiting = OpenCalls()
    calls: list[tuple[int, CallCard]] = []
    joined = set()
    for item in entries:
        if isinstance(item.entry, CorruptEntry):
            continue
        position, value, row = item.entry.position, item.entry.value, rows[item.entry.position]
        answers = find_answers_given(value)
        apart = 0
        for call_id, content, failed in answers:
            number = waiting.take(call_id)
            asked, call = (None, None) if number is None else calls[number]
            if call is not None:
                call.answer = AnswerCard(
                    position=position,
                    content=writer.write(_join_texts(content)),
                    failed=failed,
                    visible=item.visible,
                    written_at=item.entry.written_at,
                )
            if asked is None or asked < begin:
                row.answers.append(asked)
                row.failed = row.failed or failed
                apart += 1
        if answers and not apart and not row.calls and _has_only_answers(value):
            joined.add(position)
        for call in row.calls:
            waiting.add(call.call_id, len(calls))
            call.read_to = entries[-1].entry.position
            calls.append((position, call))
    return joined


def _join_values(entries: Sequence[TimelineEntry], rows: dict[int, PageRow]) -> set[int]:
    """Give steps of a thread the values stored before them; return the positions of these."""
    branches = BranchFinder()
    places: dict[str, int] = {}
    joined: set[int] = set()
    values: list[ValueCard] = []
    for item in entries:
        row = rows[item.entry.position]
        value = None if isinstance(item.entry, CorruptEntry) else item.entry.value
        if isinstance(value, StoredCheckpoint) and row.step is not None:
            row.step.is_branch = branches.is_branch(value)
            row.step.parent_at = places.get(row.step.summary.parent or "")
            row.step.values = values
            places[row.step.summary.name] = row.position
            joined.update(each.position for each in values)
        values = [*values, row.value] if row.value is not None else []
    return joined


def _join_texts(content: Any) -> Any:
    """Return the text of content that consists of blocks of text; other content unchanged."""
    blocks = content if isinstance(content, list) else []
    texts = [get_block_text(each) if isinstance(each, dict) else None for each in blocks]
    found = [text for text in texts if text is not None]
    return "\n".join(found) if found and len(found) == len(blocks) else content


def _has_only_answers(value: Value) -> bool:
    if not isinstance(value, ChatMessage) or value.tool_call_id is not None:
        return True
    blocks = value.content if isinstance(value.content, list) else ()
    return all(get_block_kind(block) == "result" for block in blocks)


def _find_hiding(hidden: Iterable[tuple[Change, Extents]], position: int) -> Change | None:
    """Find the newest change that hid a position; changes come newest first."""
    for change, extents in hidden:
        if contains(extents, position, position + 1):
            return change
    return None


def _add_snapshots(
    rows: Iterable[PageRow], snapshots: Iterable[Snapshot], first: int, stop: float
) -> Iterator[PageRow]:
    """Insert a mark for each snapshot after the last entry that it holds."""
    marks = sorted(
        (
            PageRow(position=_find_last(each), author="snapshot", tone="snapshot", snapshot=each)
            for each in snapshots
        ),
        key=lambda mark: mark.position,
    )
    # An empty snapshot comes first.
    begin = -1 if first == 0 else first
    marks = [each for each in marks if begin <= each.position < stop]
    for row in rows:
        while marks and marks[0].position < row.position:
            yield marks.pop(0)
        yield row
    yield from marks


def _find_last(snapshot: Snapshot) -> int:
    return snapshot.extents[-1][1] - 1 if snapshot.extents else -1


def _mark_runs(rows: Iterable[PageRow]) -> Iterator[PageRow]:
    """Add the date to the first row of each day, and mark rows that one change hid together."""
    day = ""
    hidden_by: Change | None = None
    for row in rows:
        row.is_run = row.hidden_by is not None and row.hidden_by is hidden_by
        hidden_by = row.hidden_by
        if row.written_at is not None and f"{row.written_at:%Y-%m-%d}" != day:
            row.day = day = f"{row.written_at:%Y-%m-%d}"
        yield row


def show_as_of(entries: Iterable[TimelineEntry], extents: Extents) -> list[TimelineEntry]:
    """Return the entries with their visibility in another state."""
    return [
        TimelineEntry(
            entry=each.entry,
            visible=contains(extents, each.entry.position, each.entry.position + 1),
        )
        for each in entries
    ]
