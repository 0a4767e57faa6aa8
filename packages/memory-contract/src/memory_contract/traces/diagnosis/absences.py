"""Acknowledged entries that a later complete read lacks, where entries are known by hashes alone.

A hash may stand for several entries, some older than the trace, and nobody can tell which is which.
Their number can be bounded from below: each acknowledged append adds one, and older entries only
add to what is seen. A complete read that shows fewer has lost some, unless something may have
removed entries in between. Whatever may remove anything excuses everything that was there before
it; only what was appended or seen later counts again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from memory_contract.checker.events import FOREVER, Event
from memory_contract.checker.verdict import Anomaly, is_, quote_name
from memory_contract.history import Operation
from memory_contract.traces.format import TraceOperation, strip_fields

# Of the appends of one text, those that are shown as a proof.
SHOWN_MAX: Final = 3


@dataclass(slots=True)
class AppendBatch:
    """One append with all attempts of its key: when it first began, and was acknowledged."""

    ids: tuple[str, ...]
    begins: int
    ends: int = FOREVER
    op: TraceOperation | None = None


def join_attempts(appends: Iterable[TraceOperation]) -> list[AppendBatch]:
    """Return each acknowledged append once; leave out keys that were used for two batches."""
    found: list[AppendBatch] = []
    keyed: dict[str, AppendBatch | None] = {}
    for op in appends:
        if op.outcome == "fail":
            continue
        batch: AppendBatch | None = AppendBatch(tuple(map(strip_fields, op.ids)), op.invoke_ns)
        assert batch is not None
        if op.key is None:
            found.append(batch)
        else:
            known = keyed.setdefault(op.key, batch)
            if known is None or known.ids != batch.ids:
                keyed[op.key] = None
                continue
            batch = known
            batch.begins = min(batch.begins, op.invoke_ns)
        if op.outcome == "ok" and op.complete_ns is not None and op.complete_ns < batch.ends:
            batch.ends, batch.op = op.complete_ns, op
    found += [batch for batch in keyed.values() if batch is not None]
    return [batch for batch in found if batch.op is not None]


@dataclass(slots=True)
class _Lack:
    """Entries of one hash that a read should have shown."""

    one: str
    needed: int
    seen: int
    read: TraceOperation
    witness: tuple[TraceOperation, ...]
    # Whether a read that was made later showed more of them.
    back: bool = False


def find_absences(
    batches: Sequence[AppendBatch],
    reads: Sequence[TraceOperation],
    changes: Iterable[Operation],
    counted: set[str],
) -> Iterator[Anomaly]:
    """Find what reads of one session lack of the hashes in `counted`.

    `reads` are complete and in the order in which they were invoked; `changes` are all operations
    that may have removed entries.
    """
    # A pop that returned nothing counts too: not every store returns what it took.
    walk = _PresenceWalk([Event(op) for op in changes if op.outcome != "fail"], counted)
    for lack in walk.run(batches, reads):
        yield _build_anomaly(lack, final=lack.read is reads[-1])


# What happens at one moment, in this order: a removal excuses what is done at its moment, a read
# need not show what is acknowledged at its moment, and is compared with later ones when it is over.
_REMOVAL, _BEGIN, _READ, _ACKNOWLEDGED, _READ_OVER = range(5)


@dataclass(slots=True)
class _PresenceWalk:
    """Walks through a session in the order of time and counts what must be there."""

    effects: list[Event]
    counted: set[str]
    must: Counter[str] = field(default_factory=Counter)
    # Appends of each hash that have begun and are not acknowledged: a read may show them already.
    open: Counter[str] = field(default_factory=Counter)
    # No removal that has begun can take effect after this moment.
    removed_until: int = -1
    acknowledged: dict[str, list[TraceOperation]] = field(default_factory=dict)
    lacks: list[_Lack] = field(default_factory=list)
    lacking: dict[str, _Lack] = field(default_factory=dict)

    def run(self, batches: Sequence[AppendBatch], reads: Sequence[TraceOperation]) -> list[_Lack]:
        """Return all reads that lack something."""
        moments: list[tuple[int, int, Event | AppendBatch | TraceOperation]] = []
        moments += [(event.lo, _REMOVAL, event) for event in self.effects]
        for batch in batches:
            moments += [(batch.begins, _BEGIN, batch), (batch.ends, _ACKNOWLEDGED, batch)]
        for read in reads:
            moments += [(read.invoke_ns, _READ, read), (read.complete_ns or 0, _READ_OVER, read)]
        starts = sorted(event.lo for event in self.effects)
        for moment, kind, what in sorted(moments, key=lambda each: each[:2]):
            if isinstance(what, Event):
                self.must.clear()
                self.removed_until = max(self.removed_until, what.hi)
            elif isinstance(what, AppendBatch):
                self._add_batch(what, begins=kind == _BEGIN)
            elif kind == _READ:
                end = what.complete_ns or 0
                disturbed = bisect_right(starts, end) > bisect_right(starts, moment)
                self._check_read(what, disturbed=disturbed)
            elif what.invoke_ns > self.removed_until:
                self._expect_shown(what)
        return self.lacks

    def _add_batch(self, batch: AppendBatch, *, begins: bool) -> None:
        for one in batch.ids:
            if one not in self.counted:
                continue
            self.open[one] += 1 if begins else -1
            if begins:
                continue
            assert batch.op is not None
            self.acknowledged.setdefault(one, []).append(batch.op)
            if batch.begins > self.removed_until:
                self.must[one] += 1

    def _check_read(self, read: TraceOperation, *, disturbed: bool) -> None:
        seen = Counter(map(strip_fields, read.value or ()))
        for one in [one for one in self.lacking if seen[one] > self.lacking[one].seen]:
            self.lacking.pop(one).back = True
        if disturbed:
            return
        for one, needed in self.must.items():
            if seen[one] < needed:
                shown = tuple(self.acknowledged.get(one, ())[-SHOWN_MAX:])
                lack = _Lack(one, needed, seen[one], read, shown)
                self.lacks.append(lack)
                self.lacking[one] = lack
                # Said once: later reads are held to what is left.
                self.must[one] = seen[one]

    def _expect_shown(self, read: TraceOperation) -> None:
        """Expect what a read showed, since nothing was removed after it."""
        for one, times in Counter(map(strip_fields, read.value or ())).items():
            if one in self.acknowledged:
                self.must[one] = max(self.must[one], times - self.open[one])


def _build_anomaly(lack: _Lack, *, final: bool) -> Anomaly:
    read, one, gone = lack.read, lack.one, lack.needed - lack.seen
    where = "final read" if final else f"read by {read.worker}"
    if lack.needed == 1:
        happened = f"{one} was acknowledged to {lack.witness[-1].worker} and is missing"
    else:
        happened = (
            f"{lack.needed} entries {one} were acknowledged and {gone} {is_(range(gone))} missing"
        )
    name = "stale read" if lack.back else "lost append"
    proof = (
        f"{happened} from the {where}; no clear, pop, trim, rollback or expiry could have removed"
        f" {'it' if gone == 1 else 'them'} from session {quote_name(read.session)} in between."
    )
    return Anomaly(name, read.session, (one,), (*lack.witness, read), proof)  # type: ignore[arg-type]
