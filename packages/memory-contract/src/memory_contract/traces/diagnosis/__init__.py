"""Explains a trace: runs the checker on each session and adds up what it proves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from memory_contract.checker import judge
from memory_contract.checker.search import STEPS_MAX
from memory_contract.checker.shrink import SHRINKABLE_MAX, minimal
from memory_contract.checker.verdict import (
    Anomaly,
    Ok,
    Scope,
    Undecided,
    Verdict,
    Violated,
    quote_name,
)
from memory_contract.history import Operation
from memory_contract.results import TOLD_MAX
from memory_contract.traces.diagnosis.history_builder import (
    ResolvedHistory,
    UnknownChange,
    build_history,
    merge_announced,
    to_operation,
)
from memory_contract.traces.diagnosis.trace_reader import (
    Progress,
    TraceMetadata,
    TraceReader,
    find_first_appends,
    group_by_session,
)
from memory_contract.traces.format import TraceCall, TraceOperation

__all__ = ["AnomalyStory", "Explanation", "UnknownChange", "explain_trace", "judge_lines"]

# Operations of a session that are kept to show the surroundings of a proof.
AROUND_MAX: Final = 10_000
# Histories that are kept until all sessions are read, to look for their strange entries there.
STRANGE_MAX: Final = 1_000
UNRECOGNISED: Final = (
    "the entries that were read are none of those that were appended: the store may show them in"
    " another form, which the recorder does not know"
)
UNREAD: Final = "what the reads returned has a form that the recorder does not know"

FindAppends = Callable[[set[str]], dict[str, TraceOperation]]


@dataclass(frozen=True, slots=True)
class AnomalyStory:
    """The first anomaly of its name, the smallest history that shows it, and its surroundings."""

    anomaly: Anomaly
    small: tuple[Operation, ...]
    around: tuple[Operation, ...]


@dataclass(slots=True)
class Explanation:
    """The verdict on a trace, its proofs, and how much was judged."""

    path: Path
    verdict: Verdict
    metadata: TraceMetadata
    # One for each name, in the order in which they happened.
    stories: tuple[AnomalyStory, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    # Calls that the contract has no word for, by their names.
    others: Counter[str] = field(default_factory=Counter)
    # Calls that raised, by their names and the classes of the errors.
    errors: Counter[str] = field(default_factory=Counter)
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
    reader = TraceReader(path, progress)
    builder = _ExplanationBuilder(reader.metadata, session)
    for lines in reader.read_sessions(session):
        builder.add(lines)
    return builder.build(Path(path), reader.find_appends)


def judge_lines(lines: Iterable[TraceCall], metadata: TraceMetadata) -> Explanation:
    """Judge lines in memory as those of a file are judged."""
    builder = _ExplanationBuilder(metadata)
    everything = list(lines)
    for group in group_by_session(everything, metadata):
        builder.add(group)
    return builder.build(Path(), lambda tokens: find_first_appends(everything, tokens))


class _ExplanationBuilder:
    """Adds up the verdicts on sessions."""

    def __init__(self, metadata: TraceMetadata, session: str | None = None) -> None:
        self.metadata = metadata
        # The only session that is asked for.
        self.session = session
        self.counts: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._told: list[Anomaly] = []
        self._stories: dict[str, AnomalyStory] = {}
        self._reasons: list[str] = []
        self._operations = 0
        self._unjudged = 0
        self._unknown: list[UnknownChange] = []
        self._sessions = 0
        self._began: int | None = None
        # Histories with entries that were not appended in them: perhaps in another session.
        self._strange: list[tuple[ResolvedHistory, set[str]]] = []
        # Whether a read showed an entry that was appended before, and one that was not.
        self._recognised = False
        self._unrecognised = False
        # Whether a read returned what the recorder could not look at.
        self._unread = False

    def add(self, lines: list[TraceCall]) -> None:
        """Judge the lines of one session."""
        if not any(isinstance(line, TraceOperation) for line in lines):
            return
        operations, others = merge_announced(lines)
        self.others.update(line.verb for line in others if not line.changes)
        unread = [op.verb for op in operations if _is_unread(op)]
        self._unread = self._unread or bool(unread)
        self.others.update(unread)
        self.errors.update(f"{op.verb} {op.error}" for op in operations if op.error)
        resolved = build_history(lines, self.metadata)
        self._recognised = self._recognised or resolved.recognised
        self._unrecognised = self._unrecognised or resolved.unrecognised
        self._operations += resolved.operations
        self._unjudged += resolved.unjudged
        if resolved.unknown is not None and len(self._unknown) < TOLD_MAX:
            self._unknown.append(resolved.unknown)
        told_of = (line for line in lines if isinstance(line, TraceOperation) and not line.every)
        self._sessions += len({line.session for line in told_of})
        began = min((line.invoke_ns for line in lines), default=0)
        self._began = began if self._began is None else min(self._began, began)
        strange = resolved.find_strange()
        if strange and len(self._strange) < STRANGE_MAX:
            self._strange.append((resolved, strange))
        else:
            self._judge(resolved)

    def _judge_strange(self, find_appends: FindAppends) -> None:
        """Judge the histories with strange entries, with the appends to other sessions."""
        tokens = {token for _, strange in self._strange for token in strange}
        origins = find_appends(tokens) if tokens else {}
        self._recognised = self._recognised or bool(origins)
        for resolved, strange in self._strange:
            ours = {op.session for op in resolved.history}
            resolved.history += [
                to_operation(origins[token], ids=(token,), key=None)
                for token in sorted(strange & origins.keys())
                if origins[token].session not in ours
            ]
            self._judge(resolved)

    def _judge(self, resolved: ResolvedHistory) -> None:
        verdict = judge(resolved.history, search_steps=STEPS_MAX if resolved.searchable else 0)
        found = verdict.anomalies if isinstance(verdict, Violated) else ()
        for anomaly in (*found, *resolved.anomalies):
            self.counts[anomaly.name] += 1
            if self.counts[anomaly.name] <= TOLD_MAX:
                self._told.append(anomaly)
            known = self._stories.get(anomaly.name)
            if known is None or _get_moment(anomaly) < _get_moment(known.anomaly):
                self._stories[anomaly.name] = _build_story(anomaly, resolved.history)
        if isinstance(verdict, Undecided) and not resolved.anomalies:
            self._reasons.append(verdict.reason)

    def build(self, path: Path, find_appends: FindAppends) -> Explanation:
        """Build the explanation; `find_appends` finds the first append of each of some hashes."""
        self._judge_strange(find_appends)
        scope = Scope(self._operations, self._sessions, self._began or 0)
        if obstacle := self._find_obstacle():
            verdict: Verdict = Undecided(obstacle, scope)
            return Explanation(path, verdict, self.metadata, unjudged=self._operations)
        verdict = Ok(scope)
        if self._told:
            verdict = Violated(tuple(sorted(self._told, key=_get_moment)), scope)
        elif self._reasons:
            rest = len(self._reasons) - 1
            more = f" (and {rest} other sessions)" if rest else ""
            verdict = Undecided(self._reasons[0] + more, scope)
        elif self._unread and not self._recognised:
            verdict = Undecided(UNREAD, scope)
        elif 2 * self._unjudged > self._operations:
            verdict = Undecided("most of the trace could not be judged", scope)
        stories = sorted(self._stories.values(), key=lambda story: _get_moment(story.anomaly))
        return Explanation(
            path,
            verdict,
            self.metadata,
            stories=tuple(map(_minimize_story, stories)),
            counts=self.counts,
            others=self.others,
            errors=self.errors,
            unjudged=self._unjudged,
            unknown=tuple(self._unknown),
        )

    def _find_obstacle(self) -> str | None:
        """Return why nothing can be judged; None if something can."""
        if not self._operations:
            of_session = "" if self.session is None else f" of session {quote_name(self.session)}"
            return f"the trace holds no operation{of_session}"
        if self.metadata.own_ids and self.metadata.dropped:
            return "the history is cut off, so calls of any moment may be missing"
        if obstacle := self.metadata.find_obstacle():
            return obstacle
        return UNRECOGNISED if self._unrecognised and not self._recognised else None


def _is_unread(op: TraceOperation) -> bool:
    """Return whether a read came back with something that the recorder could not look at."""
    return op.op == "read" and op.outcome == "info" and op.complete_ns is not None and not op.error


def _get_moment(anomaly: Anomaly) -> int:
    return max((op.invoke_ns for op in anomaly.witness), default=0)


def _build_story(anomaly: Anomaly, history: list[Operation]) -> AnomalyStory:
    if len(history) > SHRINKABLE_MAX:
        needed = set(map(id, (*anomaly.witness, *anomaly.beside)))
        history = [op for op in history if op.session == anomaly.session or id(op) in needed]
    return AnomalyStory(anomaly, (), tuple(history[:AROUND_MAX]))


def _minimize_story(story: AnomalyStory) -> AnomalyStory:
    """Add the smallest history that shows the anomaly."""
    counted = any(isinstance(op, TraceOperation) for op in story.anomaly.witness)
    if not counted and len(story.around) <= SHRINKABLE_MAX:
        return replace(story, small=tuple(minimal(story.around, story.anomaly)))
    # The witness of a count is already as small as it can be.
    return replace(story, small=story.anomaly.witness)
