"""Results of cases, and the report of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from memory_contract.checker.verdict import Anomaly
from memory_contract.errors import UnavailableError
from memory_contract.gates import OPTIONAL_GATES, Gate, Mode
from memory_contract.history import Fault, Ids, Operation

# Grows by its second number with each new case that a store must pass.
CONTRACT_VERSION: Final = "1.1"

CaseVerdict = Literal["PASS", "FAIL", "UNKNOWN", "VACUOUS", "NOT RUN", "NOT CLAIMED", "DEVIATION"]
# Verdicts of cases that should have shown something and did not.
SILENT: Final = frozenset({"UNKNOWN", "VACUOUS", "NOT RUN"})
# What keeps a gate from passing, the worst first.
_WORST: Final[tuple[CaseVerdict, ...]] = ("FAIL", "UNKNOWN", "VACUOUS", "NOT RUN")
# How the reason begins of a case that needs capabilities which the store does not claim.
UNCLAIMED: Final = "the store does not claim "

# How many anomalies of one name a result holds.
TOLD_MAX: Final = 30
# The name of a failure in which a call raised without a reason; nothing was lost.
RAISED: Final = "unexpected error"

EXIT_PASS: Final = 0
EXIT_FAIL: Final = 1
EXIT_UNDECIDED: Final = 3


class Unreachable(UnavailableError):  # noqa: N818 -- names what happened
    """The store could not be opened and read, so it was not judged.

    `hint` is the source of a factory to write, if the store may want other arguments.
    """


def build_case_failure(
    name: str, proof: str, *, session: str = "", ids: Ids = (), witness: tuple[Operation, ...] = ()
) -> Anomaly:
    """A failure that a case found without the checker."""
    return Anomaly(name, session, ids, witness, proof, proved=False)


def select_failures(anomalies: Iterable[Anomaly]) -> tuple[Anomaly, ...]:
    """The first anomalies of each name; a store that loses everything has thousands."""
    told: Counter[str] = Counter()
    kept = []
    for anomaly in anomalies:
        told[anomaly.name] += 1
        if told[anomaly.name] <= TOLD_MAX:
            kept.append(anomaly)
    return tuple(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The result of one case in one mode."""

    gate: Gate
    case: str
    mode: Mode
    verdict: CaseVerdict
    reason: str = ""
    failures: tuple[Anomaly, ...] = ()
    seed: int = 0
    duration_s: float = 0.0
    # The run that the verdict rests on: the failing one, or the last.
    history: tuple[Operation, ...] = ()
    # The faults that were injected in it.
    faults: tuple[Fault, ...] = ()
    # For the reader; they do not affect the verdict.
    notes: tuple[str, ...] = ()
    # The explored schedule that failed, and whether its seed alone brings it back.
    schedule: str = ""
    # The command that repeats it, if that is not `memory-contract check`.
    command: str = ""

    @property
    def id(self) -> str:
        """`concurrency/append_storm[processes]`."""
        return f"{self.gate}/{self.case}[{self.mode}]"

    @property
    def is_refusal(self) -> bool:
        """Whether all failures are unexpected errors: another round may show a loss."""
        return bool(self.failures) and {failure.name for failure in self.failures} == {RAISED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a run of the kit against one store."""

    target: str
    contract: str = CONTRACT_VERSION
    seed: int
    gates: tuple[Gate, ...]
    results: tuple[CaseResult, ...]
    duration_s: float = 0.0
    # About the store as a whole: what it claims, what it offers without claiming it.
    notes: tuple[str, ...] = field(default=())
    # How many cases a quick run left out.
    left_out: int = 0
    # What was claimed beside the target: how many entries of a session it keeps.
    keeps_last: int | None = None

    @property
    def verdict(self) -> CaseVerdict:
        """The worst verdict of a gate; PASS only if every requested gate ran a case.

        Gates of faults and of search may be left out if the store claims nothing that they need.
        """
        found = {self.judge_gate(gate) for gate in self.gates}
        return next((worst for worst in (*_WORST, "PASS") if worst in found), "NOT RUN")

    def count(self, gate: Gate) -> Counter[CaseVerdict]:
        """How many results of a gate have which verdict."""
        return Counter(result.verdict for result in self.results if result.gate == gate)

    def judge_gate(self, gate: Gate) -> CaseVerdict:
        """The verdict of a gate: the worst of its results; PASS only if a case ran."""
        found = self.count(gate)
        for worst in _WORST:
            if worst in found:
                return worst
        if found.keys() & {"PASS", "DEVIATION"}:
            return "PASS"
        return "NOT CLAIMED" if found and gate in OPTIONAL_GATES else "NOT RUN"

    @property
    def exit_code(self) -> int:
        """The exit code of a command that shows this report."""
        verdict = self.verdict
        if verdict == "FAIL":
            return EXIT_FAIL
        return EXIT_UNDECIDED if verdict in SILENT else EXIT_PASS
