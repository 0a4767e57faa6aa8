"""Programs of one caller against the pure model: nothing overlaps, so every answer is known."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

from memory_contract import model
from memory_contract.adapter import CAPABILITIES
from memory_contract.calls import Call
from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.workload import LEADS, build_call, pace
from memory_contract.history import Operation, OpName
from memory_contract.model import ModelState

OPS: Final[tuple[OpName, ...]] = (
    *("append", "pop", "trim", "clear", "snapshot", "rollback", "fork", "undo"),
)
# For each operation, calls on a new session that end with it.
PROGRAMS: Final[dict[str, tuple[OpName, ...]]] = {
    op: (*OPS[:1] * 3, *LEADS.get(op, ()), op) for op in OPS[1:]
}
CHANGES: Final[frozenset[OpName]] = frozenset({"pop", "trim", "clear", "rollback"})
STEPS: Final = 3
# So that a slow store is done within seconds.
PROGRAMS_S: Final = 8.0
RANDOM_STEPS: Final = 180
# Few sessions, so that each has a long life.
RANDOM_SESSIONS: Final = 2


@dataclass(slots=True)
class ExpectedSession:
    """A session as the model has it, with what was done to it; every answer is compared."""

    session: str
    # Who reads it after each step, beside the client that made it.
    readers: Sequence[Client] = ()
    state: ModelState = model.EMPTY
    done: list[str] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    # For each change, whether it was visible. Stores differ in whether they count a change that
    # changed nothing, so such a change is not undone.
    seen: list[bool] = field(default_factory=list)

    def allows(self, op: OpName) -> bool:
        """Whether every correct store would accept this now."""
        if op == "undo":
            return bool(self.seen) and self.seen[-1]
        if op == "rollback":
            return bool(self.snapshots)
        return op != "fork" or bool(self.state.shown)

    def run(self, store: Client, *ops: OpName) -> list[ExpectedSession]:
        """Make these calls, as far as they are claimed and allowed; returns forked sessions."""
        made = [self.step(store, op) for op in _list_claimed(store.context, ops) if self.allows(op)]
        return [forked for forked in made if forked is not None]

    def step(self, store: Client, op: OpName, **given: Any) -> ExpectedSession | None:
        """Make one call and read the session; for a fork, returns the new session.

        Fields of the call that are not `given` are drawn by the seed.
        """
        store.context.is_compared = True
        call = replace(self._build_call(store.context, op), **given)
        self.done.append(op)
        try:
            done = store.make(call)
        except Exception:
            # A correct store may refuse to change what is empty.
            if self.state.shown or op not in {"pop", "trim", "clear", "snapshot"}:
                # For the checker, which knows what a refused call may not have left.
                with contextlib.suppress(Exception):
                    store.read(self.session)
                raise
        else:
            self._compare(store, done)
            self._advance(done)
        self.look(store, *self.readers)
        if op != "fork" or call.target is None:
            return None
        forked = ExpectedSession(
            call.target, self.readers, ModelState(self.state.shown), [*self.done]
        )
        forked.look(store, *self.readers)
        return forked

    def look(self, *readers: Client, limit: int | None = None) -> None:
        """Read, and compare with the model."""
        for reader in dict.fromkeys(readers):
            self._compare(reader, reader.make(Call(op="read", session=self.session, limit=limit)))

    def _build_call(self, context: CaseContext, op: OpName) -> Call:
        random, turn = context.random, 2 if context.adapter.pairs else 1
        few = random.choice((1, 1, 2))
        taken = random.choice(self.snapshots) if op == "rollback" else context.new_name("s")
        return build_call(context, op, self.session, count=few, keep=turn * few, snapshot=taken)

    def _advance(self, done: Operation) -> None:
        before = self.state.shown
        after = model.apply_operation(self.state, done, journal=True)
        assert after is not None, "the model was asked for what it refuses"
        self.state = after
        if done.op == "snapshot":
            self.snapshots.append(done.snapshot or "")
        elif done.op == "undo":
            self.seen.pop()
        elif done.op in CHANGES:
            self.seen.append(before != after.shown)

    def _compare(self, store: Client, done: Operation) -> None:
        if not model.is_consistent(self.state, done):
            said = done.value if isinstance(done.value, tuple) else (str(done.value),)
            limit = f" of the newest {done.limit}" if done.limit is not None else ""
            proof = (
                f"after {', '.join(self.done[-12:])}, a {done.op}{limit} gave [{' '.join(said)}]"
            )
            must = f", where the session must show [{' '.join(self.state.shown)}]"
            store.context.fail("differs from the model", proof + must, session=self.session)


def _list_claimed(context: CaseContext, ops: Iterable[OpName]) -> list[OpName]:
    return [op for op in ops if op not in CAPABILITIES or context.claims(op)]


def run_program(store: Client, session: str, program: Sequence[OpName]) -> None:
    """Make these calls on a new session, as far as the model allows them, and compare."""
    expected = ExpectedSession(session)
    made = [expected.step(store, op) for op in program if expected.allows(op)]
    for forked in filter(None, made):
        # Later changes of the source must not show in the fork.
        forked.look(store)


@case("sequential", catches="an error that only one order of operations shows")
def short_programs(context: CaseContext) -> None:
    """Run every program of three operations after an append, and read after each."""
    store, ops = context.open(), _list_claimed(context, OPS)
    for op in ops:
        run_program(store, context.new_session(), (op, "append"))
    programs = product(ops, repeat=STEPS)
    everything = [("append", *steps) for steps in programs if _is_sensible(steps)]
    # In random order, so that a slow store runs some of each kind.
    context.random.shuffle(everything)
    for program in pace(context, everything, "short programs", within_s=PROGRAMS_S):
        # A report of a failure shows its program alone.
        context.history.clear()
        run_program(store, context.new_session(), program)


def _is_sensible(steps: tuple[OpName, ...]) -> bool:
    """Whether every rollback has a snapshot before it, and every undo a change."""
    for place, op in enumerate(steps):
        before = set(steps[:place])
        if op == "rollback" and "snapshot" not in before:
            return False
        if op == "undo" and not before & CHANGES:
            return False
    return True


@case("sequential", catches="an error that only a long session shows")
def random_programs(context: CaseContext) -> None:
    """Run random operations on several sessions by turns, and read after each."""
    store, random = context.open(), context.random
    callers = [store] if context.adapter.reach == "handle" else [store, context.open()]
    turn, ops = 2 if context.adapter.pairs else 1, _list_claimed(context, OPS)
    expected = [ExpectedSession(context.new_session()) for _ in range(RANDOM_SESSIONS)]
    for _ in pace(context, range(RANDOM_STEPS), "random steps", within_s=PROGRAMS_S, least=12):
        store, session = random.choice(callers), random.choice(expected)
        allowed = [op for op in ops if session.allows(op)]
        if forked := session.step(store, random.choice(["append", *allowed])):
            expected[random.randrange(RANDOM_SESSIONS)] = forked
        if context.claims("limit"):
            session.look(store, limit=turn * random.randint(1, 6))
    reader = context.open_elsewhere()
    for session in expected:
        session.look(reader)
