"""From what was seen to what is said: a verdict for each gate, and whether runs agree on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from memory_contract.results import RAISED, TOLD_MAX
from scoreboard.results import Outcome, Run, Seen

# Said where all that a gate has against a store are errors: it refused, and lost nothing by it.
RAISES = "RAISES"


@dataclass(slots=True)
class Finding:
    """One anomaly in one gate of one store: where it was seen, how often, in how many runs."""

    anomaly: str
    runs: int = 0
    # How often it was seen in the newest run that did, whether the kit told of all, and where.
    count: int = 0
    more: bool = False
    cases: dict[str, list[str]] = field(default_factory=dict)
    # The first that showed it.
    first: Seen | None = None

    @property
    def refused(self) -> bool:
        """Whether it is an error, which is not a loss."""
        return self.anomaly == RAISED


def verdict(outcome: Outcome | None, gate: str, case: str | None = None) -> str:
    """What a gate came to, or one case of it."""
    if outcome is None or outcome.not_run:
        return "NOT RUN"
    found = [seen for seen in outcome.seen if seen.gate == gate and case in (None, seen.case)]
    failed = [seen for seen in found if seen.verdict == "FAIL"]
    if any(set(seen.anomalies) - {RAISED} for seen in failed):
        return "FAIL"
    if failed:
        return RAISES
    verdicts = {seen.verdict for seen in found}
    for silent in ("UNKNOWN", "VACUOUS", "NOT RUN"):
        if silent in verdicts:
            return silent
    return "PASS" if "PASS" in verdicts else "NOT CLAIMED"


def choose_verdict(runs: Sequence[Run], store: str, gate: str, case: str | None = None) -> str:
    """What all runs say of a gate, or of one case of it.

    One verdict, or each with how many runs came to it.
    """
    known = [run.outcomes[store] for run in runs if store in run.outcomes]
    # A run in which the gate was not asked says nothing about it.
    asked = [each for each in known if any(seen.gate == gate for seen in each.seen)]
    found = [verdict(outcome, gate, case) for outcome in asked or known]
    if not found:
        return "NOT RUN"
    if len(set(found)) == 1:
        return found[0]
    return ", ".join(
        f"{each} in {found.count(each)} of {len(found)}" for each in sorted(set(found))
    )


def findings(runs: Sequence[Run], store: str, gate: str) -> list[Finding]:
    """What was found in a gate, losses before errors."""
    found: dict[str, Finding] = {}
    for run in runs:
        if store not in run.outcomes:
            continue
        by_name: dict[str, list[Seen]] = defaultdict(list)
        for seen in run.outcomes[store].seen:
            if seen.gate == gate and seen.verdict == "FAIL":
                for name in seen.anomalies:
                    by_name[name].append(seen)
        for name, items in by_name.items():
            ours = found.setdefault(name, Finding(name))
            ours.runs += 1
            counts = [seen.anomalies[name] for seen in items]
            ours.count, ours.more = sum(counts), max(counts) >= TOLD_MAX
            ours.cases = _group_cases(items)
            ours.first = ours.first or _choose_example(items, name)
    return sorted(found.values(), key=lambda each: (each.refused, each.anomaly))


def _group_cases(items: Sequence[Seen]) -> dict[str, list[str]]:
    cases: dict[str, list[str]] = defaultdict(list)
    for seen in items:
        cases[seen.case].append(seen.mode)
    return dict(cases)


def _choose_example(items: Sequence[Seen], name: str) -> Seen:
    """The one whose proof is of this anomaly, or else the first."""
    return next((seen for seen in items if next(iter(seen.anomalies)) == name), items[0])


def differences(one: Run, two: Run, gates: Sequence[str]) -> Iterator[str]:
    """Where two runs disagree on the verdict of a gate, of the stores that both tried."""
    for store, before in one.outcomes.items():
        if store not in two.outcomes:
            continue
        for gate in gates:
            was, now = verdict(before, gate), verdict(two.outcomes[store], gate)
            if was != now:
                yield f"{store}, {gate}: {was}, then {now}"


def count_compared(one: Run, two: Run, gates: Sequence[str]) -> int:
    """How many verdicts two runs both have."""
    return len(gates) * len(list_tried_twice(one, two))


def list_tried_twice(one: Run, two: Run) -> set[str]:
    """The stores that could be tried in both runs: not to run twice is no agreement."""
    tried = [{name for name, found in run.outcomes.items() if found.seen} for run in (one, two)]
    return tried[0] & tried[1]
