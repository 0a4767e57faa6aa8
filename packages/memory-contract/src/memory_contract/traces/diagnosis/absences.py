"""Entries that are known by hashes alone, counted: too few in a later complete read, or too many.

A hash may stand for several entries, some older than the trace, and nobody can tell which is which.
Their number can be bounded from below: each acknowledged append adds one, and older entries only
add to what is seen. A complete read that shows fewer has lost some, unless something may have
removed entries in between. Whatever may remove anything excuses everything that was there before
it; only what was appended or seen later counts again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from memory_contract.checker.events import Event
from memory_contract.checker.verdict import Anomaly, is_, quote_name
from memory_contract.history import Operation
from memory_contract.traces.format import TraceOperation, strip_fields

# Of the appends of one text, those that are shown as a proof.
SHOWN_MAX: Final = 3


def find_duplicates(
    shared: Mapping[str, Sequence[Event]], reads: Iterable[TraceOperation]
) -> Iterator[Anomaly]:
    """Find reads that show more equal entries than were appended; `shared` has all appends."""
    for read in reads if shared else ():
        seen = Counter(map(strip_fields, read.value or ()))
        for one, events in shared.items():
            begun = [event.op for event in events if event.lo <= (read.complete_ns or 0)]
            if seen[one] > len(begun):
                proof = (
                    f"{one} stands {seen[one]} times in what {read.worker} saw, and only"
                    f" {len(begun)} had been appended."
                )
                witness = (*begun[:SHOWN_MAX], read)
                yield Anomaly("duplicate", read.session, (one,), witness, proof)


@dataclass(slots=True)
class _Lack:
    """Entries of one hash that a read should have shown."""

    one: str
    needed: int
    seen: int
    read: TraceOperation
    witness: tuple[Operation, ...]
    # Whether a read that was made later showed more of them.
    back: bool = False


def find_absences(
    appends: Sequence[Event],
    reads: Sequence[TraceOperation],
    changes: Iterable[Operation],
    judged: Collection[str],
) -> Iterator[Anomaly]:
    """Find what reads of one session lack of its acknowledged appends.

    `reads` are complete and in the order in which they were invoked; `changes` are all operations
    that may have removed entries. Hashes in `judged` are left to the checker.
    """
    # A pop that returned nothing counts too: not every store returns what it took.
    walk = _PresenceWalk([Event(op) for op in changes if op.outcome != "fail"], judged)
    for lack in walk.run(appends, reads):
        yield _build_anomaly(lack, final=lack.read is reads[-1])


# What happens at one moment, in this order: a removal excuses what is done at its moment, a read
# need not show what is acknowledged at its moment, and is compared with later ones when it is over.
_REMOVAL, _BEGIN, _READ, _ACKNOWLEDGED, _READ_OVER = range(5)


@dataclass(slots=True)
class _PresenceWalk:
    """Walks through a session in the order of time and counts what must be there."""

    effects: list[Event]
    judged: Collection[str]
    must: Counter[str] = field(default_factory=Counter)
    # Appends of each hash that have begun and are not acknowledged: a read may show them already.
    open: Counter[str] = field(default_factory=Counter)
    # No removal that has begun can take effect after this moment.
    removed_until: int = -1
    acknowledged: dict[str, list[Operation]] = field(default_factory=dict)
    lacks: list[_Lack] = field(default_factory=list)
    lacking: dict[str, _Lack] = field(default_factory=dict)

    def run(self, appends: Sequence[Event], reads: Sequence[TraceOperation]) -> list[_Lack]:
        """Return all reads that lack something."""
        moments: list[tuple[int, int, Event | TraceOperation]] = []
        moments += [(event.lo, _REMOVAL, event) for event in self.effects]
        for event in appends:
            moments += [(event.lo, _BEGIN, event), (event.hi, _ACKNOWLEDGED, event)]
        for read in reads:
            moments += [(read.invoke_ns, _READ, read), (read.complete_ns or 0, _READ_OVER, read)]
        starts = sorted(event.lo for event in self.effects)
        for moment, kind, what in sorted(moments, key=lambda each: each[:2]):
            if isinstance(what, Event):
                if kind == _REMOVAL:
                    self.must.clear()
                    self.removed_until = max(self.removed_until, what.hi)
                else:
                    self._add_append(what, begins=kind == _BEGIN)
            elif kind == _READ:
                end = what.complete_ns or 0
                disturbed = bisect_right(starts, end) > bisect_right(starts, moment)
                self._check_read(what, disturbed=disturbed)
            elif what.invoke_ns > self.removed_until:
                self._expect_shown(what)
        return self.lacks

    def _add_append(self, event: Event, *, begins: bool) -> None:
        for one in map(strip_fields, event.op.ids):
            if one in self.judged:
                continue
            self.open[one] += 1 if begins else -1
            if not begins:
                self.acknowledged.setdefault(one, []).append(event.op)
                if event.lo > self.removed_until:
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
    return Anomaly(name, read.session, (one,), (*lack.witness, read), proof)
