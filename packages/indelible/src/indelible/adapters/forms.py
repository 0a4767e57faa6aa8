"""Stores a framework's message as a `ChatMessage`: common fields, and its exact form beside them.

    ChatMessage(role="assistant", content="Hello", langchain={"form": {…}, "shared": {…}})

`shared` names the parts of the form that equal a field of the message and are stored only there.
Together they restore the framework's message, field by field.

A framework reads messages of another one as `MessageParts`, which holds what they have in common:

|               | text            | calls: arguments  | results              | time      |
|---------------|-----------------|-------------------|----------------------|-----------|
| ours          | content, blocks | tool_calls: both  | role tool, block     | append    |
| LangChain     | content         | tool_calls: dict  | ToolMessage          |           |
| OpenAI Agents | output_text, …  | function_call: text | function_call_output |         |
| Claude Agent  | text blocks     | tool_use: dict    | tool_result          | timestamp |
| LlamaIndex    | TextBlock       | beside it: text   | role tool            |           |
| pydantic-ai   | parts           | ToolCallPart: both | ToolReturnPart      | timestamp |

Calls are stored as `{"id": …, "name": …, "arguments": …}`, with the arguments as an object if they
are one; LangChain's list, which has them under `args`, is stored unchanged. A result without the
name of its tool gets the name from its call.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from indelible import ChatMessage, UsageError
from indelible.core.codec import describe_invalid
from indelible.core.content import (
    get_block_kind,
    get_block_text,
    get_content_text,
    parse_arguments,
    to_common_role,
)
from indelible.core.limits import ROLE_CHARS_MAX
from indelible.core.tool_calls import FoundCall, find_answers_given, find_calls_made

FORM: Final = "form"
SHARED: Final = "shared"


def keep_form(
    framework: str,
    form: Mapping[str, Any],
    understood: Mapping[str, Any],
    **beside: Any,
) -> ChatMessage:
    """Build the message that holds a form. Fields in `understood` that are None are left out."""
    fields = {name: value for name, value in understood.items() if value is not None}
    shared = {
        part: name
        for part, value in form.items()
        for name, field in fields.items()
        # Compared by identity, so that restored values have the same types.
        if field is value and isinstance(value, str | list)
    }
    rest = {part: value for part, value in form.items() if part not in shared}
    try:
        return ChatMessage(**fields, **{framework: {FORM: rest, SHARED: shared, **beside}})
    except ValidationError as error:
        where, why, _ = describe_invalid(error)
        raise UsageError(
            f"a message of {framework} cannot be stored: {where}: {why}. Nothing was written",
            value=form,
        ) from None


@contextmanager
def refuse_invalid(framework: str) -> Iterator[None]:
    """Refuse a message that its framework cannot serialize, or could not read back."""
    try:
        yield
    except ValueError as error:
        raise UsageError(
            f"a message of {framework} cannot be stored: {error}. Nothing was written"
        ) from error


def get_form(framework: str, message: ChatMessage) -> dict[str, Any] | None:
    """Return the framework's form of a message; None if something else wrote it."""
    stored = get_extra(framework, message)
    if stored is None:
        return None
    shared = {part: getattr(message, name) for part, name in stored[SHARED].items()}
    return {**shared, **stored[FORM]}


def get_extra(framework: str, message: ChatMessage) -> dict[str, Any] | None:
    """Return all that a framework's adapter stored with a message."""
    stored: Any = (message.__pydantic_extra__ or {}).get(framework)
    return stored if isinstance(stored, dict) and FORM in stored and SHARED in stored else None


def to_role(role: Any, otherwise: str) -> str:
    """Return the role if a message can have it, else another one."""
    fits = isinstance(role, str) and 0 < len(role) <= ROLE_CHARS_MAX
    return role if fits else otherwise


def to_content(content: Any) -> Any:
    """Convert text or blocks to content; None for anything else. Text in a list becomes a block."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, str | dict) for part in content):
        return None
    if any(isinstance(part, str) for part in content):
        return [
            {"type": "text", "text": part} if isinstance(part, str) else part for part in content
        ]
    return content


def to_text_or_none(value: Any) -> str | None:
    """Return the value if it is text, else None."""
    return value if isinstance(value, str) else None


def get_text(message: ChatMessage) -> str:
    """Return the text of a message."""
    return get_content_text(message.content) or ""


class StoredResult(NamedTuple):
    """A tool result; the name of the tool is empty if it is unknown."""

    call_id: str
    name: str
    content: Any
    is_error: bool

    @property
    def text(self) -> str:
        """The answer as text: blocks as their text, other values as JSON."""
        if isinstance(self.content, list) and all(isinstance(b, dict) for b in self.content):
            text = get_content_text(self.content)
            if text is not None:
                return text
        if isinstance(self.content, str):
            return self.content
        return "" if self.content is None else json.dumps(self.content, ensure_ascii=False)


class MessageParts(NamedTuple):
    """The parts of a message that all frameworks have in common.

    `said` holds blocks: text as `{"type": "text", "text": …}`, others (images) as they are.
    Thinking is left out: only the model that wrote it can use it.
    """

    role: str
    name: str | None
    said: list[dict[str, Any]]
    calls: list[FoundCall]
    results: list[StoredResult]
    at: datetime | None

    @property
    def text(self) -> str:
        """The text of all blocks."""
        return get_content_text(self.said) or ""

    @property
    def content(self) -> str | list[dict[str, Any]]:
        """Text if there is nothing else, or blocks."""
        texts = all(block.get("type") == "text" for block in self.said)
        return self.text if texts else self.said

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing for another framework, such as thinking only."""
        return not (self.said or self.calls or self.results)


NOTHING: Final = MessageParts("", None, [], [], [], None)


def parse_parts(messages: Iterable[ChatMessage]) -> list[MessageParts]:
    """Parse messages of any framework. Results get the names of the calls before them."""
    names: dict[str, str] = {}
    found = []
    for message in messages:
        calls = {call.id: call for call in find_calls_made(message)}
        results = []
        for call_id, content, is_error in find_answers_given(message):
            name = _find_result_name(message, call_id) or names.get(call_id, "")
            results.append(StoredResult(call_id, name, content, is_error))
        names.update((call.id, call.name) for call in calls.values())
        role = to_common_role(message.role)
        said = (
            []
            if message.tool_call_id is not None and role == "tool"
            else _find_spoken_blocks(message, calls)
        )
        called = list(calls.values())
        found.append(MessageParts(role, message.name, said, called, results, get_time(message)))
    return found


def read_forms(
    framework: str, messages: Sequence[ChatMessage]
) -> list[tuple[dict[str, Any] | None, MessageParts]]:
    """Return the form of each message, or None and its parts if something else wrote it."""
    forms = [get_form(framework, message) for message in messages]
    if None not in forms:
        return [(form, NOTHING) for form in forms]
    return list(zip(forms, parse_parts(messages), strict=True))


def _find_spoken_blocks(message: ChatMessage, calls: Collection[str]) -> list[dict[str, Any]]:
    content = message.content
    if isinstance(content, str):
        # Models that call a tool often write empty text beside it.
        return [] if not content and calls else [{"type": "text", "text": content}]
    said: list[dict[str, Any]] = []
    for block in content or ():
        kind = get_block_kind(block)
        if kind == "text":
            said.append({"type": "text", "text": get_block_text(block) or ""})
        elif kind == "other":
            said.append(dict(block))
    return said


def _find_result_name(message: ChatMessage, call_id: str) -> str | None:
    if message.tool_call_id == call_id:
        return message.name
    for block in message.content if isinstance(message.content, list) else ():
        if block.get("tool_use_id") == call_id:
            return to_text_or_none(block.get("name"))
    return None


def get_time(message: ChatMessage) -> datetime | None:
    """Return when a message was created, if its framework stored that."""
    claude, pydantic = get_extra("claude_agent", message), get_extra("pydantic_ai", message)
    if claude is not None:
        return _parse_time((claude.get("entry") or {}).get("timestamp"))
    if pydantic is None:
        return None
    form = pydantic[FORM]
    parts = [part for part in form.get("parts") or () if isinstance(part, dict)]
    times = (_parse_time(each.get("timestamp")) for each in (form, *parts))
    return next((time for time in times if time is not None), None)


def _parse_time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


def build_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """Build a tool call as messages store it: `{"id": …, "name": …, "arguments": …}`."""
    return {"id": call_id, "name": name, "arguments": parse_arguments(arguments)}
