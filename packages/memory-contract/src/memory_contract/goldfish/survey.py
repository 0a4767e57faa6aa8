"""Runs the kit against the goldfish: whether each is caught by the case that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from memory_contract.contract_run import list_items, select
from memory_contract.gates import Mode
from memory_contract.goldfish.registry import GOLDFISH, Goldfish
from memory_contract.results import CaseResult
from memory_contract.runner import StoreUnderTest, run_case


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """The results of the case that must catch a goldfish, in every mode of the store."""

    goldfish: Goldfish
    results: tuple[CaseResult, ...]

    @property
    def caught(self) -> bool:
        """Whether any mode fails."""
        return any(result.verdict == "FAIL" for result in self.results)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that fail."""
        return tuple(result.mode for result in self.results if result.verdict == "FAIL")

    @property
    def anomaly(self) -> str:
        """The first proof's name; empty if it was not caught."""
        failures = [failure for result in self.results for failure in result.failures]
        return failures[0].name if failures else ""


Progress = Callable[[Goldfish, Caught | None], None]


def examine(goldfish: Goldfish, seed: int) -> Caught:
    """Run the case that names a goldfish, in every mode."""
    subject = StoreUnderTest(goldfish.adapter)
    try:
        items = list_items(select(cases=[goldfish.caught_by]), subject)
        results = [
            item.known or run_case(item.case, item.mode, subject, seed=seed) for item in items
        ]
    finally:
        subject.close()
    return Caught(goldfish=goldfish, results=tuple(results))


def survey(
    seed: int, progress: Progress | None = None, goldfish: Iterable[Goldfish] | None = None
) -> list[Caught]:
    """Examine every goldfish. `progress` is told before each, and after it with what was found."""
    found = []
    for fish in GOLDFISH.values() if goldfish is None else goldfish:
        if progress is not None:
            progress(fish, None)
        found.append(examine(fish, seed))
        if progress is not None:
            progress(fish, found[-1])
    return found
