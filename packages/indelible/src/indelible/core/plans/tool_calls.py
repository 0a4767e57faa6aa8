"""Reads tool calls with their results, from messages and from tool entries."""

from __future__ import annotations

from indelible import view
from indelible.core.operations import Read, ReadOutline
from indelible.core.plan import Plan, perform
from indelible.core.plans.read import EntryDecoder
from indelible.core.settings import check_session_id
from indelible.core.tool_calls import find_answers_given, find_calls_made, pair_calls
from indelible.model import CallStatus, Entry, ToolCallRecord


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
    found = yield from perform(Read(session, frozen=head.freeze(linked)))
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
