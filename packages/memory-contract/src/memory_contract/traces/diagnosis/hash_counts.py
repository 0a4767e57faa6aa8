"""Counts of entries that share a hash: how many there can be.

Which of them is which, nobody can tell, so nothing is said about their order. How many there must
be is counted in `absences`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from memory_contract.checker.verdict import Anomaly
from memory_contract.traces.format import TraceOperation, strip_fields


class HashCounts:
    """The appends of every hash, attempts of one key taken together."""

    def __init__(self, operations: Iterable[TraceOperation]) -> None:
        self._by_hash: dict[str, list[TraceOperation]] = defaultdict(list)
        self._counted: set[int] = set()
        self._batches: dict[tuple[str, str], TraceOperation] = {}
        self._mixed_keys: set[tuple[str, str]] = set()
        self._structured: set[str] = set()
        self._not_turns: set[str] = set()
        for op in operations:
            if op.op == "append":
                self._add(op)

    def _add(self, op: TraceOperation) -> None:
        if op.structured:
            self._structured.add(op.session)
        if op.structured or op.roles != ("user", "assistant"):
            self._not_turns.add(op.session)
        if op.outcome == "fail":
            return
        self._counted.add(id(op))
        if not self._is_retry(op):
            for token in op.ids:
                self._by_hash[strip_fields(token)].append(op)

    def _is_retry(self, op: TraceOperation) -> bool:
        """Return whether it is one more attempt of an append that is known by its key."""
        if op.key is None:
            return False
        mark = (op.session, op.key)
        known = self._batches.setdefault(mark, op)
        if known.ids != op.ids:
            self._mixed_keys.add(mark)
        return known is not op and known.ids == op.ids

    def count_appends(self, one: str) -> int:
        """Count the entries of this hash that were appended, or may have been."""
        return len(self._by_hash.get(one, ()))

    def is_counted(self, op: TraceOperation) -> bool:
        """Return whether an append may have had an effect, or is the only one of its entries."""
        return id(op) in self._counted or not any(
            map(self.count_appends, map(strip_fields, op.ids))
        )

    def is_key(self, op: TraceOperation) -> bool:
        """Return whether the key of an append stands for it alone."""
        return op.outcome != "fail" and (op.session, op.key or "") not in self._mixed_keys

    def is_plain(self, session: str) -> bool:
        """Return whether a trim of a session counts its entries and looks at nothing else."""
        shared = any(
            len(ops) > 1 and any(op.session == session for op in ops)
            for ops in self._by_hash.values()
        )
        return session not in self._structured and not shared

    def has_only_turns(self, session: str) -> bool:
        """Return whether a session holds nothing but whole turns."""
        return session not in self._not_turns

    def find_duplicates(
        self, session: str, ops: list[TraceOperation], *, whole: bool
    ) -> Iterator[Anomaly]:
        """Find reads that show more equal entries than were appended."""
        shared = {
            one: appends
            for one, appends in self._by_hash.items()
            if len(appends) > 1 and all(append.session == session for append in appends)
        }
        if not shared or not whole:
            return
        for op in ops:
            if op.op != "read" or not isinstance(op.value, tuple) or op.limit is not None:
                continue
            if op.turns and not self.has_only_turns(session):
                continue
            seen = Counter(map(strip_fields, op.value))
            for one, appends in shared.items():
                yield from self._compare_read(one, appends, op, seen[one])

    def _compare_read(
        self, one: str, appends: list[TraceOperation], read: TraceOperation, seen: int
    ) -> Iterator[Anomaly]:
        begun = [op for op in appends if op.invoke_ns <= (read.complete_ns or 0)]
        if seen > len(begun):
            proof = (
                f"{one} stands {seen} times in what {read.worker} saw, and only {len(begun)} had "
                "been appended."
            )
            yield Anomaly("duplicate", read.session, (one,), (*begun[:3], read), proof)
