"""Legal histories, made by a right store in simulated time: nothing waits, a seed is a history.

Each operation takes effect at one instant between its two times. One with an unknown outcome may
take effect later, or never; a failed one never does. Times are small, so that many are equal.
"""

import random
from dataclasses import dataclass, field, replace

from memory_contract import NOT_FOUND, Operation
from memory_contract.model import EMPTY, ModelState, apply_operation, get_snapshot, keep_newest

PLAIN = ("append", "read")
EVERYTHING = (
    *("append",) * 6,
    *("read",) * 6,
    *("limit",) * 2,
    *("pop",) * 2,
    "trim",
    "clear",
    *("snapshot",) * 2,
    "rollback",
    "look",
    "undo",
    "fork",
    "expire",
)
LATE = 40


@dataclass
class Store:
    """One right store; what the contract leaves open is drawn once for each."""

    rng: random.Random
    # How many entries it keeps; None if all.
    keeps_last: int | None = None
    states: dict = field(default_factory=dict)
    answers: dict = field(default_factory=dict)

    def __post_init__(self):
        self.undoes_pops = self.rng.random() < 0.5
        self.expiry_takes_snapshots = self.rng.random() < 0.5
        self.expiry_takes_keys = self.rng.random() < 0.5
        # Whether an append drops older entries, or a read leaves them out.
        self.drops = self.keeps_last is not None and self.rng.random() < 0.5

    def perform(self, op):
        """Take effect now; the outcome and the value that the caller gets."""
        memory = (op.session, op.op, op.key)
        if op.key is not None and memory in self.answers:
            return self.answers[memory]
        answer = self._perform(op)
        if op.key is not None and answer[0] == "ok":
            self.answers[memory] = answer
        return answer

    def _perform(self, op):  # noqa: PLR0911 -- one answer for each kind
        state = self.states.get(op.session, EMPTY)
        shown = state.shown
        if op.op == "read":
            seen = get_snapshot(state, op.snapshot) if op.snapshot else shown
            if seen is None:
                return "fail", NOT_FOUND
            return "ok", keep_newest(self.show(seen), op.limit)
        if op.op == "fork":
            return self._fork(op, state)
        journal = op.op != "pop" or self.undoes_pops
        doing = op if op.op != "append" or self.drops else replace(op, keep=None)
        after = apply_operation(state, doing, journal=journal)
        if after is None:
            return "fail", NOT_FOUND if op.op == "rollback" else None
        if not journal and op.op == "pop":
            # A pop that no undo knows of is gone from what every undo would show.
            gone = shown[-1:]
            lines = tuple(tuple(i for i in line if i not in gone) for line in state.journal)
            after = ModelState(shown[:-1], state.snapshots, lines)
        if op.op == "expire":
            self._forget(op, after)
        else:
            self.states[op.session] = after
        if op.op == "pop":
            return "ok", shown[-1] if shown else None
        if op.op == "snapshot" and self.rng.random() < 0.3:
            return "ok", self.show(shown)
        if op.op == "rollback" and self.rng.random() < 0.3:
            return "ok", self.show(after.shown)
        return "ok", None

    def show(self, ids):
        return keep_newest(ids, self.keeps_last)

    def _fork(self, op, state):
        seen = get_snapshot(state, op.snapshot) if op.snapshot else state.shown
        if seen is None or op.target in self.states:
            return "fail", None
        self.states[op.target] = ModelState(seen)
        return "ok", None

    def _forget(self, op, after):
        self.states[op.session] = ModelState() if self.expiry_takes_snapshots else after
        if self.expiry_takes_keys:
            self.answers = {k: v for k, v in self.answers.items() if k[0] != op.session}


class Simulation:
    def __init__(
        self,
        seed,
        *,
        ops=24,
        kinds=EVERYTHING,
        sessions=2,
        unknown=0.08,
        failed=0.05,
        keeps_last=None,
    ):
        self.rng = random.Random(seed)
        self.keeps_last = keeps_last
        self.kinds, self.unknown, self.failed = kinds, unknown, failed
        # Half of the histories have no expiry, undo or fork: those take away the most certainty.
        if self.rng.random() < 0.5:
            self.kinds = tuple(k for k in kinds if k not in {"expire", "undo", "fork"})
        self.sessions = [f"s{n}" for n in range(self.rng.randint(1, sessions))]
        self.names = {}
        self.entries = 0
        self.plans = []
        self.clocks = {f"w{n}": self.rng.randint(0, 3) for n in range(self.rng.randint(2, 4))}
        for _ in range(ops):
            self.plan()

    def plan(self):
        worker = min(self.clocks, key=self.clocks.get)
        op = self.draw(worker)
        attempts = 1
        keyed = op.op in {"append", "pop", "clear", "trim", "snapshot", "rollback", "fork"}
        if keyed and self.rng.random() < 0.15:
            op = replace(op, key=f"k{len(self.plans)}")
            attempts = self.rng.choice((1, 2, 2, 3))
        for attempt in range(attempts):
            lo = self.clocks[worker] + self.rng.randint(0, 3)
            hi = lo + self.rng.randint(0, 6)
            self.clocks[worker] = hi
            outcome = (
                self.outcome()
                if attempt == attempts - 1
                else self.rng.choice(("info", "fail", "info", "ok"))
            )
            if op.op == "expire":
                worker = "clock"
                outcome = "info" if outcome == "info" else "ok"
            self.add(replace(op, worker=worker, invoke_ns=lo, complete_ns=hi, outcome=outcome))

    def outcome(self):
        drawn = self.rng.random()
        return (
            "info"
            if drawn < self.unknown
            else "fail"
            if drawn < self.unknown + self.failed
            else "ok"
        )

    def add(self, op):
        instant = self.rng.randint(op.invoke_ns, op.complete_ns)
        if op.outcome == "info":
            if self.rng.random() < 0.5:
                instant = op.invoke_ns + self.rng.randint(0, LATE)
            if self.rng.random() < 0.4:
                instant = None
            if self.rng.random() < 0.3 and op.key is None:
                op = replace(op, complete_ns=None)
        elif op.outcome == "fail":
            instant = None
        self.plans.append((instant, self.rng.random(), op))

    def draw(self, worker):  # noqa: PLR0911 -- one draw for each kind
        kind = self.rng.choice(self.kinds)
        session = self.rng.choice(self.sessions)
        made = {
            "worker": worker,
            "session": session,
            "invoke_ns": 0,
            "complete_ns": 0,
            "outcome": "ok",
        }
        if kind == "append":
            size = self.rng.choice((1, 1, 1, 2, 3))
            ids = tuple(f"e{self.entries + n}" for n in range(size))
            self.entries += size
            return Operation(op="append", ids=ids, keep=self.keeps_last, **made)
        if kind in {"limit", "read"}:
            limit = self.rng.randint(0, 4) if kind == "limit" else None
            return Operation(op="read", limit=limit, **made)
        if kind == "trim":
            return Operation(op="trim", keep=self.rng.randint(0, 4), **made)
        if kind == "snapshot":
            known = self.names.setdefault(session, [])
            # Now and then a name is taken again.
            fresh = f"{session}/{len(known)}"
            name = self.rng.choice(known) if known and self.rng.random() < 0.1 else fresh
            known.append(name)
            return Operation(op="snapshot", snapshot=name, **made)
        if kind in {"rollback", "look"}:
            name = self.rng.choice(self.names.get(session) or ["nothing"])
            return Operation(op="rollback" if kind == "rollback" else "read", snapshot=name, **made)
        if kind == "fork":
            target = f"f{len(self.plans)}"
            self.sessions.append(target)
            from_snapshot = self.names.get(session) and self.rng.random() < 0.3
            name = self.rng.choice(self.names[session]) if from_snapshot else None
            return Operation(op="fork", target=target, snapshot=name, **made)
        return Operation(op=kind, **made)

    def final_reads(self):
        end = max(op.complete_ns or op.invoke_ns for _, _, op in self.plans) + 1
        for n, session in enumerate(self.sessions):
            self.add(
                Operation(
                    worker="final",
                    session=session,
                    op="read",
                    invoke_ns=end + 2 * n,
                    complete_ns=end + 2 * n + 1,
                    outcome="ok",
                )
            )

    def run(self):
        """Let everything take effect, each at its instant, and return what was recorded."""
        self.final_reads()
        store = Store(self.rng, self.keeps_last)
        done = [op for instant, _, op in self.plans if instant is None]
        for _, _, op in sorted(p for p in self.plans if p[0] is not None):
            outcome, value = store.perform(op)
            if op.outcome == "info":
                outcome, value = "info", None
            done.append(replace(op, outcome=outcome, value=value))
        self.rng.shuffle(done)
        return done


def legal(seed, **options):
    """The history of this seed."""
    return Simulation(seed, **options).run()
