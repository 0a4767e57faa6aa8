"""Traces that a test writes line by line."""

from memory_contract import explain_trace
from memory_contract.traces.format import (
    TraceHeader,
    TraceOperation,
    write_trace,
)

FRESH = TraceHeader(fresh=True)


OLD = TraceHeader()


class Tape:
    """Writes a trace by hand: every call takes one tick, unless it is told when."""

    def __init__(self, path, header=FRESH):
        self.path = path
        self.header = header
        self.lines = []
        self.now = 0

    def call(self, op, *, session="s", worker="1.1-t1", at=None, outcome="ok", **fields):
        begin, end = at or (self.now + 1, self.now + 2)
        self.now = max(self.now, end or begin)
        self.lines.append(
            TraceOperation(
                session=session,
                worker=worker,
                op=op,
                invoke_ns=begin,
                complete_ns=end,
                outcome=outcome,
                **fields,
            )
        )

    def append(self, *ids, **fields):
        fields.setdefault("roles", ("user",) * len(ids))
        self.call("append", ids=ids, sizes=(3,) * len(ids), **fields)

    def read(self, *value, **fields):
        self.call("read", value=value, **fields)

    def explained(self, **options):
        write_trace(self.path, self.header, self.lines)
        return explain_trace(self.path, **options)


def names(found):
    return sorted(found.names)
