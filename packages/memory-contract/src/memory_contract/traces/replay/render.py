"""What came of a replay, for a person."""

from __future__ import annotations

from memory_contract.report.text import counted, visible
from memory_contract.traces.diagnosis.render import render_explanation
from memory_contract.traces.replay import Replay

_MEANING = {
    "FIXED": "the store does not do it",
    "FAILED": "the store does the same again",
    "CHANGED": "the store does something else that breaks the contract",
    "UNKNOWN": "nothing was proved",
    "ERROR": "the store could not be asked",
}


def render_replay(found: Replay) -> str:
    """The verdict first, then the proof, then how it was run."""
    lines = [f"{found.verdict}   {_MEANING[found.verdict]}"]
    if found.recorded or found.found:
        recorded = ", ".join(sorted(found.recorded)) or "nothing"
        again = ", ".join(sorted(found.found)) or "nothing"
        lines.append(f"  in the trace: {recorded}; here: {again}")
    if found.reason and found.verdict not in ("FAILED", "CHANGED"):
        lines.append(f"  {found.reason}")
    lines += [f"  {line}" for line in _how(found)]
    lines += [f"  note: {note}" for note in found.notes]
    text = "\n".join(map(visible, lines)) + "\n"
    if found.verdict in ("FAILED", "CHANGED") and found.explanation is not None:
        return f"{text}\n{render_explanation(found.explanation)}"
    return text


def _how(found: Replay) -> list[str]:
    if not found.operations or found.way is None:
        return []
    runs = f"{counted(found.operations, 'operation')}, {counted(found.times, 'run')}"
    lines = [f"{runs}, level {found.level}, by {found.way.workers}, seed {found.seed}"]
    overlaps = found.overlaps
    if overlaps.recorded:
        pairs = counted(overlaps.recorded, "pair")
        lines.append(
            f"{overlaps.kept} of {pairs} of overlapping operations overlapped again"
            f" ({overlaps.share:.0%})"
        )
    return lines
