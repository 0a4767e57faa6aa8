"""When the sessions of a trace must end, where a time to live was named or promised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from memory_contract.history import Operation
from memory_contract.traces.diagnosis.trace_metadata import TraceMetadata
from memory_contract.traces.format import TraceOperation


def find_expiries(
    session: str, ops: Sequence[TraceOperation], metadata: TraceMetadata
) -> Iterator[Operation]:
    """The windows in which a session's life ends: after each call that no other follows in time.

    An append begins the time anew, or a read too, or nothing does, as the store promises. Where it
    is not clear whether a call came in time, the life may have ended or not.
    """
    begins = ("append", "read") if metadata.ttl_refreshed_by == "read" else ("append",)
    calls = [op for op in ops if op.op in begins and op.outcome != "fail"]
    if metadata.ttl_s is None and all(op.ttl_s is None for op in calls):
        return
    last = max((op.complete_ns or op.invoke_ns for op in ops), default=0)
    ttl_s: float | None = None
    for op, then in pairwise([*calls, None]):
        assert op is not None
        if op.op == "append":
            ttl_s = metadata.ttl_s if op.ttl_s is None else op.ttl_s
        if ttl_s is None:
            continue
        begin = op.invoke_ns + int(ttl_s * 1e9)
        end = (op.complete_ns or last) + int((ttl_s + metadata.ttl_late_s) * 1e9)
        sure = op.outcome == "ok"
        if then is not None and metadata.ttl_refreshed_by != "nothing":
            if then.complete_ns is not None and then.complete_ns < begin:
                continue
            sure = sure and then.invoke_ns > end
        yield Operation(
            worker="clock",
            session=session,
            op="expire",
            invoke_ns=begin,
            complete_ns=end if sure else None,
            outcome="ok" if sure else "info",
        )
        if metadata.ttl_refreshed_by == "nothing":
            # Which later append began a new life is not known: any may have ended since.
            yield Operation(
                worker="clock",
                session=session,
                op="expire",
                invoke_ns=begin,
                complete_ns=None,
                outcome="info",
            )
            return
