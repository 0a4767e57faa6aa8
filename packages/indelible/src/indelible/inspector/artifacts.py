"""Reports and traces of memory-contract, for the page "Health".

The files are named on the command line, and read once. Nothing in them is run or followed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from indelible.errors import UnavailableError, UsageError

REPORT_BYTES_MAX: Final = 64 * 1024 * 1024
# A longer line of a trace is counted and not read.
LINE_BYTES_MAX: Final = 1024 * 1024
# Failed calls of a trace that are kept; the others are counted.
KEPT_MAX: Final = 20

# Verdicts that need attention, worst first; the others passed or were not requested.
BAD_VERDICTS: Final = ("FAIL", "UNKNOWN", "VACUOUS", "NOT RUN")


class ReportAnomaly(BaseModel):
    """An anomaly that a case found."""

    name: str
    session: str
    proof: str


class ReportCase(BaseModel):
    """The result of one case."""

    gate: str
    case: str
    mode: str
    verdict: str
    reason: str
    anomalies: list[ReportAnomaly]

    @property
    def found(self) -> list[tuple[ReportAnomaly, int]]:
        """The first anomaly of each kind, and how many there are of it."""
        kinds = Counter((each.name, each.session) for each in self.anomalies)
        firsts = {(each.name, each.session): each for each in reversed(self.anomalies)}
        return [(firsts[kind], count) for kind, count in kinds.items()]


class Report(BaseModel):
    """A report of the kit: the fields of its schema that the page shows."""

    contract: str
    target: str
    verdict: str
    seed: int
    duration_s: float
    gates: list[str]
    notes: list[str]
    cases: list[ReportCase]

    @property
    def tallies(self) -> list[tuple[str, Counter[str]]]:
        """The number of each verdict, by gate."""
        return [
            (gate, Counter(each.verdict for each in self.cases if each.gate == gate))
            for gate in self.gates
        ]

    @property
    def bad_cases(self) -> list[ReportCase]:
        """The cases that need attention, worst first."""
        found = [each for each in self.cases if each.verdict in BAD_VERDICTS]
        return sorted(found, key=lambda each: BAD_VERDICTS.index(each.verdict))


@dataclass(kw_only=True, slots=True)
class Trace:
    """The contents of a trace, counted."""

    calls: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    sessions: Counter[str] = field(default_factory=Counter)
    # The first calls that raised or have an unknown outcome.
    failed: list[dict[str, str]] = field(default_factory=list)
    processes: int = 0
    closed: int = 0
    # Lines that the recorder dropped, and lines that cannot be parsed.
    dropped: int = 0
    unreadable: int = 0


def read_report(path: Path) -> tuple[str, Report]:
    """Read a report; returns the name of its file with it."""
    try:
        if path.stat().st_size > REPORT_BYTES_MAX:
            raise UsageError(f"{path.name} is too long for a report: {path.stat().st_size:,} bytes")
        return path.name, Report.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UnavailableError(f"cannot read the report {path}: {error.strerror}") from error
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        reason = f"{error.errors()[0]['msg']}{f' ({where})' if where else ''}"
        raise UsageError(
            f"{path.name} is no report of memory-contract: {reason}. `memory-contract check TARGET"
            " --report DIR` writes report.json"
        ) from error


def read_trace(path: Path) -> tuple[str, Trace]:
    """Read a trace line by line; returns the name of its file with it."""
    trace = Trace()
    try:
        for line in _read_lines(path):
            _count_line(trace, line)
    except OSError as error:
        raise UnavailableError(f"cannot read the trace {path}: {error.strerror}") from error
    if not trace.calls and not trace.processes:
        raise UsageError(f"{path.name} is no trace: it has no line that a recorder wrote")
    return path.name, trace


def _read_lines(path: Path) -> Iterator[Any]:
    """Parse each line; None if it is not JSON, or too long."""
    with path.open("rb") as file:
        while line := file.readline(LINE_BYTES_MAX):
            end = line
            while end and not end.endswith(b"\n"):
                end = file.readline(LINE_BYTES_MAX)
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                yield None


def _count_line(trace: Trace, line: Any) -> None:
    if not isinstance(line, dict):
        trace.unreadable += 1
    elif "indelible_trace" in line:
        trace.processes += 1
    elif "closed" in line:
        trace.closed += 1
    elif "dropped" in line:
        trace.dropped += line["dropped"] if isinstance(line["dropped"], int) else 1
    elif "outcome" in line:
        _count_call(trace, {name: str(value) for name, value in line.items() if value is not None})
    else:
        trace.unreadable += 1


def _count_call(trace: Trace, call: dict[str, str]) -> None:
    verb, outcome = call.get("verb") or call.get("op", "call"), call["outcome"]
    trace.calls[verb] += 1
    trace.outcomes[outcome] += 1
    if session := call.get("session"):
        trace.sessions[session] += 1
    if outcome != "ok" and len(trace.failed) < KEPT_MAX:
        error = call.get("error") or {"info": "no answer", "fail": "refused"}.get(outcome, outcome)
        trace.failed.append({"verb": verb, "session": session or "", "error": error})
