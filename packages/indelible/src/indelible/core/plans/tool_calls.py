"""Reads tool calls with their results, from messages and from tool entries."""

from __future__ import annotations

from typing import Any

from indelible import view
from indelible.core.content import parse_arguments
from indelible.core.operations import FrozenView, Read, ReadOutline
from indelible.core.plan import Plan, perform
from indelible.core.plans.read import EntryDecoder
from indelible.core.settings import check_session_id
from indelible.core.tool_calls import pair_calls
from indelible.model import CallStatus, ChatMessage, Entry, ToolCall, ToolCallRecord, ToolResult


def read_tool_calls(session_id: str) -> Plan[list[ToolCallRecord]]:
    """Read the visible tool calls in order; orphaned results come last."""
    session = check_session_id(session_id)
    outlined = yield from perform(ReadOutline(session))
    head = outlined.head
    linked = view.from_positions(
        entry.position for entry in outlined.entries if entry.opens or entry.answers
    )
    if not linked:
        return []
    found = yield from perform(
        Read(session, frozen=FrozenView(head.life, linked, head.version, head.vacuums))
    )
    return join_results(EntryDecoder(session).to_entries(found.rows))


def join_results(entries: list[Entry]) -> list[ToolCallRecord]:
    """Join the calls and answers of entries."""
    calls = [{call[0]: call for call in find_calls_made(entry.value)} for entry in entries]
    answers = [
        {answer[0]: answer for answer in find_answers_given(entry.value)} for entry in entries
    ]
    records = []
    for call_id, call, answer in pair_calls(zip(calls, answers, strict=True)):
        _, name, arguments = (call_id, None, None) if call is None else calls[call][call_id]
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
                name=name,
                arguments=arguments,
                result=result,
                call_position=None if call is None else entries[call].position,
                result_position=None if answer is None else entries[answer].position,
            )
        )
    return records


def find_calls_made(value: Any) -> list[tuple[str, Any, Any]]:
    """Return id, name and arguments of each call in a value, in any of three forms.

    Arguments of a message that are JSON text are parsed; those of a `ToolCall` are not changed.
    """
    if isinstance(value, ToolCall):
        return [(value.call_id, value.name, value.arguments)]
    if not isinstance(value, ChatMessage):
        return []
    found = []
    blocks = value.content if isinstance(value.content, list) else []
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    for call in (*(value.tool_calls or ()), *uses):
        function = call.get("function")
        named: dict[str, Any] = function if isinstance(function, dict) else call
        arguments = named.get("arguments", named.get("args", named.get("input")))
        if isinstance(call.get("id"), str):
            found.append((str(call["id"]), named.get("name"), parse_arguments(arguments)))
    return found


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
