"""Runs the contract against a target and builds a report; for the CLI, pytest and `check()`."""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Final

from memory_contract.adapter import Adapter
from memory_contract.cases.case import Case
from memory_contract.cases.catalogue import all_cases
from memory_contract.deviations import Deviations
from memory_contract.errors import UsageError, suggest
from memory_contract.gates import GATES, Gate, Mode
from memory_contract.results import CaseResult, Report
from memory_contract.runner import StoreUnderTest, list_modes, run_case
from memory_contract.targets import resolve

BUDGET_S: Final = 60.0
# A quick run repeats no race for long, and begins no case after so many seconds.
QUICK_BUDGET_S: Final = 10.0
QUICK_S_MAX: Final = 40.0
# It waits so long for a case that hangs. On a busy machine, the last case may need a minute.
QUICK_END_S: Final = 100.0
# The gates of a quick run, the most telling first; of the others, nothing is run.
QUICK_GATES: Final[tuple[Gate, ...]] = ("sequential", "concurrency", "edges", "lifecycle", "crash")
# Cases that take many seconds.
NOT_QUICK: Final = frozenset(
    {"long_session", "many_sessions", "lock_is_bounded", "kill_at_every_step", "power_loss"}
)
# Cases that take some seconds: the others of their gate come first.
QUICK_LATE: Final = frozenset(
    {"short_programs", "random_programs", "nothing_goes_unasked", "hostile_session_ids"}
    | {"paused_writer", "gathered_turns_all_land"}
)
# Of the time, what repeated races may use, and about as much for repeated faults; the rest
# is for what runs once.
_RACES: Final = 0.4


class SelectionError(UsageError, ValueError):
    """There is no gate or case of this name."""


class CheckInterrupted(KeyboardInterrupt):
    """Ctrl-C; `report` has the cases that had ended."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One case in one mode, with its result if that is known without a run."""

    case: Case
    mode: Mode
    known: CaseResult | None

    @property
    def id(self) -> str:
        """`concurrency/append_storm[processes]`."""
        return f"{self.case.id}[{self.mode}]"


Progress = Callable[[Item, CaseResult | None], None]


def select(gates: Sequence[str] = (), cases: Sequence[str] = ()) -> list[Case]:
    """The cases of the gates, or the named ones: `append_storm` or `concurrency/append_storm`."""
    everything = all_cases()
    for gate in gates:
        if gate not in GATES:
            message = f"there is no gate {gate!r}; there are {', '.join(GATES)}"
            raise SelectionError(message + suggest(gate, GATES))
    names = {name for found in everything for name in (found.name, found.id)}
    for name in cases:
        if name not in names:
            message = f"there is no case {name!r}; `memory-contract cases` lists them"
            raise SelectionError(message + suggest(name, names))
    chosen = [
        found
        for found in everything
        if (not gates or found.gate in gates)
        and (not cases or found.name in cases or found.id in cases)
    ]
    if not chosen:
        raise SelectionError(f"no case {', '.join(cases)} is in the gate {', '.join(gates)}")
    return chosen


def list_gates(gates: Sequence[str], chosen: Sequence[Case]) -> tuple[Gate, ...]:
    """The gates in which a case must run: those that were named, or those of the cases."""
    return tuple(gate for gate in GATES if gate in (gates or {found.gate for found in chosen}))


def list_items(cases: Sequence[Case], subject: StoreUnderTest) -> list[Item]:
    """Every case in every mode that the store has."""
    return [
        Item(case=found, mode=mode, known=known)
        for found in cases
        for mode, known in list_modes(found, subject)
    ]


def get_share_s(budget_s: float) -> float:
    """How long one race or fault may be repeated, whether it runs alone or with all others."""
    return _RACES * budget_s / sum(len(found.modes) for found in all_cases() if found.overlaps)


def check(
    target: str | Adapter | type,
    *,
    gates: Sequence[str] = (),
    cases: Sequence[str] = (),
    seed: int | None = None,
    budget_s: float = BUDGET_S,
    rounds: int = 1,
    quick: bool = False,
    keeps_last: int | None = None,
    deviations: Deviations | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run the contract against a store: a URL, `module:name`, an `Adapter` or a class.

    Every case runs once, however long that takes; races, and the cases of the gates `faults` and
    `crash`, are repeated with new seeds while the budget lasts. Races run at least `rounds` times,
    budget or not. `deviations` are failures that are known: see `read_deviations`.

    A `quick` run takes less than a minute: it leaves slow cases out, and what it has no time for.
    A store that keeps only the newest entries of a session, so many, is judged by `keeps_last`.
    """
    chosen = select(gates, cases)
    items: list[Item] = []

    def run_all(subject: StoreUnderTest, seed: int) -> Iterator[CaseResult]:
        items.extend(list_items(chosen, subject))
        began, repeat_s = time.monotonic(), QUICK_BUDGET_S if quick else budget_s
        for item in iter_quick(items) if quick else items:
            spent_s = time.monotonic() - began
            if quick and spent_s > QUICK_S_MAX:
                break
            run = partial(
                run_case,
                subject=subject,
                seed=seed,
                share_s=get_share_s(repeat_s) if spent_s < repeat_s else 0.0,
                rounds=rounds,
                within_s=QUICK_END_S - spent_s if quick else math.inf,
            )
            yield run_item(item, run, deviations, progress)

    report = run_contract(
        target, run_all, gates=list_gates(gates, chosen), seed=seed, keeps_last=keeps_last
    )
    if not quick:
        return report
    places = [item.id for item in items]
    ran = {result.gate for result in report.results if result.verdict != "NOT CLAIMED"}
    shown = list_gates(gates, [case for case in chosen if case.gate in ran])
    results = [result for result in report.results if result.gate in shown]
    return replace(
        report,
        gates=shown,
        results=tuple(sorted(results, key=lambda result: places.index(result.id))),
        left_out=len(items) - len(results),
    )


def run_contract(
    target: str | Adapter | type,
    run_all: Callable[[StoreUnderTest, int], Iterator[CaseResult]],
    *,
    gates: tuple[Gate, ...],
    seed: int | None,
    keeps_last: int | None,
) -> Report:
    """Open the store of a target, run what `run_all` yields with a seed, and report it."""
    began = time.monotonic()
    adapter = resolve(target, keeps_last=keeps_last)
    seed = secrets.randbits(32) if seed is None else seed
    subject = StoreUnderTest(adapter)
    results: list[CaseResult] = []

    def build_report() -> Report:
        return Report(
            target=target if isinstance(target, str) else adapter.name,
            seed=seed,
            gates=gates,
            results=tuple(results),
            duration_s=time.monotonic() - began,
            notes=(*adapter.notes, *dict.fromkeys(note for r in results for note in r.notes)),
            keeps_last=keeps_last,
        )

    try:
        for result in run_all(subject, seed):
            results.append(result)  # noqa: PERF402 -- `extend` need not keep them if one raises
    except KeyboardInterrupt as error:
        raise CheckInterrupted(build_report()) from error
    finally:
        subject.close()
    return build_report()


def run_item(
    item: Item,
    run: Callable[[Case, Mode], CaseResult],
    deviations: Deviations | None,
    progress: Progress | None = None,
) -> CaseResult:
    """Run one case in one mode, unless its result is known, and apply the deviations."""
    if progress is not None:
        progress(item, None)
    result = (deviations or Deviations()).apply(item.known or run(item.case, item.mode))
    if progress is not None:
        progress(item, result)
    return result


def iter_quick(items: Sequence[Item]) -> Iterator[Item]:
    """The items of a quick run, for the same time in each gate; each must run when it is yielded.

    Each case runs in one mode before any in two.
    """
    modes: Counter[str] = Counter()
    waiting: dict[Gate, list[tuple[int, bool, Item]]] = {gate: [] for gate in QUICK_GATES}
    for item in items:
        case = item.case
        if case.gate in waiting and case.name not in NOT_QUICK:
            modes[case.id] += 1
            waiting[case.gate].append((modes[case.id], case.name in QUICK_LATE, item))
    for each in waiting.values():
        each.sort(key=itemgetter(0, 1))
    spent_s: dict[Gate, float] = dict.fromkeys(QUICK_GATES, 0.0)
    while left := [gate for gate in QUICK_GATES if waiting[gate]]:
        gate = min(left, key=lambda gate: (waiting[gate][0][0], spent_s[gate]))
        began = time.monotonic()
        yield waiting[gate].pop(0)[-1]
        spent_s[gate] += time.monotonic() - began
