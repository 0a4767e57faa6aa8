"""Messages in the forms of model providers: OpenAI's Chat Completions and Anthropic's Messages.

|              | OpenAI                                     | Anthropic                          |
|--------------|--------------------------------------------|------------------------------------|
| instructions | a message with role `system`, `developer`  | `system`, beside the messages      |
| tool call    | `tool_calls` of the assistant, JSON text   | a block `tool_use`, an object      |
| tool result  | a message with role `tool`                 | a block `tool_result` of the user  |
| image        | a part `image_url`, perhaps a data URL     | a block `image` with a source      |
| thinking     | none: it is left out                       | kept if Anthropic wrote it         |

The functions `to_…` write nothing but fields of the provider: no `pinned`, no `metadata`. Results
come directly behind their calls, wherever they are stored. What both providers refuse is left out:
messages without content, and results without a call. A block that the provider has no form for is a
`UsageError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from indelible.core.content import (
    get_block_kind,
    get_block_text,
    parse_arguments,
    to_common_role,
)
from indelible.core.tool_calls import FoundCall, find_answers_given, pair_calls, parse_call
from indelible.errors import UsageError
from indelible.model import ChatMessage, Summary, ToolCall, ToolResult, Value

JsonObject = dict[str, Any]

_INSTRUCTIONS: Final = frozenset({"system", "developer"})
# Fields of OpenAI's messages that a `ChatMessage` does not have, and stores unchanged.
_OPENAI_FIELDS: Final = ("refusal", "audio")
_OPENAI_PARTS: Final = frozenset({"image_url", "input_audio", "file"})
_ANTHROPIC_BLOCKS: Final = frozenset(
    {
        "text",
        "thinking",
        "redacted_thinking",
        "image",
        "document",
        "search_result",
        "tool_use",
        "tool_result",
    }
)


class _Result(NamedTuple):
    """The result of a tool call, and the number of the value that holds it."""

    call_id: str
    content: Any
    is_error: bool
    number: int


class _Message(NamedTuple):
    """A message, with its tool calls and results in one form."""

    # Which of the values it is, as errors name it.
    number: int
    role: str
    # Text or blocks as they are stored, including blocks of calls and results.
    content: str | list[JsonObject] | None
    # With arguments as they were stored: JSON text, an object, or None.
    calls: list[FoundCall]
    results: list[_Result]
    fields: JsonObject


def to_openai(values: Iterable[Value]) -> list[JsonObject]:
    """Convert messages to the form of Chat Completions; see `History.to_openai`."""
    found: list[JsonObject] = []
    for message in _order(_parse(values)):
        for result in message.results:
            text = _to_result_content(result, _to_openai_part)
            found.append({"role": "tool", "tool_call_id": result.call_id, "content": text})
        content = message.content
        if isinstance(content, list):
            parts = (_to_openai_part(block, message.number) for block in content)
            content = [part for part in parts if part is not None] or None
        body: JsonObject = {"role": message.role, "content": content, **message.fields}
        if message.calls:
            body["content"] = content or None
            body["tool_calls"] = [_to_openai_call(call) for call in message.calls]
        if body["content"] is not None or body.keys() - {"role", "content", "name"}:
            found.append(body)
    return found


def to_anthropic(values: Iterable[Value]) -> JsonObject:
    """Convert messages to arguments of `messages.create`; see `History.to_anthropic`."""
    system: list[str | list[JsonObject]] = []
    found: list[JsonObject] = []
    # The user message that collects the results of consecutive `tool` messages.
    answers: JsonObject | None = None
    for message in _order(_parse(values)):
        content = message.content
        if isinstance(content, list):
            converted = (_to_anthropic_block(block, message.number) for block in content)
            content = [block for block in converted if block is not None]
        if message.role in _INSTRUCTIONS:
            if content:
                system.append(content)
            continue
        if message.role == "tool":
            if answers is None:
                answers = {"role": "user", "content": []}
                found.append(answers)
            answers["content"] += map(_to_anthropic_result, message.results)
            continue
        answers = None
        if message.role not in ("user", "assistant"):
            raise UsageError(
                f"message {message.number} has the role {message.role!r}, which Anthropic does not"
                " have",
                value=message.role,
            )
        blocks = _to_blocks(content)
        there = {block["id"] for block in blocks if block.get("type") == "tool_use"}
        calls = [_to_anthropic_call(call) for call in message.calls if call.id not in there]
        if calls or content:
            found.append({"role": message.role, "content": [*blocks, *calls] if calls else content})
    if not system:
        return {"messages": found}
    whole = (
        system[0] if len(system) == 1 else [block for part in system for block in _to_blocks(part)]
    )
    return {"system": whole, "messages": found}


def from_openai(messages: Iterable[Any]) -> list[JsonObject]:
    """Convert messages of Chat Completions, as dicts or as objects of the SDK, for `add_messages`.

    All their fields are stored.
    """
    return [_to_dict(message) for message in _check_list(messages)]


def from_anthropic(
    messages: Iterable[Any] | Mapping[str, Any], system: Any = None
) -> list[JsonObject]:
    """Convert messages of Anthropic, as dicts or as objects of the SDK, for `add_messages`.

    `system` becomes the first message. Of a response only role and content are stored. A dict with
    `messages`, and perhaps `system`, as `to_anthropic` returns it, is converted as well.
    """
    if isinstance(messages, Mapping) and "messages" in messages:
        system = messages.get("system", system)
        messages = messages["messages"]
    given = [] if system is None else [{"role": "system", "content": _to_plain(system)}]
    given += map(_to_dict, _check_list(messages))
    return [{"role": one.get("role"), "content": one.get("content")} for one in given]


def _check_list(messages: Any) -> Iterable[Any]:
    """Return the messages, or raise if they are one message or no messages at all."""
    is_one = isinstance(messages, (str, bytes, Mapping)) or hasattr(messages, "model_dump")
    if is_one or not isinstance(messages, Iterable):
        raise UsageError(
            f"a list of messages is needed, not a {type(messages).__name__}", value=messages
        )
    return messages


def _parse(values: Iterable[Value]) -> list[_Message]:
    """Parse values. Calls and results that are entries of their own join the message before them.

    Summaries are left out.
    """
    found: list[_Message] = []
    for number, value in enumerate(values):
        if isinstance(value, Summary):
            continue
        message = _parse_value(number, value)
        before = found[-1] if found else None
        # A call or result may be stored twice: in a message, and as an entry of its own.
        if isinstance(value, ToolCall) and before is not None and before.role == "assistant":
            if value.call_id not in {call.id for call in before.calls}:
                before.calls.extend(message.calls)
        elif isinstance(value, ToolResult) and before is not None and before.role == "tool":
            if value.call_id not in {result.call_id for result in before.results}:
                before.results.extend(message.results)
        else:
            found.append(message)
    return found


def _order(messages: list[_Message]) -> Iterator[_Message]:
    """Move results directly behind their calls, and drop those without a call."""
    links = [
        ([call.id for call in message.calls], [result.call_id for result in message.results])
        for message in messages
    ]
    # The results that answer a message's calls, by the message that holds them.
    answers: dict[int, list[tuple[str, int]]] = {}
    for call_id, call, answer in pair_calls(links):
        if call is not None and answer is not None:
            answers.setdefault(call, []).append((call_id, answer))
    # By message, the calls whose results stay in it.
    in_place: dict[int, set[str]] = {}
    for index, message in enumerate(messages):
        kept = _keep_results(message, in_place.get(index, set()))
        if kept.role != "tool" or kept.results:
            yield kept
        behind = index + 1
        while behind < len(messages) and messages[behind].results:
            behind += 1
        moved = []
        for call_id, answer in answers.get(index, ()):
            if answer < behind:
                in_place.setdefault(answer, set()).add(call_id)
            else:
                moved += [one for one in messages[answer].results if one.call_id == call_id]
        if moved:
            yield _Message(message.number, "tool", None, [], moved, {})


def _keep_results(message: _Message, call_ids: set[str]) -> _Message:
    """Remove all results from a message, except the results of these calls."""
    content = message.content
    if isinstance(content, list):
        content = [
            block
            for block in content
            if block.get("tool_use_id") is None or block["tool_use_id"] in call_ids
        ]
    results = [result for result in message.results if result.call_id in call_ids]
    return message._replace(content=content, results=results)


def _parse_value(number: int, value: Value) -> _Message:
    if isinstance(value, ToolCall):
        call = FoundCall(value.call_id, value.name, value.arguments)
        return _Message(number, "assistant", None, [call], [], {})
    results = [_Result(*answer, number) for answer in find_answers_given(value)]
    if not isinstance(value, ChatMessage):
        return _Message(number, "tool", None, [], results, {})
    role = to_common_role(value.role)
    if role == "tool" and value.tool_call_id is not None:
        return _Message(number, role, None, [], results, {})
    blocks = value.content if isinstance(value.content, list) else []
    uses = [block for block in blocks if get_block_kind(block) == "call"]
    calls: dict[str, FoundCall] = {}
    for item in (*(value.tool_calls or ()), *uses):
        call_id, name, arguments = parse_call(item)
        if isinstance(call_id, str):
            calls.setdefault(call_id, FoundCall(call_id, name, arguments))
    extra = value.__pydantic_extra__ or {}
    fields = {name: extra[name] for name in _OPENAI_FIELDS if extra.get(name) is not None}
    if value.name is not None:
        fields["name"] = value.name
    return _Message(number, role, value.content, list(calls.values()), results, fields)


def _to_openai_call(call: FoundCall) -> JsonObject:
    function = {"name": call.name, "arguments": call.as_text}
    return {"id": call.id, "type": "function", "function": function}


def _to_anthropic_call(call: FoundCall) -> JsonObject:
    arguments = parse_arguments(call.arguments)
    if arguments in (None, ""):
        arguments = {}
    if not isinstance(arguments, dict):
        # The model wrote no JSON object; Anthropic accepts nothing else.
        arguments = {"arguments": arguments}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _to_anthropic_result(result: _Result) -> JsonObject:
    block = {
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": _to_result_content(result, _to_anthropic_block),
    }
    return {**block, "is_error": True} if result.is_error else block


def _to_result_content(result: _Result, convert: Any) -> str | list[JsonObject]:
    """Convert the content of a result: text, blocks, or JSON text of any other value."""
    content = result.content
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list) and all(
        isinstance(block, dict) and isinstance(block.get("type"), str) for block in content
    ):
        parts = (convert(block, result.number) for block in content)
        return [part for part in parts if part is not None]
    return json.dumps(content, ensure_ascii=False)


def _to_openai_part(block: Mapping[str, Any], number: int) -> JsonObject | None:  # noqa: PLR0911 (one return per form)
    if block.get("type") == "refusal":
        return dict(block)
    kind, source = get_block_kind(block), block.get("source")
    if kind == "text":
        return {"type": "text", "text": get_block_text(block) or ""}
    if kind in ("thinking", "call", "result"):
        # Calls and results are fields and messages of their own.
        return None
    if block.get("type") in _OPENAI_PARTS:
        return dict(block)
    if isinstance(source, dict):
        url = source.get("url") if source.get("type") == "url" else _build_data_url(source)
        if block.get("type") == "image" and url is not None:
            return {"type": "image_url", "image_url": {"url": url}}
        if block.get("type") == "document" and source.get("type") == "base64":
            name = str(block.get("title") or "document.pdf")
            return {"type": "file", "file": {"filename": name, "file_data": url}}
        if block.get("type") == "document" and source.get("type") == "text":
            return {"type": "text", "text": str(source.get("data", ""))}
    raise _build_block_error(block, number, "OpenAI")


def _to_anthropic_block(block: Mapping[str, Any], number: int) -> JsonObject | None:
    form = block.get("type")
    if form in _ANTHROPIC_BLOCKS:
        return dict(block)
    kind = get_block_kind(block)
    if kind == "text":
        return {"type": "text", "text": get_block_text(block) or ""}
    if kind in ("thinking", "call"):
        # Anthropic accepts only thinking that it signed. Calls in other forms follow the blocks.
        return None
    if form == "image_url":
        image = block.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        if isinstance(url, str):
            return {"type": "image", "source": _parse_data_url(url) or {"type": "url", "url": url}}
    if form == "file" and isinstance(block.get("file"), dict):
        source = _parse_data_url(str(block["file"].get("file_data", "")))
        if source is not None:
            title = block["file"].get("filename")
            document: JsonObject = {"type": "document", "source": source}
            return document if title is None else {**document, "title": title}
    raise _build_block_error(block, number, "Anthropic")


def _to_blocks(content: str | list[JsonObject] | None) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content or []


def _build_data_url(source: Mapping[str, Any]) -> str | None:
    if source.get("type") != "base64":
        return None
    return f"data:{source.get('media_type')};base64,{source.get('data')}"


def _parse_data_url(url: str) -> JsonObject | None:
    head, found, data = url.partition(";base64,")
    if not found or not head.startswith("data:"):
        return None
    return {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}


def _build_block_error(block: Mapping[str, Any], number: int, provider: str) -> UsageError:
    form = block.get("type", block.get("block_type"))
    return UsageError(
        f"message {number} has a block of type {form!r:.60}, which has no form for {provider};"
        " nothing was changed",
        value=form,
    )


def _to_dict(message: Any) -> JsonObject:
    found = _to_plain(message)
    if not isinstance(found, dict):
        raise UsageError(f"not a message: {type(message).__name__}", value=message)
    return found


def _to_plain(value: Any) -> Any:
    """Convert objects of the providers' SDKs, which are pydantic models, to plain values."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json", exclude_none=True)
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _to_plain(item) for name, item in value.items()}
    return value
