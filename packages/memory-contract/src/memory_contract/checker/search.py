"""The last resort on a small session: find an order of its operations that explains it.

A depth-first search over orders that respect the clock, in the manner of porcupine, on the pure
model. It is bounded by steps, not by time, so that one history has one verdict on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from memory_contract import model
from memory_contract.checker.events import FOREVER, Event, SessionHistory
from memory_contract.checker.verdict import Anomaly, Name
from memory_contract.history import Operation

OPERATIONS_MAX = 200
STEPS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Stuck:
    """The end of the longest order: the state, and the operation that does not fit."""

    state: model.ModelState
    op: Operation


class _Vanishing(Event):
    """An append that was never acknowledged is gone, although it was seen."""

    __slots__ = ()


class _Search:
    def __init__(self, events: list[Event], steps: int) -> None:
        self.events = sorted(events, key=lambda event: (event.lo, event.hi))
        self.steps = steps
        self.needs = _find_predecessors(self.events)
        self.sure = sum(1 << at for at, event in enumerate(self.events) if event.sure)
        self.tried: set[tuple[int, model.ModelState]] = set()
        self.farthest = -1
        self.stuck: Stuck | None = None

    def run(self) -> bool | None:
        """True if an order was found, False if there is none, None if the steps ran out."""
        stack = [(0, model.EMPTY)]
        while stack:
            done, state = stack.pop()
            if (done, state) in self.tried:
                continue
            self.tried.add((done, state))
            self.steps -= 1
            if self.steps < 0:
                return None
            if done & self.sure == self.sure:
                return True
            stack += self._list_next(done, state)
        return False

    def _list_next(self, done: int, state: model.ModelState) -> list[tuple[int, model.ModelState]]:
        """List the next states; a read that fits is taken at once, since it changes nothing."""
        after: list[tuple[int, int, model.ModelState]] = []
        bound = FOREVER
        blocked: Event | None = None
        for at, event in enumerate(self.events):
            if done >> at & 1:
                continue
            if event.lo > bound:
                break
            bound = min(bound, event.hi)
            fits = not self.needs[at] & ~done
            fits = fits and (not event.sure or model.is_consistent(state, event.op))
            if fits and event.op.op == "read":
                return [(done | 1 << at, state)]
            comes_to = [s for s in self._steps(state, event) if s is not None] if fits else []
            if not event.sure:
                comes_to = [s for s in comes_to if s != state]
            after += [(event.hi, done | 1 << at, state_after) for state_after in comes_to]
            if not comes_to and event.sure and (blocked is None or event.hi < blocked.hi):
                blocked = event
        self._remember(done, state, blocked)
        # The stack is taken from its end: what must be over first is tried first, and what need
        # not have happened at all comes last.
        after.sort(key=lambda item: -item[0])
        return [(done_after, state_after) for _, done_after, state_after in after]

    def _steps(self, state: model.ModelState, event: Event) -> list[model.ModelState | None]:
        """List the states after an event; a trim may have several."""
        if isinstance(event, _Vanishing):
            return [replace(state, shown=tuple(i for i in state.shown if i not in event.op.ids))]
        if event.op.op != "trim":
            return [model.apply_operation(state, event.op)]
        # A trim may look first and act then: what was appended meanwhile stays beside the rest.
        meanwhile = {
            id_
            for append in self.events
            if append.op.op == "append" and append.within(event.lo, event.hi)
            for id_ in append.op.ids
        }
        late = sum(1 for _ in takewhile(meanwhile.__contains__, reversed(state.shown)))
        keep = event.op.keep or 0
        return [
            model.apply_operation(state, replace(event.op, keep=keep + more))
            for more in range(late + 1)
        ]

    def _remember(self, done: int, state: model.ModelState, blocked: Event | None) -> None:
        depth = (done & self.sure).bit_count()
        if blocked is not None and depth > self.farthest:
            self.farthest, self.stuck = depth, Stuck(state, blocked.op)


def _find_predecessors(events: list[Event]) -> list[int]:
    """For each event, as bits, the appends that must come before it by what was seen."""
    place = {
        id_: at
        for at, event in enumerate(events)
        if event.op.op == "append"
        for id_ in event.op.ids
    }
    needs = [0] * len(events)
    for event in events:
        if isinstance(event.op.value, tuple) and event.sure:
            for first, then in pairwise(event.op.value):
                one, two = place.get(first), place.get(then)
                if one is not None and two is not None and one != two:
                    needs[two] |= 1 << one
    return needs


def _tighten_append(session: SessionHistory, event: Event) -> Event:
    """An append whose entries were seen took effect by then, whatever it came to."""
    known = [session.entries[id_].hi for id_ in event.op.ids]
    seen = Event(event.op)
    seen.lo, seen.hi = event.lo, min(known)
    seen.sure = seen.hi < FOREVER
    return seen


def find_search_obstacle(session: SessionHistory) -> str | None:
    """Why a session cannot be searched; None if it can."""
    if session.of("undo"):
        return "undo is not searched"
    if session.keeps_last is not None and session.of("pop"):
        # Which entry is the newest then depends on whether the store drops or hides older ones.
        return "a pop from a window is not searched"
    if session.forked:
        return "a forked session is not searched"
    taken = {event.op.snapshot for event in session.of("snapshot")}
    asked = {event.op.snapshot for event in session.of("rollback") if event.sure}
    if not asked | {name for name, _, _ in session.contents} <= taken:
        return "a snapshot is older than the record"
    size = sum(1 for _ in session.operations())
    if size > OPERATIONS_MAX:
        return f"{size} operations are too many to search"
    return None


def search(
    session: SessionHistory, *, steps: int = STEPS_MAX, flicker: bool = True
) -> Stuck | bool | None:
    """True: an order exists. Stuck: none does. None: the steps ran out.

    Without `flicker`, what was seen and never acknowledged may be gone later.
    """
    events = [_tighten_append(session, event) for event in session.of("append")]
    if not flicker:
        unsure = [event.op for event in session.of("append") if not event.sure]
        events += [_Vanishing(replace(op, op="clear")) for op in unsure]
    # A snapshot that nobody returns to or looks at would only make equal states look different.
    used = {event.op.snapshot for event in session.of("rollback")}
    used |= {name for name, _, _ in session.contents}
    events += [event for event in session.of("snapshot") if event.op.snapshot in used]
    events += session.changes()
    events += [Event(read) for read in session.reads]
    events += [Event(op) for _, _, op in session.contents if op.op == "read"]
    run = _Search(events, steps)
    found = run.run()
    return run.stuck if found is False and run.stuck is not None else found


def build_no_order(session: SessionHistory, stuck: Stuck) -> Anomaly:
    """The violation that the search proved, named after the operation that nothing explains."""
    op, shown = stuck.op, stuck.state.shown
    name, ids = _choose_name(stuck)
    origins = [session.entries[id_].event.op for id_ in ids[:2] if id_ in session.entries]
    end = op.complete_ns or 0
    causes = [e.op for e in session.changes() if e.op is not op and e.lo <= end]
    witness = (*origins, *sorted(causes, key=lambda op: op.invoke_ns)[-2:], op)
    saw = op.value if op.value is None or isinstance(op.value, str) else " ".join(op.value)
    proof = (
        f"no order of the session's operations explains the {op.op} of {op.worker}: it saw "
        f"[{saw or ''}], and the longest order that fits ends with [{' '.join(shown)}]."
    )
    return Anomaly(name, session.name, ids, tuple(dict.fromkeys(witness)), proof)


def _choose_name(stuck: Stuck) -> tuple[Name, tuple[str, ...]]:
    op, shown = stuck.op, set(stuck.state.shown)
    if op.op == "pop":
        return ("false empty", ()) if op.value is None else ("wrong pop", (str(op.value),))
    if op.op != "read" or not isinstance(op.value, tuple) or op.snapshot is not None:
        return "rollback mismatch", ()
    if more := tuple(id_ for id_ in op.value if id_ not in shown):
        return "resurrected entry", more
    asked = model.keep_newest(stuck.state.shown, op.limit)
    lacking = tuple(id_ for id_ in asked if id_ not in op.value)
    return "stale read", lacking
