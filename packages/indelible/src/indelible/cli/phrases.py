"""Formats stored values for a terminal. Stored text may contain anything, so it is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from indelible.core.content import get_block_kind, get_block_text
from indelible.core.tool_calls import parse_call
from indelible.model import (
    KIND_OF,
    ChatMessage,
    CopyReport,
    CorruptEntry,
    Entry,
    StoredCheckpoint,
    StoredMemory,
    StoredValue,
    Summary,
    ToolCall,
    TransferReport,
    Value,
)
from indelible.printable import escape_unseen, escape_unseen_in_lines
from indelible.view import Extents, from_positions

# The longest line that is formatted; drawing cuts it to the width of the terminal.
LINE_CHARS_MAX = 400

# Continuation lines of a message are indented: only output of the command begins at the margin.
INDENT = "    "


def format_line(text: str) -> str:
    """Format text as one line of limited length, with control characters escaped."""
    # Process only what fits: a stored text may have megabytes.
    line = escape_unseen(" ".join(text[: 4 * LINE_CHARS_MAX].split()))
    return line if len(line) <= LINE_CHARS_MAX else line[: LINE_CHARS_MAX - 1] + "…"


def format_content(content: Any) -> str:
    """Format the content of a message or of a tool result."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(block, Mapping) for block in content):
        return "\n".join(_format_block(block) for block in content)
    return format_compact_json(content)


def _format_block(block: Mapping[str, Any]) -> str:
    kind, words = get_block_kind(block), get_block_text(block)
    if words is not None:
        return words if kind == "text" else f"thinks: {words}"
    if kind == "call":
        return _format_call(block)
    if kind == "result":
        return format_content(block.get("content"))
    return format_compact_json(block)


def format_compact_json(value: Any) -> str:
    """Format a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def format_turn(value: Value) -> str:
    """Format a value with its author. No line of the content can be mistaken for another author."""
    text = escape_unseen_in_lines(f"{format_author(value)}: {format_value(value)}".rstrip())
    return text.replace("\n", f"\n{INDENT}")


def format_message(message: ChatMessage) -> str:
    """Format a message with its tool calls."""
    calls = [_format_call(call) for call in message.tool_calls or ()]
    content = message.content
    if calls and isinstance(content, list):
        # LlamaIndex and LangChain repeat the calls in the blocks.
        content = [block for block in content if get_block_kind(block) != "call"]
    return "\n".join(part for part in (format_content(content), *calls) if part)


def _format_call(call: Mapping[str, Any]) -> str:
    _, name, arguments = parse_call(call)
    return " ".join(part for part in ("calls", name, format_content(arguments)) if part)


def format_author(value: Value) -> str:
    """Return the role of a message, or the kind of any other entry."""
    if isinstance(value, ChatMessage):
        role = format_line(value.role)
        # A colon in a role would look like the end of the role.
        return format_compact_json(role) if ":" in role else role
    return KIND_OF[type(value)].replace("_", " ")


def format_value(value: Value) -> str:
    """Format the content of an entry."""
    if isinstance(value, ChatMessage):
        return format_message(value)
    if isinstance(value, ToolCall):
        return f"{value.name} {format_content(value.arguments)}".rstrip()
    if isinstance(value, StoredMemory):
        return format_memory(value)
    if isinstance(value, StoredValue):
        return f"{value.type}, {len(value.data)} characters in base 64"
    if isinstance(value, StoredCheckpoint):
        from indelible.adapters.checkpoint_records import describe_record  # noqa: PLC0415 (seldom)

        return describe_record(value)
    return value.text if isinstance(value, Summary) else format_content(value.content)


def format_memory(value: StoredMemory) -> str:
    """Format a version of a memory."""
    if value.retracted or not value.id:
        return f"{value.id} retracted" if value.id else "erased"
    content = format_content(value.value) if value.text is None else value.text
    return f"{value.id}: {content}"


def format_entry(entry: Entry | CorruptEntry) -> str:
    """Format an entry as one line."""
    if isinstance(entry, CorruptEntry):
        return f"{entry.position} unreadable: {entry.reason}"
    return (
        f"{entry.position} {format_author(entry.value)}: {format_line(format_value(entry.value))}"
    )


def format_time(moment: datetime) -> str:
    """Format a time in UTC, to the second."""
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def format_count(number: int, noun: str) -> str:
    """Format a number of things: 1 entry, 2 entries, 3 sessions."""
    plural = noun.removesuffix("y") + "ies" if noun.endswith("y") else noun + "s"
    return f"{number} {noun if number == 1 else plural}"


def format_totals(report: TransferReport | CopyReport) -> str:
    """Format the totals of a transfer: 2 sessions, 7 entries and 1 snapshot."""
    sessions = format_count(report.sessions, "session")
    snapshots = format_count(report.snapshots, "snapshot")
    return f"{sessions}, {format_count(report.entries, 'entry')} and {snapshots}"


def format_positions(positions: Iterable[int]) -> str:
    """Format positions as ranges: 1-4, 7, 9-12."""
    return format_extents(from_positions(positions))


def format_extents(extents: Extents) -> str:
    """Format extents as ranges, each from its first position to its last."""
    return ", ".join(
        f"{start}-{stop - 1}" if stop - start > 1 else f"{start}" for start, stop in extents
    )
