"""Finds tool calls and their answers in values, and pairs them by call id and order.

Models may use an id again, so the id is not enough. An answer belongs to the oldest unanswered call
with its id before it. An answer without such a call is an orphan, and a call without an answer is
dangling.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from indelible.core.content import parse_arguments
from indelible.model import (
    CallStatus,
    ChatMessage,
    Entry,
    ToolCall,
    ToolCallRecord,
    ToolResult,
)


class FoundCall(NamedTuple):
    """A tool call in a message. A call without a name has an empty one.

    Arguments are None, an object, or what a model wrote instead.
    """

    id: str
    name: str
    arguments: Any

    @property
    def as_object(self) -> dict[str, Any] | None:
        """The arguments as an object; None if they are something else."""
        if self.arguments is None:
            return {}
        return self.arguments if isinstance(self.arguments, dict) else None

    @property
    def as_text(self) -> str:
        """The arguments as models write them: JSON text."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps({} if self.arguments is None else self.arguments, ensure_ascii=False)


class CallPair(NamedTuple):
    """A call and its answer, as indexes of entries; None where one is missing."""

    call_id: str
    call: int | None
    answer: int | None


class OpenCalls:
    """Calls without an answer yet, by id, as numbers that the caller chose."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[int]] = {}

    def add(self, call_id: str, call: int) -> None:
        """Add a call."""
        self._waiting.setdefault(call_id, deque()).append(call)

    def take(self, call_id: str) -> int | None:
        """Remove and return the call that an answer with this id belongs to; None if none waits."""
        waiting = self._waiting.get(call_id)
        if waiting is None:
            return None
        call = waiting.popleft()
        if not waiting:
            del self._waiting[call_id]
        return call


def pair_calls(links: Iterable[tuple[Iterable[str], Iterable[str]]]) -> list[CallPair]:
    """Pair calls with answers, in the order of the calls; orphans come last.

    Each link has the ids of the calls that one entry makes, and of those that it answers.
    """
    calls: list[tuple[str, int]] = []
    answer_of: dict[int, int] = {}
    orphans: list[CallPair] = []
    waiting = OpenCalls()
    for index, (opens, answers) in enumerate(links):
        for call_id in answers:
            call = waiting.take(call_id)
            if call is None:
                orphans.append(CallPair(call_id, None, index))
            else:
                answer_of[call] = index
        for call_id in opens:
            waiting.add(call_id, len(calls))
            calls.append((call_id, index))
    pairs = [
        CallPair(call_id, index, answer_of.get(number))
        for number, (call_id, index) in enumerate(calls)
    ]
    return pairs + orphans


def join_results(entries: Sequence[Entry]) -> list[ToolCallRecord]:
    """Join the calls and answers of entries."""
    calls = [{call[0]: call for call in find_calls_made(entry.value)} for entry in entries]
    answers = [
        {answer[0]: answer for answer in find_answers_given(entry.value)} for entry in entries
    ]
    records = []
    for call_id, call, answer in pair_calls(zip(calls, answers, strict=True)):
        _, name, arguments = (call_id, "", None) if call is None else calls[call][call_id]
        _, result, failed = (call_id, None, False) if answer is None else answers[answer][call_id]
        if call is None:
            status = CallStatus.ORPHAN
        elif answer is None:
            status = CallStatus.DANGLING
        else:
            status = CallStatus.FAILED if failed else CallStatus.DONE
        records.append(
            ToolCallRecord(
                call_id=call_id,
                status=status,
                name=name or None,
                arguments=arguments,
                result=result,
                call_position=None if call is None else entries[call].position,
                result_position=None if answer is None else entries[answer].position,
            )
        )
    return records


def find_calls_made(value: Any) -> list[FoundCall]:
    """Return the calls in a value, in any of three forms.

    Arguments of a message that are JSON text are parsed; those of a `ToolCall` are not changed.
    """
    if isinstance(value, ToolCall):
        return [FoundCall(value.call_id, value.name, value.arguments)]
    if not isinstance(value, ChatMessage):
        return []
    found = []
    for call in iter_calls(value):
        call_id, name, arguments = parse_call(call)
        if isinstance(call_id, str):
            found.append(FoundCall(call_id, name, parse_arguments(arguments)))
    return found


def iter_calls(message: ChatMessage) -> Iterator[Mapping[str, Any]]:
    """Iterate over the calls of a message, in its fields and in its content."""
    yield from message.tool_calls or ()
    for block in message.content if isinstance(message.content, list) else ():
        if block.get("type") == "tool_use":
            yield block


def parse_call(call: Mapping[str, Any]) -> tuple[Any, str, Any]:
    """Return id, name and arguments of a call in any form of providers and frameworks.

    Id and arguments are as they are in it; the name is empty if there is none.
    """
    inner = call.get("function", call.get("custom"))
    named = inner if isinstance(inner, dict) else call
    fields = ("arguments", "args", "input", "tool_kwargs")
    arguments = next((named[field] for field in fields if field in named), None)
    return call.get("id"), str(named.get("name", named.get("tool_name")) or ""), arguments


def find_answers_given(value: Any) -> list[tuple[str, Any, bool]]:
    """Return call id, content and the error flag of each answer in a value."""
    if isinstance(value, ToolResult):
        return [(value.call_id, value.content, value.is_error)]
    if not isinstance(value, ChatMessage):
        return []
    found: list[tuple[str, Any, bool]] = []
    if value.tool_call_id is not None:
        failed = (value.__pydantic_extra__ or {}).get("is_error") is True
        found.append((value.tool_call_id, value.content, failed))
    for block in value.content if isinstance(value.content, list) else []:
        call_id = block.get("tool_use_id")
        if block.get("type") == "tool_result" and isinstance(call_id, str):
            found.append((call_id, block.get("content"), bool(block.get("is_error"))))
    return found
