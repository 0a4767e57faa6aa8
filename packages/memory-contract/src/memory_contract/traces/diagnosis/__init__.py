"""Explain a trace: run the checker on each session and say what it proves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from memory_contract.checker import judge
from memory_contract.checker.search import STEPS_MAX
from memory_contract.checker.shrink import minimal
from memory_contract.checker.verdict import Anomaly, Ok, Scope, Undecided, Verdict, Violated
from memory_contract.history import Operation
from memory_contract.results import TOLD_MAX
from memory_contract.traces.diagnosis.history_builder import (
    ResolvedHistory,
    UnknownChange,
    build_history,
    merge_announced,
)
from memory_contract.traces.diagnosis.trace_metadata import CLOCKS_APART_NS, TraceMetadata
from memory_contract.traces.diagnosis.trace_sorter import (
    Progress,
    TraceSorter,
    find_first_appends,
    group_by_session,
)
from memory_contract.traces.format import TraceCall, TraceOperation

__all__ = ["AnomalyStory", "Explanation", "UnknownChange", "explain_trace", "judge_lines"]

# Of a session's operations, what is kept to show the others around a proof.
AROUND_MAX: Final = 10_000
# A smaller history is sought only in what the checker judges within milliseconds.
SHRINKABLE_MAX: Final = 2_000
# Entries of which it is asked whether another session had them first.
LOOKED_FOR_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class AnomalyStory:
    """The first anomaly of its name, the smallest history that shows it, and its surroundings."""

    anomaly: Anomaly
    small: tuple[Operation, ...]
    around: tuple[Operation, ...]
    # The lines that the small history came from, to be replayed.
    lines: tuple[TraceOperation, ...] = ()


@dataclass(slots=True)
class Explanation:
    """What a trace proves."""

    path: Path
    verdict: Verdict
    metadata: TraceMetadata
    # One for each name, in the order in which they happened.
    stories: tuple[AnomalyStory, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    # Calls that the contract has no word for, by their names.
    others: Counter[str] = field(default_factory=Counter)
    # Of the operations in the verdict's scope, how many prove nothing.
    unjudged: int = 0
    # Of each session that an unknown call may have changed: the call, and how many came before it.
    unknown: tuple[UnknownChange, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of all anomalies."""
        return frozenset(self.counts)


def explain_trace(
    path: str | Path, *, session: str | None = None, progress: Progress | None = None
) -> Explanation:
    """Judge a trace of any length, or one session of it."""
    ordered = TraceSorter(path, progress)
    builder = _ExplanationBuilder(ordered.metadata)
    for group in ordered.read_groups():
        ours = group if session is None else _select_session(group, session)
        if any(isinstance(line, TraceOperation) for line in ours):
            builder.add(ours)
    if ordered.clocks_disagree(CLOCKS_APART_NS):
        return builder.build(Path(path), unsure=_CLOCKS)
    builder.find_leaks(ordered.find_appends)
    return builder.build(Path(path))


_CLOCKS: Final = (
    "it was recorded on several machines, or boots of one, at the same time: their clocks cannot"
    " be compared"
)


def _select_session(group: list[TraceCall], session: str) -> list[TraceCall]:
    names = {session}
    for line in group:
        if isinstance(line, TraceOperation) and line.op == "fork" and line.target == session:
            names.add(line.session)
    asked = any(line.session == session for line in group)
    return [line for line in group if line.every or line.session in names] if asked else []


def judge_lines(lines: Iterable[TraceCall], metadata: TraceMetadata) -> Explanation:
    """Judge lines in memory as those of a file are judged."""
    builder = _ExplanationBuilder(metadata)
    everything = list(lines)
    for group in group_by_session(everything):
        builder.add(group)
    builder.find_leaks(lambda tokens: find_first_appends(everything, tokens))
    return builder.build(Path())


class _ExplanationBuilder:
    """Adds up the verdicts on groups of sessions."""

    def __init__(self, metadata: TraceMetadata) -> None:
        self.metadata = metadata
        self.counts: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        self._told: list[Anomaly] = []
        self._stories: dict[str, AnomalyStory] = {}
        self._reasons: list[str] = []
        self._undecided = 0
        self._operations = 0
        self._unjudged = 0
        self._unknown: list[UnknownChange] = []
        self._sessions = 0
        self._began: int | None = None
        # Of garbage: the session's history, to be judged again with what is found elsewhere.
        self._strange: list[tuple[Anomaly, ResolvedHistory]] = []

    def add(self, lines: list[TraceCall]) -> None:
        """Judge the sessions of one group."""
        _, others = merge_announced(lines)
        self.others.update(line.verb for line in others if not line.changes)
        resolved = build_history(lines, self.metadata)
        verdict = _judge(resolved)
        self._operations += resolved.operations
        self._unjudged += resolved.unjudged
        if len(self._unknown) < TOLD_MAX:
            self._unknown += resolved.unknown
        told_of = (line for line in lines if isinstance(line, TraceOperation) and not line.every)
        self._sessions += len({line.session for line in told_of})
        began = min((line.invoke_ns for line in lines), default=0)
        self._began = began if self._began is None else min(self._began, began)
        if isinstance(verdict, Undecided):
            self._undecided += 1
            self._reasons = self._reasons or [verdict.reason]
        if isinstance(verdict, Violated):
            for anomaly in verdict.anomalies:
                strange = anomaly.name == "garbage read" and len(self._strange) < LOOKED_FOR_MAX
                if strange:
                    self._strange.append((anomaly, resolved))
                else:
                    self._add_anomaly(anomaly, resolved)

    def find_leaks(self, appends_of: Callable[[set[str]], dict[str, TraceOperation]]) -> None:
        """Find out whether garbage was appended in another session: then it leaked."""
        tokens = {anomaly.ids[0] for anomaly, _ in self._strange}
        origins = appends_of(tokens) if tokens else {}
        for anomaly, resolved in self._strange:
            origin = origins.get(anomaly.ids[0])
            if origin is not None and origin.session != anomaly.session:
                self._add_leak(anomaly, resolved, origin)
            else:
                self._add_anomaly(anomaly, resolved)
        self._strange = []

    def _add_leak(
        self, anomaly: Anomaly, resolved: ResolvedHistory, origin: TraceOperation
    ) -> None:
        source = Operation(
            worker=origin.worker,
            session=origin.session,
            op="append",
            invoke_ns=origin.invoke_ns,
            complete_ns=origin.complete_ns,
            outcome=origin.outcome,
            ids=anomaly.ids[:1],
        )
        again = ResolvedHistory(
            [*resolved.history, source], [], resolved.searchable, resolved.origin
        )
        again.origin[id(source)] = origin
        verdict = _judge(again)
        found = verdict.anomalies if isinstance(verdict, Violated) else ()
        for each in found:
            if each.name == "cross-session leak" and each.ids == anomaly.ids:
                self._add_anomaly(each, again)

    def _add_anomaly(self, anomaly: Anomaly, resolved: ResolvedHistory) -> None:
        self.counts[anomaly.name] += 1
        if self.counts[anomaly.name] <= TOLD_MAX:
            self._told.append(anomaly)
        known = self._stories.get(anomaly.name)
        if known is None or _get_moment(anomaly) < _get_moment(known.anomaly):
            self._stories[anomaly.name] = _build_story(anomaly, resolved)

    def build(self, path: Path, *, unsure: str = "") -> Explanation:
        """Build the explanation."""
        for anomaly, resolved in self._strange:
            self._add_anomaly(anomaly, resolved)
        scope = Scope(self._operations, self._sessions, self._began or 0)
        verdict: Verdict = Ok(scope)
        if unsure:
            verdict = Undecided(unsure, scope)
        elif self._told:
            verdict = Violated(tuple(sorted(self._told, key=_get_moment)), scope)
        elif self._reasons:
            more = f" (and {self._undecided - 1} other sessions)" if self._undecided > 1 else ""
            verdict = Undecided(self._reasons[0] + more, scope)
        elif 2 * self._unjudged > self._operations:
            verdict = Undecided("most of the trace could not be judged", scope)
        stories = sorted(self._stories.values(), key=lambda story: _get_moment(story.anomaly))
        return Explanation(
            path=path,
            verdict=verdict,
            metadata=self.metadata,
            stories=() if unsure else tuple(map(_minimize_story, stories)),
            counts=Counter() if unsure else self.counts,
            others=self.others,
            unjudged=self._operations if unsure else self._unjudged,
            unknown=tuple(self._unknown),
        )


def _judge(resolved: ResolvedHistory) -> Verdict:
    verdict = judge(resolved.history, search_steps=STEPS_MAX if resolved.searchable else 0)
    if not resolved.anomalies:
        return verdict
    found = verdict.anomalies if isinstance(verdict, Violated) else ()
    return Violated((*found, *resolved.anomalies), verdict.scope)


def _get_moment(anomaly: Anomaly) -> int:
    return max((op.invoke_ns for op in anomaly.witness), default=0)


def _build_story(anomaly: Anomaly, resolved: ResolvedHistory) -> AnomalyStory:
    ours = resolved.history
    if len(ours) > SHRINKABLE_MAX:
        needed = set(map(id, (*anomaly.witness, *anomaly.beside)))
        ours = [op for op in ours if op.session == anomaly.session or id(op) in needed]
    around = ours[:AROUND_MAX]
    lines = tuple(resolved.origin[id(op)] for op in ours if id(op) in resolved.origin)
    return AnomalyStory(anomaly, (), tuple(around), lines)


def _minimize_story(story: AnomalyStory) -> AnomalyStory:
    """Add the smallest history that shows the anomaly."""
    counted = any(isinstance(op, TraceOperation) for op in story.anomaly.witness)
    if not counted and len(story.around) <= SHRINKABLE_MAX:
        return replace(story, small=tuple(minimal(story.around, story.anomaly)))
    # What was counted is shown by what was counted.
    return replace(story, small=story.anomaly.witness)
