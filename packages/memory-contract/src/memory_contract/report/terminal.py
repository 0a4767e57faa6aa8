"""A report for a person at a terminal: proofs first, then the gates and all that is not PASS."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memory_contract.report.badge import badge_of
from memory_contract.report.wording import (
    VERDICTS,
    counted,
    counts_of,
    headline,
    proof_lines,
    reproduce,
    slug,
    target_of,
    verdict_of,
    visible,
)
from memory_contract.results import CaseResult, CaseVerdict, Failure, Report

# What fails everywhere is not read everywhere: the rest has a line each, and the report folder all.
PROOFS_MAX: Final = 8
# Of the cases that share a reason, those that are named.
NAMED_MAX: Final = 4
TEXT_COLUMNS: Final = 120
STYLES: Final[dict[CaseVerdict, str]] = {
    "PASS": "green",
    "FAIL": "bold red",
    "UNKNOWN": "yellow",
    "VACUOUS": "yellow",
    "NOT RUN": "yellow",
    "NOT CLAIMED": "dim",
    "DEVIATION": "magenta",
}


class Whole(Text):
    """A line that is copied: where it is too long, the terminal wraps it, not we."""


def draw(console: Console, report: Report, *, page: Path | None = None) -> None:
    """Print the whole report; `page` is where its timeline was written, if it was."""
    for part in summary(report, page=page).renderables:
        console.print(part, soft_wrap=isinstance(part, Whole))


def summary(report: Report, *, page: Path | None = None) -> Group:
    """The whole report as one drawing, in which every line is wrapped to the width."""
    parts: list[RenderableType] = [*_proofs(report, page)]
    parts += [_gates(report), Text(), *_reasons(report), *_notes(report), *_end(report)]
    return Group(*parts)


def summary_text(report: Report, *, page: Path | None = None, columns: int = TEXT_COLUMNS) -> str:
    """The same as plain text."""
    stream = io.StringIO()
    console = Console(file=stream, width=columns, color_system=None, emoji=False, highlight=False)
    draw(console, report, page=page)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _proofs(report: Report, page: Path | None) -> Iterator[RenderableType]:
    failed = [result for result in report.results if result.verdict == "FAIL"]
    # The same case in another mode has, as a rule, the same story to tell.
    told: set[tuple[str, str]] = set()
    brief: list[CaseResult] = []
    for result in failed:
        first = result.failures[0] if result.failures else None
        story = (result.case, first.name if first is not None else "")
        if story in told or len(told) >= PROOFS_MAX:
            brief.append(result)
            continue
        told.add(story)
        yield from _proof(report, result, first, page)
        yield Text()
    if brief:
        yield Text(f"FAILED too, {counted(len(brief), 'case')}:", style="bold red")
        yield from (_briefly(result) for result in brief)
        yield Text()


def _proof(
    report: Report, result: CaseResult, failure: Failure | None, page: Path | None
) -> Iterator[RenderableType]:
    if failure is None:
        yield _head([result.id, f"seed {result.seed}"])
        yield _indented(f"  {visible(result.reason)}")
    else:
        yield _head(headline(result, failure))
        yield from map(_indented, proof_lines(result, failure))
    for line in result.schedule.splitlines():
        yield _indented(f"  {visible(line)}")
    yield Whole(f"  Reproduce with:  {reproduce(report, result)}", style="bold")
    if page is not None:
        yield Whole(f"  Timeline:        {visible(str(page))}#case-{slug(result)}")


def _head(parts: list[str]) -> Text:
    line = Text("FAILED ", style="bold red")
    line.append(parts[0], style="bold default")
    for part in parts[1:]:
        line.append(f"   {part}", style="bold red" if part.isupper() else "default")
    return line


def _indented(line: str, *, style: str = "") -> Padding:
    """A line that keeps its indentation where the terminal makes several of it."""
    text = line.lstrip(" ")
    return Padding(Text(text, style=style), (0, 0, 0, len(line) - len(text)))


def _briefly(result: CaseResult) -> Padding:
    what = visible(result.failures[0].name).upper() if result.failures else visible(result.reason)
    return _indented(f"  {result.id}   {what}   seed {result.seed}")


def _gates(report: Report) -> Table:
    counts = {gate: counts_of(report, gate) for gate in report.gates}
    shown = [v for v in VERDICTS if v in ("PASS", "FAIL") or any(c[v] for c in counts.values())]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("gate", overflow="fold")
    table.add_column("", overflow="fold")
    for verdict in shown:
        table.add_column(verdict, justify="right", overflow="fold")
    for gate, found in counts.items():
        verdict = verdict_of(report, gate)
        cells = [Text(str(found[v]) if found[v] else "·", STYLES[v]) for v in shown]
        table.add_row(Text(gate), Text(verdict, STYLES[verdict]), *cells)
    return table


def _reasons(report: Report) -> Iterator[RenderableType]:
    """Why what is not PASS is not: what shares a reason shares a line."""
    groups: dict[tuple[CaseVerdict, str], list[CaseResult]] = defaultdict(list)
    for result in report.results:
        if result.verdict not in ("PASS", "FAIL"):
            groups[result.verdict, result.reason].append(result)
    for (verdict, reason), results in sorted(groups.items(), key=_by_verdict):
        line = Text(f"{verdict} ({len(results)})  ", STYLES[verdict])
        line.append(visible(reason) or "no reason was given", style="default")
        yield line
        # What a store does not offer is known by the reason alone.
        if verdict != "NOT CLAIMED":
            yield _indented(f"  {_named(results)}", style="dim")
    for gate in report.gates:
        if verdict_of(report, gate) == "NOT RUN" and not counts_of(report, gate)["NOT RUN"]:
            yield Text(f"NOT RUN  no case of the gate {gate} ran", STYLES["NOT RUN"])
    if groups:
        yield Text()


def _by_verdict(group: tuple[tuple[CaseVerdict, str], list[CaseResult]]) -> int:
    return VERDICTS.index(group[0][0])


def _named(results: list[CaseResult]) -> str:
    modes: dict[str, list[str]] = defaultdict(list)
    for result in results:
        modes[result.case].append(result.mode)
    names = [f"{case}[{','.join(found)}]" for case, found in modes.items()]
    rest = len(names) - NAMED_MAX
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _notes(report: Report) -> Iterator[RenderableType]:
    # The modes of a case note the same, and a report may have gathered it already.
    notes = (*report.notes, *(note for result in report.results for note in result.notes))
    yield from (Text(f"note: {visible(note)}") for note in dict.fromkeys(notes))


def _end(report: Report) -> Iterator[RenderableType]:
    line = Text(report.verdict, STYLES[report.verdict])
    parts = [visible(target_of(report)), f"contract {report.contract}", f"seed {report.seed}"]
    parts += [counted(len(report.results), "case"), f"{report.duration_s:.1f} s"]
    line.append("   " + "   ".join(parts), style="default")
    yield line
    yield Text(badge_of(report).line, style="dim")
