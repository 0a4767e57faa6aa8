"""The kit against a store, from a target to a report: what all three doors call."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from memory_contract.adapter import Adapter
from memory_contract.cases.case import Case
from memory_contract.cases.catalogue import all_cases
from memory_contract.deviations import Deviations
from memory_contract.gates import GATES, Gate, Mode
from memory_contract.results import CaseResult, Report
from memory_contract.runner import StoreUnderTest, list_modes, run_case
from memory_contract.targets import resolve

BUDGET_S: Final = 60.0
# Of the time, what repeated races may use, and about as much what repeated bad days may; the rest
# is for what runs once.
_RACES: Final = 0.4


class SelectionError(ValueError):
    """A gate or case was asked for that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One case in one mode, which is to be run or is known already."""

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
            raise SelectionError(f"there is no gate {gate!r}; there are {', '.join(GATES)}")
        if not any(found.gate == gate for found in everything):
            raise SelectionError(f"the gate {gate!r} has no cases yet")
    names = {name for found in everything for name in (found.name, found.id)}
    for name in cases:
        if name not in names:
            raise SelectionError(f"there is no case {name!r}; `memory-contract cases` lists them")
    chosen = [
        found
        for found in everything
        if (not gates or found.gate in gates)
        and (not cases or found.name in cases or found.id in cases)
    ]
    if not chosen:
        raise SelectionError(f"no case {', '.join(cases)} is in the gate {', '.join(gates)}")
    return chosen


def asked_for(gates: Sequence[str], chosen: Sequence[Case]) -> tuple[Gate, ...]:
    """The gates of which something must run: those that were named, or those of the cases."""
    return tuple(gate for gate in GATES if gate in (gates or {found.gate for found in chosen}))


def items_of(cases: Sequence[Case], subject: StoreUnderTest) -> list[Item]:
    """Every case in every mode that the store has."""
    return [
        Item(case=found, mode=mode, known=known)
        for found in cases
        for mode, known in list_modes(found, subject)
    ]


def share_of(budget_s: float) -> float:
    """How long one race or bad day may be repeated; the same if it is asked for alone."""
    return _RACES * budget_s / sum(len(found.modes) for found in all_cases() if found.overlaps)


def check(
    target: str | Adapter | type,
    *,
    gates: Sequence[str] = (),
    cases: Sequence[str] = (),
    seed: int | None = None,
    budget_s: float = BUDGET_S,
    rounds: int = 1,
    deviations: Deviations | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run the contract against a store: a URL, `module:name`, an `Adapter` or a class.

    Every case runs once, however long that takes; races, and the bad days of the gates `faults` and
    `crash`, are repeated with new seeds while the budget lasts. Races run at least `rounds` times,
    budget or not. `deviations` are failures that are known: see `read_deviations`.
    """
    adapter = resolve(target)
    chosen = select(gates, cases)
    ours = secrets.randbits(32) if seed is None else seed
    began = time.monotonic()
    subject = StoreUnderTest(adapter)
    try:
        known = deviations or Deviations()
        results = tuple(_run(chosen, subject, ours, rounds, began, budget_s, known, progress))
    finally:
        subject.close()
    return Report(
        target=target if isinstance(target, str) else adapter.name,
        seed=ours,
        gates=asked_for(gates, chosen),
        results=results,
        duration_s=time.monotonic() - began,
        notes=(*adapter.notes, *dict.fromkeys(note for r in results for note in r.notes)),
    )


def _run(
    chosen: Sequence[Case],
    subject: StoreUnderTest,
    seed: int,
    rounds: int,
    began: float,
    budget_s: float,
    deviations: Deviations,
    progress: Progress | None,
) -> Iterator[CaseResult]:
    items = items_of(chosen, subject)
    share_s = share_of(budget_s)
    for item in items:
        if progress is not None:
            progress(item, None)
        share = share_s if time.monotonic() < began + budget_s else 0.0
        result = item.known or run_case(
            item.case, item.mode, subject, seed=seed, share_s=share, rounds=rounds
        )
        result = deviations.apply(result)
        if progress is not None:
            progress(item, result)
        yield result
