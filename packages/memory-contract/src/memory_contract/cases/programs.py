"""Programs of one caller against the pure model: nothing overlaps, so every answer is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Final

from memory_contract import model
from memory_contract.adapter import CAPABILITIES
from memory_contract.calls import Call
from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.workload import pace
from memory_contract.entries import EntryIds
from memory_contract.history import Operation, OpName

OPS: Final[tuple[OpName, ...]] = (
    "append",
    "pop",
    "trim",
    "clear",
    "snapshot",
    "rollback",
    "fork",
    "undo",
)
CHANGES: Final[frozenset[OpName]] = frozenset({"pop", "trim", "clear", "rollback"})
STEPS: Final = 3
# So that a slow store with every capability is done within seconds.
PROGRAMS_MAX: Final = 200
PROGRAMS_S: Final = 8.0
RANDOM_STEPS: Final = 180
# Few sessions, so that each has a long life.
RANDOM_SESSIONS: Final = 2


@dataclass(slots=True)
class ExpectedSession:
    """A session as the model has it, with what was done to it."""

    session: str
    # The states that all answers so far allow; more than one if the store may still show again, or
    # have dropped, what is older than the entries that it keeps.
    states: tuple[model.ModelState, ...] = (model.EMPTY,)
    done: list[str] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    # For each journal line, whether that change was visible. Stores differ in whether they count a
    # change that changed nothing, so such a change is not undone.
    seen: list[bool] = field(default_factory=list)

    @property
    def state(self) -> model.ModelState:
        """One of the states."""
        return self.states[0]

    def allows(self, op: OpName) -> bool:
        """Whether every correct store would accept this now."""
        if op == "undo":
            return bool(self.seen) and self.seen[-1]
        if op == "rollback":
            return bool(self.snapshots)
        return op != "fork" or bool(self.state.shown)

    def mild(self, op: OpName) -> bool:
        """Whether a correct store may refuse this, because the session is empty."""
        return not self.state.shown and op in {"pop", "trim", "clear", "snapshot"}


class ModelRunner:
    """Makes calls, and compares every answer with the model."""

    def __init__(self, context: CaseContext, ids: EntryIds) -> None:
        self.context = context
        self.ids = ids
        self.unit = 2 if context.adapter.pairs else 1

    def step(self, store: Client, belief: ExpectedSession, op: OpName) -> ExpectedSession | None:
        """Make one call on a session and read it; for a fork, returns the new session."""
        call = self._call(belief, op)
        belief.done.append(op)
        try:
            done = store.make(call)
        except Exception:
            if not belief.mild(op):
                raise
            self.look(store, belief)
            return None
        self._hold(belief, done)
        self._advance(belief, done)
        self.look(store, belief)
        if op != "fork":
            return None
        assert call.target is not None
        copies = dict.fromkeys(model.ModelState(state.shown) for state in belief.states)
        forked = ExpectedSession(call.target, tuple(copies), [*belief.done])
        self.look(store, forked)
        return forked

    def look(self, store: Client, belief: ExpectedSession, limit: int | None = None) -> None:
        """Read, and compare with the model."""
        self._hold(belief, store.make(Call(op="read", session=belief.session, limit=limit)))

    def _call(self, belief: ExpectedSession, op: OpName) -> Call:
        session, random = belief.session, self.context.random
        match op:
            case "append":
                count = random.choice((1, 1, 2)) if self.context.adapter.batches else 1
                ids = self.ids.draw(count, pairs=self.context.adapter.pairs)
                return Call(op=op, session=session, ids=ids)
            case "trim":
                return Call(op=op, session=session, keep=self.unit * random.choice((1, 1, 2)))
            case "snapshot":
                return Call(op=op, session=session, snapshot=self.context.new_name("s"))
            case "rollback":
                return Call(op=op, session=session, snapshot=random.choice(belief.snapshots))
            case "fork":
                return Call(op=op, session=session, target=self.context.new_session())
            case _:
                return Call(op=op, session=session)

    def _advance(self, belief: ExpectedSession, done: Operation) -> None:
        before = belief.state
        after = [self._apply(state, done) for state in belief.states]
        belief.states = tuple(dict.fromkeys(chain.from_iterable(after)))
        assert belief.states, "the model was asked for what it refuses"
        if done.op == "snapshot":
            belief.snapshots.append(done.snapshot or "")
        elif done.op == "undo":
            belief.seen.pop()
        elif len(belief.state.journal) > len(before.journal):
            belief.seen.append(self._show(before).shown != self._show(belief.state).shown)

    def _apply(self, state: model.ModelState, done: Operation) -> Iterable[model.ModelState]:
        if done.op == "append":
            return model.apply_append(state, done, journal=True)
        after = model.apply_operation(state, done, journal=True)
        return () if after is None else (after,)

    def _show(self, state: model.ModelState) -> model.ModelState:
        return model.show_newest(state, self.context.adapter.keeps_last)

    def _hold(self, belief: ExpectedSession, done: Operation) -> None:
        fitting = [s for s in belief.states if model.is_consistent(self._show(s), done)]
        if fitting:
            belief.states = tuple(fitting)
            return
        said = done.value if isinstance(done.value, tuple) else (str(done.value),)
        limit = f" of the newest {done.limit}" if done.limit is not None else ""
        self.context.fail(
            "differs from the model",
            f"after {', '.join(belief.done[-12:])}, a {done.op}{limit} gave [{' '.join(said)}], "
            f"where the session must show [{' '.join(self._show(belief.state).shown)}]",
            session=belief.session,
        )


def _list_claimed(context: CaseContext) -> list[OpName]:
    return [op for op in OPS if op not in CAPABILITIES or context.adapter.claims([op])]


@case("sequential", catches="a slip that only one order of operations shows")
def short_programs(context: CaseContext) -> None:
    """Run every program of three steps after an append, and look after each step."""
    store, machine = context.open(), ModelRunner(context, EntryIds("p"))
    ops = _list_claimed(context)
    for op in ops:
        _run_program(context, store, machine, (op, "append"))
    programs = product(ops, repeat=STEPS)
    everything = [("append", *steps) for steps in programs if _is_sensible(steps)]
    # In random order, so that a slow store runs some of each kind.
    chosen = context.random.sample(everything, min(len(everything), PROGRAMS_MAX))
    if len(everything) > PROGRAMS_MAX:
        context.note(f"short programs: {len(chosen)} of {len(everything)}, by seed")
    for program in pace(context, chosen, "short programs", within_s=PROGRAMS_S):
        _run_program(context, store, machine, program)


def _is_sensible(steps: tuple[OpName, ...]) -> bool:
    """Whether every rollback has a snapshot before it, and every undo a change."""
    for place, op in enumerate(steps):
        before = set(steps[:place])
        if op == "rollback" and "snapshot" not in before:
            return False
        if op == "undo" and not before & CHANGES:
            return False
    return True


def _run_program(
    context: CaseContext, store: Client, machine: ModelRunner, program: tuple[OpName, ...]
) -> None:
    before = len(context.history)
    belief, forks = ExpectedSession(context.new_session()), []
    for op in program:
        if belief.allows(op):
            forked = machine.step(store, belief, op)
            forks += [forked] if forked is not None else []
    for forked in forks:
        # Later changes of the source must not show in the fork.
        machine.look(store, forked)
    # Every answer was compared; the checker cannot say more.
    del context.history[before:]


@case("sequential", catches="a slip that only a long life shows")
def random_programs(context: CaseContext) -> None:
    """Do what the seed says to several sessions by turns, and look after each step."""
    first = context.open()
    callers = [first] if context.adapter.reach == "handle" else [first, context.open()]
    machine, ops = ModelRunner(context, EntryIds("p")), _list_claimed(context)
    beliefs = [ExpectedSession(context.new_session()) for _ in range(RANDOM_SESSIONS)]
    before, limited = len(context.history), context.adapter.claims(["limit"])
    for _ in pace(context, range(RANDOM_STEPS), "random steps", within_s=PROGRAMS_S, least=12):
        store, belief = context.random.choice(callers), context.random.choice(beliefs)
        allowed = [op for op in ops if belief.allows(op)]
        forked = machine.step(store, belief, context.random.choice(["append", *allowed]))
        if forked is not None:
            beliefs[context.random.randrange(RANDOM_SESSIONS)] = forked
        if limited:
            machine.look(store, belief, machine.unit * context.random.randint(1, 6))
    reader = context.open_elsewhere()
    for belief in beliefs:
        machine.look(reader, belief)
    # Every answer was compared; the checker cannot say more.
    del context.history[before:]
