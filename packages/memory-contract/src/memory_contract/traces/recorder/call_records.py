"""What a recorder remembers of one call until it is written, and the line that it becomes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, Self

from memory_contract.calls import is_not_found, outcome_of
from memory_contract.history import NOT_FOUND
from memory_contract.traces.format import CALL
from memory_contract.traces.recorder.hasher import CapturedMessage, Hasher

# What is written for every note, or in a way of its own.
_USUAL: Final = frozenset(
    {
        *("op", "session", "messages", "verb", "worker", "began", "ended", "outcome", "position"),
        "seen",
    }
)


class CallRecord:
    """One call: what was asked for, and what came of it.

    Most fields of most notes say nothing. Those stand on the class, and cost a call no time.
    """

    messages: Sequence[CapturedMessage] = ()
    limit: int | None = None
    keep: int | None = None
    snapshot: str | None = None
    target: str | None = None
    key: str | None = None
    ttl_s: float | None = None
    turns = False
    unsure = False
    # Whether it may change a session in a way that no table tells.
    changes = False
    verb = ""
    worker = ""
    began = 0
    ended: int | None = None
    outcome = "info"
    error = ""
    # What a read showed, what a pop took, or what is said of a snapshot that is not there.
    seen: Sequence[CapturedMessage] | CapturedMessage | str | None = None
    position: int | None = None

    def __init__(self, op: str, session: str, **fields: Any) -> None:
        self.op = op
        self.session = session
        if fields:
            self.__dict__.update(fields)

    def doubtful(self, really: bool = True) -> Self:
        """What it takes away is not known: the contract's word for it says more than is true."""
        self.unsure = really
        return self

    def raised(self, error: BaseException) -> None:
        """The call raised, just now: what that says of the data."""
        self.ended = time.monotonic_ns()
        # A read changes nothing: whatever it raised, it is over.
        self.outcome = "fail" if self.op == "read" else outcome_of(error)
        self.error = type(error).__name__
        if self.op == "rollback" and self.outcome == "fail" and is_not_found(error):
            self.seen = NOT_FOUND

    @property
    def weight(self) -> int:
        """How many messages it keeps alive until it is written."""
        return len(self.messages) + (len(self.seen) if isinstance(self.seen, list) else 0)


# The most frequent note of all, as little as can be: one message of a role and a text, appended.
# The recorder's number, the thread or task and which of the two, the session, when the call began
# and ended, the role, the text, and where the entry stands.
QuickAppend = tuple[int, int, str, str, int, int, str, str, int]


def format_quick_append(note: QuickAppend, worker: str, hasher: Hasher) -> str:
    """Its line."""
    _, _, _, session, began, ended, role, content, position = note
    tied = ',"structured":true' if role == "system" else ""
    token = hasher.digest(f"{role}\0{content}")
    return (
        f'{{"session":{quoted(session)},"worker":"{worker}","op":"append","invoke_ns":{began},'
        f'"complete_ns":{ended},"outcome":"ok","verb":"add_message","ids":["{token}"],'
        f'"sizes":[{len(content)}],'
        f'"roles":[{quoted(role)}],"position":{position}{tied}}}\n'
    )


def format_call(note: CallRecord, hasher: Hasher) -> str:
    """The line of a note. Written by hand: most of a recorder's time would go into a serializer."""
    ended = "null" if note.ended is None else note.ended
    line = (
        f'{{"session":{quoted(note.session)},"worker":{quoted(note.worker)},"op":"{note.op}",'
        f'"invoke_ns":{note.began},"complete_ns":{ended},"outcome":"{note.outcome}",'
        f'"verb":{quoted(note.verb)}'
    )
    said = note.__dict__
    if note.messages and note.op != CALL:
        line += _appended(note.messages, hasher)
    if note.seen is not None:
        line += _seen(note, hasher)
    if note.position is not None:
        line += f',"position":{note.position}'
    return line + "}\n" if said.keys() <= _USUAL else line + _rest(said) + "}\n"


def _rest(said: dict[str, Any]) -> str:
    line = ""
    for name, value in said.items():
        if value is None or value is False or name in _USUAL:
            continue
        shown = quoted(value) if isinstance(value, str) else json.dumps(value)
        line += f',"{name}":{shown}' if value != "" else ""
    return line


def _appended(messages: Sequence[CapturedMessage], hasher: Hasher) -> str:
    if len(messages) == 1 and type(messages[0]) is tuple:
        # The most frequent line of all: one message, a role and a text.
        role, content = messages[0]
        token = hasher.digest(f"{role}\0{content}")
        tied = ',"structured":true' if role == "system" else ""
        return f',"ids":["{token}"],"sizes":[{len(content)}],"roles":[{quoted(role)}]{tied}'
    spoken = [hasher.said(message) for message in messages]
    found: dict[str, Any] = {
        "ids": [each.token for each in spoken],
        "sizes": [each.size for each in spoken],
        "roles": [each.role for each in spoken],
    }
    if any(each.structured for each in spoken):
        found["structured"] = True
    if any(each.kept is not None for each in spoken):
        found["contents"] = [each.kept for each in spoken]
    return "," + json.dumps(found, separators=(",", ":"))[1:-1]


def _seen(note: CallRecord, hasher: Hasher) -> str:
    seen = note.seen
    if isinstance(seen, str):
        return f',"value":{quoted(seen)}'
    if isinstance(seen, list):
        tokens = '","'.join([hasher.said(message).token for message in seen])
        return f',"value":["{tokens}"]' if tokens else ',"value":[]'
    assert seen is not None
    return f',"value":"{hasher.said(seen).token}"'  # type: ignore[arg-type]
