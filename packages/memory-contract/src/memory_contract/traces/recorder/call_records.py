"""What the recorder keeps of one call until it is written, and the line of the trace it becomes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring_ascii as _quote
from typing import Any, Final

from memory_contract.calls import is_not_found, outcome_of
from memory_contract.history import NOT_FOUND
from memory_contract.traces.format import CALL
from memory_contract.traces.recorder.hasher import CapturedMessage, HashedMessage, Hasher

# Fields that are always written, or in another form.
_SPECIAL: Final = frozenset(
    {
        *("session", "worker", "op", "invoke_ns", "complete_ns", "outcome", "verb"),
        *("messages", "seen"),
    }
)


class CallRecord:
    """One call: what was asked for, and what came of it.

    Most calls set few fields. The defaults are on the class, so that they cost a call nothing.
    """

    op: str
    session: str
    messages: Sequence[CapturedMessage] = ()
    limit: int | None = None
    keep: int | None = None
    snapshot: str | None = None
    target: str | None = None
    key: str | None = None
    ttl_s: float | None = None
    turns: bool = False
    # Whether it is about every session of the store.
    every: bool = False
    # Whether it may have removed more or less than its arguments say.
    unsure: bool = False
    # Whether it may change a session in a way that the recorder does not know.
    changes: bool = False
    verb: str = ""
    worker: str = ""
    invoke_ns: int = 0
    complete_ns: int | None = None
    outcome: str = "info"
    error: str = ""
    # What a read showed, what a pop took, or `NOT_FOUND` for a missing snapshot.
    seen: list[CapturedMessage] | CapturedMessage | str | None = None
    position: int | None = None

    def __init__(self, op: str, session: str, **fields: Any) -> None:
        self.op = op
        self.session = session
        self.__dict__.update(fields)

    def set_error(self, error: BaseException) -> None:
        """Note that the call raised just now, and what that says about the data."""
        self.complete_ns = time.monotonic_ns()
        # A read changes nothing, so its failure leaves nothing open.
        self.outcome = "fail" if self.op == "read" else outcome_of(error)
        self.error = type(error).__name__
        if self.op == "rollback" and self.outcome == "fail" and is_not_found(error):
            self.seen = NOT_FOUND

    @property
    def weight(self) -> int:
        """How much of the buffer it takes: the messages that it keeps alive, at least one."""
        seen = len(self.seen) if isinstance(self.seen, list) else 0
        return max(1, len(self.messages) + seen)


def format_call(record: CallRecord, hasher: Hasher) -> str:
    """Format the line of a call. The session comes first: readers group lines by it.

    The line is assembled by hand: an encoder would double what recording adds to a call.
    """
    line = (
        f'{{"session":{_quote(record.session)},"worker":{_quote(record.worker)},'
        f'"op":"{record.op}","invoke_ns":{record.invoke_ns},'
        f'"complete_ns":{"null" if record.complete_ns is None else record.complete_ns},'
        f'"outcome":"{record.outcome}","verb":{_quote(record.verb)}'
    )
    if record.messages and record.op != CALL:
        line += _format_messages([hasher.to_hashed(message) for message in record.messages])
    seen = record.seen
    if isinstance(seen, list):
        line += f',"value":{_join(_quote(hasher.to_hashed(message).token) for message in seen)}'
    elif seen is not None:
        line += (
            f',"value":{_quote(seen if isinstance(seen, str) else hasher.to_hashed(seen).token)}'
        )
    for name, value in vars(record).items():
        if name not in _SPECIAL and value is not None and value is not False and value != "":
            line += f',"{name}":{json.dumps(value)}'
    return line + "}\n"


def _format_messages(messages: list[HashedMessage]) -> str:
    line = (
        f',"ids":{_join(_quote(message.token) for message in messages)},'
        f'"sizes":{_join(str(message.size) for message in messages)},'
        f'"roles":{_join(_quote(message.role) for message in messages)}'
    )
    if any(message.structured for message in messages):
        line += ',"structured":true'
    if any(message.kept is not None for message in messages):
        line += f',"contents":{json.dumps([message.kept for message in messages])}'
    return line


def _join(items: Iterable[str]) -> str:
    return f"[{','.join(items)}]"
