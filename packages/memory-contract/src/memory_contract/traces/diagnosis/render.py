"""Renders an explanation as text with a timeline, and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memory_contract.checker.explain import explain
from memory_contract.checker.verdict import Anomaly, Ok, Violated, format_count, quote_name
from memory_contract.history import Operation
from memory_contract.printable import escape_unseen
from memory_contract.results import CaseResult, CaseVerdict, Report
from memory_contract.traces.diagnosis import AnomalyStory, Explanation

# Rows of a timeline; a page shows more.
ROWS_MAX: Final = 16
# Columns from one moment to the next.
COLUMNS: Final = 3
# Of the sessions that an unknown call made undecided, those that are named.
UNKNOWN_MAX: Final = 5
# Of the calls that raised or were not judged, those that are named.
CALLS_MAX: Final = 6
_WHY: Final = (
    "what they are about may be older than the trace, or was changed in a way that is not known, or"
    " by a call that is missing"
)
# Ids of one row.
IDS_MAX: Final = 4


def render_explanation(found: Explanation) -> str:
    """Render an explanation as text: one proof for each name of anomaly, then notes."""
    lines: list[str] = []
    verdict = found.verdict
    if isinstance(verdict, Violated):
        for story in found.stories:
            others = (each for each in verdict.anomalies if each is not story.anomaly)
            one = Violated((story.anomaly, *others), verdict.scope)
            lines += [explain(one).rstrip("\n"), *render_timeline(story), ""]
        lines.append(_format_counts(found))
    else:
        lines.append(explain(verdict).rstrip("\n"))
    lines += [f"note: {note}" for note in list_notes(found)]
    return "\n".join(escape_unseen(line) for text in lines for line in text.split("\n")) + "\n"


def _format_counts(found: Explanation) -> str:
    names = ", ".join(f"{name} ({count})" for name, count in found.counts.most_common())
    return f"Found: {names}"


def list_notes(found: Explanation) -> list[str]:
    """List remarks on the trace itself: what is missing, and what was not judged."""
    metadata = found.metadata
    said = []
    if metadata.dropped:
        lines = format_count(metadata.dropped, "line")
        said.append(
            f"missing from the trace: {lines}. What may have been appended by a missing call is not"
            " called garbage or a duplicate"
        )
    if metadata.dropped_changes:
        said.append(
            f"{metadata.dropped_changes} of them may be of changes, which could not be written"
            " down: nothing is called lost"
        )
    said += [
        f"session {quote_name(each.session)}: undecided from operation {each.before + 1} on,"
        f" because {each.verb} may have changed it in a way that the recorder does not know. If it"
        f" changes nothing, name it: record(…, read_only=[{each.verb!r}])"
        for each in found.unknown[:UNKNOWN_MAX]
    ]
    if len(found.unknown) > UNKNOWN_MAX:
        said.append(f"… and {len(found.unknown) - UNKNOWN_MAX} other sessions in the same way")
    if found.unjudged:
        total = found.verdict.scope.operations
        was = "was" if found.unjudged == 1 else "were"
        said.append(f"{found.unjudged} of {total} operations {was} not judged: {_WHY}")
    if metadata.unclosed:
        said.append(
            f"{metadata.unclosed} of its processes did not end in order; their last calls may be"
            " missing"
        )
    if metadata.continued:
        said.append("its oldest files were removed to make room")
    if found.errors:
        calls = ", ".join(f"{call} ({n})" for call, n in found.errors.most_common(CALLS_MAX))
        said.append(f"raised: {calls}")
    if found.others:
        calls = ", ".join(f"{verb} ({n})" for verb, n in found.others.most_common(CALLS_MAX))
        said.append(f"not judged: {calls}")
    if isinstance(found.verdict, Ok) and not metadata.own_ids and not metadata.fresh:
        said.append(
            "sessions that are older than the trace are held only to what was appended in it"
        )
    return said


def render_timeline(story: AnomalyStory) -> list[str]:
    """Draw the smallest history of an anomaly as bars: a row for each call, time runs to the right.

    Where there are too many, those of the proof are drawn, and the first of the others.
    """
    proof = dict.fromkeys((*story.anomaly.witness, *story.anomaly.beside))
    chosen = sorted(story.small, key=lambda op: (op not in proof, op.invoke_ns))[:ROWS_MAX]
    rows = sorted(chosen, key=lambda op: (op.invoke_ns, op.complete_ns or 0))
    moments = sorted(
        {moment for op in rows for moment in (op.invoke_ns, op.complete_ns) if moment is not None}
    )
    column = {moment: place * COLUMNS for place, moment in enumerate(moments)}
    width = max(column.values(), default=0) + 1
    name = max((len(op.worker) for op in rows), default=0)
    lines = [
        f"    {op.worker:<{name}}  {_draw_bar(op, column, width)}  {_describe_call(op)}"
        for op in rows
    ]
    if len(story.small) > ROWS_MAX:
        lines.append(f"    … and {len(story.small) - ROWS_MAX} more")
    return ["  Timeline:", *lines] if rows else []


def _draw_bar(op: Operation, column: dict[int, int], width: int) -> str:
    start = column[op.invoke_ns]
    if op.complete_ns is None:
        return (" " * start + "├" + "─" * (width - start - 2) + "…").ljust(width)
    end = column[op.complete_ns]
    bar = "├" + "─" * (end - start - 1) + "┤" if end > start else "┼"
    return (" " * start + bar).ljust(width)


def _describe_call(op: Operation) -> str:
    words: list[str] = [op.op]
    if op.ids:
        words.append(f"[{_format_few(op.ids)}]")
    if op.keep is not None:
        words.append(f"keep {op.keep}")
    if op.snapshot is not None:
        words.append(op.snapshot[:8])
    if op.target is not None:
        words.append(f"into {quote_name(op.target)}")
    if isinstance(op.value, tuple):
        words.append(f"saw [{_format_few(op.value)}]")
    elif op.value is not None:
        words.append(op.value)
    words.append("" if op.outcome == "ok" else op.outcome)
    return f"{quote_name(op.session)}: " + " ".join(word for word in words if word)


def _format_few(ids: Sequence[str]) -> str:
    if len(ids) <= IDS_MAX:
        return " ".join(ids)
    return f"{' '.join(ids[:2])} … {ids[-1]} ({len(ids)})"


def build_report(found: Explanation, *, command: str) -> Report:
    """Build the report of which the kit draws a page; `command` shows the explanation again."""
    failures: tuple[Anomaly, ...] = ()
    verdict: CaseVerdict = "PASS"
    history: list[Operation] = []
    if isinstance(found.verdict, Violated):
        verdict = "FAIL"
        failures = tuple(story.anomaly for story in found.stories)
        history = list(
            dict.fromkeys(
                op
                for story in found.stories
                for op in (*story.around, *story.anomaly.witness, *story.anomaly.beside)
            )
        )
    elif not isinstance(found.verdict, Ok):
        verdict = "UNKNOWN"
    reason = failures[0].proof if failures else getattr(found.verdict, "reason", "")
    result = CaseResult(
        gate="compatibility",
        case="trace",
        mode=found.metadata.workers or "processes",
        verdict=verdict,
        reason=reason,
        failures=failures,
        history=tuple(history),
        notes=tuple(list_notes(found)),
        command=command,
    )
    return Report(target=str(found.path), seed=0, gates=("compatibility",), results=(result,))
