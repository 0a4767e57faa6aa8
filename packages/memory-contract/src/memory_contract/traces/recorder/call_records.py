"""The record of one call until it is written, and its conversion to a line of the trace."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from memory_contract.calls import classify_outcome, is_missing_key, is_not_found
from memory_contract.history import NOT_FOUND, HistoryError, build_record
from memory_contract.traces.format import (
    CALL,
    REMOVERS,
    OtherCall,
    TraceCall,
    TraceOperation,
)
from memory_contract.traces.recorder.hasher import HashedMessage

# Fields of a record that a line has in another form, or not at all.
_NOT_FIELDS: Final = frozenset({"messages", "changes"})


class CallRecord:
    """One call: its arguments and its result.

    Most calls set few fields. The defaults are on the class, so that they cost a call nothing.
    """

    op: str
    session: str
    messages: Sequence[HashedMessage] = ()
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
    value: tuple[str, ...] | str | None = None
    position: int | None = None

    def __init__(self, op: str, session: str, **fields: Any) -> None:
        self.op = op
        self.session = session
        self.__dict__.update(fields)

    def set_error(self, error: BaseException) -> None:
        """Note that the call raised just now, and whether it may have changed the data."""
        self.complete_ns = time.monotonic_ns()
        # A read changes nothing, so its failure leaves nothing open.
        self.outcome = "fail" if self.op == "read" else classify_outcome(error)
        self.error = type(error).__name__
        if self.op == "rollback" and is_missing_key(error, self.snapshot):
            self.outcome, self.value = "fail", NOT_FOUND
        elif self.op == "rollback" and self.outcome == "fail" and is_not_found(error):
            self.value = NOT_FOUND

    @property
    def may_remove(self) -> bool:
        """Return whether it may remove entries, so that it is announced before it is made."""
        return self.op in REMOVERS or self.changes

    @property
    def weight(self) -> int:
        """Return its share of the buffer: one for the call, and one for each message."""
        return 1 + len(self.messages) + (len(self.value) if isinstance(self.value, tuple) else 0)

    def to_line(self) -> TraceCall:
        """Return the line of the trace. What a trace cannot hold is an `OtherCall`."""
        if self.op == CALL:
            return self._to_other_call(self.session, every=self.every, changes=self.changes)
        found = {
            name: value
            for name, value in vars(self).items()
            if value is not None and name not in _NOT_FIELDS
        }
        found.setdefault("complete_ns", None)
        found.setdefault("outcome", "info")
        if messages := self.messages:
            found["ids"] = tuple(message.token for message in messages)
            found["sizes"] = tuple(message.size for message in messages)
            found["roles"] = tuple(message.role for message in messages)
            found["structured"] = any(message.structured for message in messages)
            if any(message.kept is not None for message in messages):
                found["contents"] = tuple(message.kept for message in messages)
        try:
            return build_record(TraceOperation, found)
        except HistoryError:
            # A negative limit, a key that is no text, a snapshot without an id: a reader would
            # refuse the whole trace. If the store took it, it may have changed any session.
            changes = self.op not in ("read", "snapshot") and self.outcome != "fail"
            return self._to_other_call("", every=changes, changes=changes)

    def _to_other_call(self, session: str, *, every: bool, changes: bool) -> OtherCall:
        found = {
            name: getattr(self, name)
            for name in ("worker", "verb", "invoke_ns", "complete_ns", "outcome", "error")
        }
        snapshot = self.snapshot if isinstance(self.snapshot, str) else None
        more = {"session": session, "snapshot": snapshot, "every": every, "changes": changes}
        return build_record(OtherCall, found | more)
