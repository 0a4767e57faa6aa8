"""Reports to write down: one of a store that really loses messages, and one of every verdict."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from memory_contract import Adapter, CaseResult, Operation, Report, Violated, check
from memory_contract.cases.catalogue import all_cases
from memory_contract.checker import judge
from memory_contract.gates import Gate
from memory_contract.history import Fault
from memory_contract.results import build_case_failure

SEED = 7
HOSTILE = "</script><img src=x onerror=\"document.title='gone'\">'{{data}}\u202e\x1b[2J\n<!--"
HALF = "half a character: \ud800"


class ReadModifyWrite:
    """Two appends that read the same file before either writes it: one of them is lost."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def _path(self, session: str) -> Path:
        name = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return self._workspace / f"{name}.json"

    async def append(self, session, messages):
        before = await self.read(session)
        # Another task runs here, whatever the machine does: so the loss is certain.
        await asyncio.sleep(0)
        self._path(session).write_text(json.dumps([*before, *messages]), "utf-8")

    async def read(self, session):
        path = self._path(session)
        return json.loads(path.read_text("utf-8")) if path.exists() else []


adapter = Adapter(
    open_async="tests.support.report_samples:ReadModifyWrite",
    name="tests.support.report_samples:adapter",
    reach="process",
)


@cache
def lossy() -> Report:
    """What the kit says of the store above."""
    return check(
        "tests.support.report_samples:adapter",
        cases=["append_then_read", "append_storm"],
        seed=SEED,
        budget_s=5,
    )


def op(name, worker, times, session="c-1", outcome="ok", **rest) -> Operation:
    begin, end = times
    return Operation(
        worker=worker,
        session=session,
        op=name,
        invoke_ns=begin * 1_000_000,
        complete_ns=None if end is None else end * 1_000_000,
        outcome=outcome,
        **rest,
    )


def failing(case: str, history: list[Operation], **rest) -> CaseResult:
    """A case whose history the checker finds fault with."""
    verdict = judge(history)
    assert isinstance(verdict, Violated)
    failures = verdict.anomalies
    return CaseResult(
        gate="concurrency",
        case=case,
        mode="threads",
        verdict="FAIL",
        reason=failures[0].proof,
        failures=failures,
        seed=SEED,
        duration_s=0.25,
        history=tuple(history),
        **rest,
    )


def lost(session: str = "c-1", worker: str = "w0") -> CaseResult:
    """An acknowledged entry that the last read lacks, between an unknown and a refused append."""
    return failing(
        "append_storm",
        [
            op("append", worker, (1, 4), session, ids=("e1",)),
            op("append", "w1", (2, 3), session, ids=("e2",)),
            op("append", "w2", (2, None), session, "info", ids=("e3",)),
            op("append", "w3", (2, 5), session, "fail", ids=("e4",)),
            op("append", "w1", (6, 7), session, "info", ids=("e5",)),
            op("append", "w1", (8, 9), "c-other", ids=("e6",)),
            op("read", "c2", (900, 901), session, value=("e2",)),
        ],
    )


def reordered() -> CaseResult:
    """Two reads that turn a pair around."""
    return failing(
        "mixed_storm",
        [
            op("append", "w0", (1, 9), ids=("a1", "a2")),
            op("append", "w1", (1, 9), ids=("b1",)),
            op("read", "c1", (10, 11), value=("a1", "a2", "b1")),
            op("read", "c2", (12, 13), value=("b1", "a1", "a2")),
        ],
    )


def explored() -> CaseResult:
    """A loss under a schedule that was sought for."""
    words = "seed 7, 1 switch: w1#7>w0\n  w1 stops in read\nexact: the seed brings it back"
    return replace(lost(), mode="tasks", schedule=words)


def killed() -> Report:
    """A loss between two kills, after a fault that has nothing to do with it."""
    found = replace(
        lost(),
        gate="crash",
        case="kill9_under_load",
        mode="blocking",
        faults=(
            Fault(name="fork", began_ns=0, ended_ns=500_000),
            Fault(name="kill -9", began_ns=20_000_000, ended_ns=21_000_000),
            Fault(name="kill -9", began_ns=30_000_000, ended_ns=None),
        ),
    )
    return Report(target="mod:killed", seed=SEED, gates=("crash",), results=(found,))


def expiring() -> CaseResult:
    """A case that passed, with a window in which its session's life ends."""
    return CaseResult(
        gate="lifecycle",
        case="ttl_ends_everything",
        mode="blocking",
        verdict="PASS",
        history=(
            op("append", "c1", (1, 2), ids=("e1",)),
            op("expire", "clock", (100, 200)),
            op("read", "c1", (300, 301), value=()),
        ),
        notes=("it expired early in its window",),
    )


def unexpected() -> CaseResult:
    """A failure that the case noticed, with no operation to show for it."""
    failure = build_case_failure("hangs", "lock_is_bounded did not end within 240 s")
    return result("concurrency", "lock_is_bounded", "FAIL", failure.proof, failures=(failure,))


def result(gate: Gate, case: str, verdict, reason="", **rest) -> CaseResult:
    rest.setdefault("mode", "threads" if gate == "concurrency" else "blocking")
    return CaseResult(gate=gate, case=case, verdict=verdict, reason=reason, seed=SEED, **rest)


def every_verdict() -> Report:
    """One result of each kind, and more."""
    unclaimed = "the store does not claim ttl"
    results = (
        result("sequential", "append_then_read", "PASS", duration_s=0.01),
        result("sequential", "same_words_twice", "DEVIATION", "it folds repeats: see its manual"),
        result("sequential", "random_programs", "UNKNOWN", "the search gave up after 9 steps"),
        expiring(),
        *(
            result("lifecycle", name, "NOT CLAIMED", unclaimed)
            for name in ("ttl_is_never_early", "ttl_survives_reopening", "new_life_is_clean")
        ),
        lost(),
        reordered(),
        unexpected(),
        result("concurrency", "pop_race", "VACUOUS", "no two operations overlapped"),
        result("concurrency", "batch_storm", "NOT RUN", "cannot be built in another process"),
    )
    return Report(
        target="postgresql://user:secret@db/memory",
        seed=SEED,
        gates=("sequential", "lifecycle", "concurrency"),
        results=results,
        duration_s=12.3456,
        notes=("simulated: this is no real server",),
    )


def hostile() -> Report:
    """Names that want to be markup, escape sequences and the end of a script."""
    failed = lost(session=HOSTILE, worker=HOSTILE)
    halves = replace(lost(session=HALF), case="first_append_race")
    return Report(
        target=f"mod:{HOSTILE}",
        seed=SEED,
        gates=("concurrency",),
        results=(failed, halves, result("concurrency", "pop_race", "VACUOUS", HOSTILE)),
        notes=(HOSTILE,),
    )


def long_run(operations: int) -> Report:
    """A lost append in a run that no page can hold."""
    found = lost()
    more = [
        op("append", f"w{n % 4}", (1000 + 2 * n, 1001 + 2 * n), f"c-{n // 64}x", ids=(f"x{n}",))
        for n in range(operations)
    ]
    longer = replace(found, history=(*found.history, *more))
    return Report(target="mod:long", seed=SEED, gates=("concurrency",), results=(longer,))


def whole(**verdicts) -> Report:
    """Every case that there is, passed; but for the gates and cases whose verdict is given."""
    results = tuple(
        result(c.gate, c.name, verdicts.get(c.name, verdicts.get(c.gate, "PASS")))
        for c in all_cases()
    )
    gates = tuple(dict.fromkeys(each.gate for each in results))
    return Report(target="memory:", seed=SEED, gates=gates, results=results)
