"""A report for a person at a terminal: proofs first, then the gates and all that is not PASS.

While the kit runs: one line that changes at a terminal, else a line per case; the first failure is
proved at once.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self, TextIO

from memory_contract.checker.verdict import format_count
from memory_contract.contract_run import Item
from memory_contract.printable import escape_unseen
from memory_contract.report.text import (
    VERDICTS,
    build_badge,
    describe_target,
    failure_lines,
    slug,
)
from memory_contract.results import UNCLAIMED, CaseResult, CaseVerdict, Report

# Proofs that are shown in full; the other failures have a line each, and the report folder all.
PROOFS_MAX: Final = 8
# How many of the cases with the same reason are named.
NAMED_MAX: Final = 4
TEXT_COLUMNS: Final = 120
# The width of lines in a pipe.
PIPE_COLUMNS: Final = 160
# Styles, as codes of the escape sequence that sets them.
BOLD: Final = "1"
DIM: Final = "2"
BOLD_RED: Final = "1;31"
_YELLOW: Final = "33"
STYLES: Final[dict[str, str]] = {
    "PASS": "32",
    "FAIL": BOLD_RED,
    "UNKNOWN": _YELLOW,
    "VACUOUS": _YELLOW,
    "NOT RUN": _YELLOW,
    "NOT CLAIMED": DIM,
    "DEVIATION": "35",
}


class Line(NamedTuple):
    """A line and its style. A command to be copied is not wrapped."""

    text: str
    style: str = ""
    is_copied: bool = False

    def wrap(self, columns: int) -> list[str]:
        """Break the line, so that each part keeps its indentation."""
        indent = " " * (len(self.text) - len(self.text.lstrip(" ")))
        if self.is_copied or len(self.text) <= columns:
            return [self.text.rstrip()]
        return textwrap.wrap(self.text, columns, subsequent_indent=indent)


def print_summary(
    report: Report, *, page: Path | None = None, stream: TextIO | None = None
) -> None:
    """Print the whole report; `page` is the path of its timeline, if it was written."""
    print_lines(render_summary(report, page=page), sys.stdout if stream is None else stream)


def print_interrupted(report: Report) -> None:
    """Print what had ended before Ctrl-C; without verdicts, since most cases did not run."""
    counts = Counter(result.verdict for result in report.results)
    found = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    ended = format_count(len(report.results), "case")
    last = f"{ended} had ended, {found}: no verdict." if found else "No case had ended: no verdict."
    table = _render_gates(report, has_ended=False) if found else ()
    print_lines([*_render_proofs(report, None), *table, Line(last)], sys.stdout)


def summary_text(report: Report, *, page: Path | None = None, columns: int = TEXT_COLUMNS) -> str:
    """The whole report as plain text."""
    lines = [part for line in render_summary(report, page=page) for part in line.wrap(columns)]
    return "\n".join(lines) + "\n"


def print_lines(lines: Iterable[Line], stream: TextIO) -> None:
    """Print lines as wide as the terminal, with colours if there is one that has them."""
    is_pipe = not stream.isatty() and "COLUMNS" not in os.environ
    columns = PIPE_COLUMNS if is_pipe else shutil.get_terminal_size().columns
    has_colours = _takes_escapes(stream) and not os.environ.get("NO_COLOR")
    for line in lines:
        for part in line.wrap(columns):
            styled = has_colours and line.style
            stream.write(f"\x1b[{line.style}m{part}\x1b[0m\n" if styled else f"{part}\n")


def _takes_escapes(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class StatusLine:
    """A line at a terminal that is written over again and again; elsewhere, nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_shown = _takes_escapes(stream)

    def show(self, text: str) -> None:
        """Replace the line."""
        if self.is_shown:
            columns = shutil.get_terminal_size().columns
            self._stream.write(f"\r\x1b[2K{escape_unseen(text)[: columns - 1]}")
            self._stream.flush()

    def clear(self) -> None:
        """Remove the line."""
        self.show("")


def render_summary(report: Report, *, page: Path | None = None) -> list[Line]:
    """All lines of the report."""
    return [
        *_render_proofs(report, page),
        *_render_gates(report),
        Line(""),
        *_render_reasons(report),
        *_render_notes(report),
        *_render_end(report),
    ]


def render_proof(report: Report, result: CaseResult, *, page: Path | None = None) -> Iterator[Line]:
    """The proof of a result's first failure, and the command that repeats it."""
    head, *proof, again = failure_lines(report, result)
    yield Line(f"FAILED {head}", BOLD_RED)
    yield from map(Line, proof)
    yield Line(again, BOLD, is_copied=True)
    if page is not None:
        anchor = f"{escape_unseen(str(page))}#case-{slug(result)}"
        yield Line(f"  Timeline:        {anchor}", is_copied=True)


def _render_proofs(report: Report, page: Path | None) -> Iterator[Line]:
    failed = [result for result in report.results if result.verdict == "FAIL"]
    # The same case in another mode has, as a rule, the same proof.
    seen: set[tuple[str, str]] = set()
    briefly = []
    for result in failed:
        name = result.failures[0].name if result.failures else ""
        if (result.case, name) in seen or len(seen) >= PROOFS_MAX:
            briefly.append(result)
            continue
        seen.add((result.case, name))
        yield from render_proof(report, result, page=page)
        yield Line("")
    if briefly:
        yield Line(f"FAILED too, {format_count(len(briefly), 'case')}:", BOLD_RED)
        for result in briefly:
            what = result.failures[0].name.upper() if result.failures else result.reason
            yield Line(f"  {result.id}   {escape_unseen(what)}   seed {result.seed}")
        yield Line("")


def _render_gates(report: Report, *, has_ended: bool = True) -> Iterator[Line]:
    """How many results of each gate have which verdict; with its own, if the run has ended."""
    counts = {gate: report.count(gate) for gate in report.gates}
    counts = {gate: found for gate, found in counts.items() if found or has_ended}
    shown = [v for v in VERDICTS if v in ("PASS", "FAIL") or any(c[v] for c in counts.values())]
    verdicts = {gate: report.judge_gate(gate) if has_ended else "" for gate in counts}
    width = max(map(len, ["gate", *counts]))
    second = max(map(len, ["", *verdicts.values()]))
    yield Line("  ".join(["gate".ljust(width), " " * second, *shown]), BOLD)
    for gate, found in counts.items():
        cells = [str(found[v] or "·").rjust(len(v)) for v in shown]
        row = "  ".join([gate.ljust(width), verdicts[gate].ljust(second), *cells])
        yield Line(row, STYLES.get(verdicts[gate], ""))


def _render_reasons(report: Report) -> Iterator[Line]:
    """The reasons of all results but PASS and FAIL; results with one reason share a line.

    All capabilities that the store does not claim are one reason.
    """
    groups: dict[tuple[CaseVerdict, str], list[CaseResult]] = defaultdict(list)
    unclaimed: set[str] = set()
    for result in report.results:
        if result.verdict not in ("PASS", "FAIL"):
            reason = result.reason
            if reason.startswith(UNCLAIMED):
                unclaimed |= {*reason.removeprefix(UNCLAIMED).split(", ")}
                reason = UNCLAIMED
            groups[result.verdict, reason].append(result)
    for verdict, reason in sorted(groups, key=lambda group: VERDICTS.index(group[0])):
        results = groups[verdict, reason]
        names = ", ".join(sorted(unclaimed)) if reason == UNCLAIMED else ""
        words = escape_unseen(reason + names) or "no reason was given"
        yield Line(f"{verdict} ({len(results)})  {words}", STYLES[verdict])
        # The reason names the capabilities; the cases add nothing.
        if verdict != "NOT CLAIMED":
            yield Line(f"  {_list_cases(results)}", DIM)
    for gate in report.gates:
        if report.judge_gate(gate) == "NOT RUN" and not report.count(gate)["NOT RUN"]:
            yield Line(f"NOT RUN  no case of the gate {gate} ran", STYLES["NOT RUN"])
    if groups:
        yield Line("")


def _list_cases(results: list[CaseResult]) -> str:
    modes: dict[str, list[str]] = defaultdict(list)
    for result in results:
        modes[result.case].append(result.mode)
    names = [f"{case}[{','.join(found)}]" for case, found in modes.items()]
    rest = len(names) - NAMED_MAX
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _render_notes(report: Report) -> Iterator[Line]:
    # The modes of a case have the same notes, and a report may have gathered them already.
    notes = (*report.notes, *(note for result in report.results for note in result.notes))
    yield from (Line(f"note: {escape_unseen(note)}") for note in dict.fromkeys(notes))


def _render_end(report: Report) -> Iterator[Line]:
    parts = [
        escape_unseen(describe_target(report)),
        f"contract {report.contract}",
        f"seed {report.seed}",
    ]
    parts += [format_count(len(report.results), "case"), f"{report.duration_s:.1f} s"]
    yield Line("   ".join([report.verdict, *parts]), STYLES[report.verdict])
    if report.left_out:
        yield Line(f"Quick: {format_count(report.left_out, 'case')} left out; --full runs them.")
    yield Line(build_badge(report).line, DIM)


class ProgressDisplay:
    """Given to `check` as its `progress`, inside a `with`.

    `target` and `keeps_last` are named in the command that repeats the first failure.
    """

    def __init__(
        self, *, stream: TextIO | None = None, target: str = "", keeps_last: int | None = None
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._report = Report(target=target, seed=0, gates=(), results=(), keeps_last=keeps_last)
        self._has_proved = False
        self._status = StatusLine(self._stream)
        self._done = 0
        self._failed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.clear()

    def __call__(self, item: Item, result: CaseResult | None) -> None:
        """A case begins, or has ended with a result."""
        if result is None:
            failed = f", {self._failed} failed" if self._failed else ""
            self._status.show(f"{format_count(self._done, 'case')} done{failed}: {item.id}")
            return
        self._done += 1
        self._failed += result.verdict == "FAIL"
        # At a terminal, the summary shows the others.
        if not self._status.is_shown or result.verdict in ("FAIL", "UNKNOWN"):
            self._status.clear()
            if result.verdict == "FAIL" and not self._has_proved:
                self._has_proved = True
                lines = [*render_proof(self._report, result)]
            else:
                lines = [Line(format_result(result), STYLES[result.verdict], is_copied=True)]
            print_lines(lines, self._stream)
            self._stream.flush()


def format_result(result: CaseResult) -> str:
    """One result in one line; the summary proves all that failed."""
    line = f"{result.verdict:<11}  {result.id}  {result.duration_s:.2f} s"
    words = result.failures[0].name if result.failures else result.reason
    return f"{line}  {escape_unseen(words)}" if words else line
