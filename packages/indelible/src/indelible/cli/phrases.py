"""How stored values are put into words, safely: what an agent stored may be anything at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from indelible.core.content import get_block_kind, get_block_text
from indelible.model import (
    ChatMessage,
    CorruptEntry,
    Entry,
    Summary,
    ToolCall,
    ToolResult,
    Value,
)
from indelible.printable import escape_unseen, escape_unseen_in_lines
from indelible.view import Extents, from_positions

# One line of a drawing; the drawing itself cuts it to the terminal's width.
LINE_CHARS_MAX = 400

# How far the lines of a message stand in: what begins at the margin, a command says itself.
INDENT = "    "


def safe(text: str) -> str:
    """Text with its lines; a stored message must not act on the terminal of who reads it."""
    return escape_unseen_in_lines(text)


def visible(text: str) -> str:
    """A name or an id, whole, on one line."""
    return escape_unseen(text)


def one_line(text: str) -> str:
    """Text as one line of limited length, with control characters made visible."""
    # Split only as much as can show: a stored text may have megabytes.
    line = visible(" ".join(text[: 4 * LINE_CHARS_MAX].split()))
    return line if len(line) <= LINE_CHARS_MAX else line[: LINE_CHARS_MAX - 1] + "…"


def content_text(content: Any) -> str:
    """What a message or a tool said, as text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(block, Mapping) for block in content):
        return "\n".join(_block_text(block) for block in content)
    return compact(content)


def _block_text(block: Mapping[str, Any]) -> str:
    kind, words = get_block_kind(block), get_block_text(block)
    if words is not None:
        return words if kind == "text" else f"thinks: {words}"
    if kind == "call":
        name = block.get("name", block.get("tool_name"))
        given = block.get("input", block.get("args", block.get("tool_kwargs")))
        return f"calls {name} {content_text(given)}".rstrip()
    if kind == "result":
        return content_text(block.get("content"))
    return compact(block)


def compact(value: Any) -> str:
    """JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def said(value: Value) -> str:
    """A speaker, and what was said: no line of it can be taken for another speaker."""
    text = safe(f"{who(value)}: {what(value)}".rstrip())
    return text.replace("\n", f"\n{INDENT}")


def message_text(message: ChatMessage) -> str:
    """A message with the tool calls that it makes."""
    calls = [_call_text(call) for call in message.tool_calls or ()]
    content = message.content
    if calls and isinstance(content, list):
        # LlamaIndex and LangChain have the calls in the blocks as well.
        content = [block for block in content if get_block_kind(block) != "call"]
    return "\n".join(part for part in (content_text(content), *calls) if part)


def _call_text(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    named: Mapping[str, Any] = function if isinstance(function, Mapping) else call
    arguments = named.get("arguments", named.get("args"))
    return f"calls {named.get('name')} {content_text(arguments)}".rstrip()


def who(value: Value) -> str:
    """The role of a message, or what else an entry is."""
    if isinstance(value, ChatMessage):
        role = one_line(value.role)
        # A colon in a role would look like the end of it.
        return compact(role) if ":" in role else role
    if isinstance(value, ToolCall):
        return "tool call"
    return "tool result" if isinstance(value, ToolResult) else "summary"


def what(value: Value) -> str:
    """The contents of an entry."""
    if isinstance(value, ChatMessage):
        return message_text(value)
    if isinstance(value, ToolCall):
        return f"{value.name} {content_text(value.arguments)}".rstrip()
    return value.text if isinstance(value, Summary) else content_text(value.content)


def entry_line(entry: Entry | CorruptEntry) -> str:
    """An entry in one line."""
    if isinstance(entry, CorruptEntry):
        return f"{entry.position} unreadable: {entry.reason}"
    return f"{entry.position} {who(entry.value)}: {one_line(what(entry.value))}"


def at(moment: datetime) -> str:
    """A time, in UTC, to the second."""
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """1 entry, 2 entries."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {plural or noun + 's'}"


def entries(number: int) -> str:
    """1 entry, 2 entries."""
    return counted(number, "entry", "entries")


def spans(positions: Iterable[int]) -> str:
    """Positions in short: 1-4, 7, 9-12."""
    return extents_text(from_positions(positions))


def extents_text(extents: Extents) -> str:
    """Extents in short, each from its first position to its last."""
    return ", ".join(
        f"{start}-{stop - 1}" if stop - start > 1 else f"{start}" for start, stop in extents
    )
