"""Step 2: one order must explain all that was seen.

Whatever is removed or brought back, a session's state is a subsequence of the order in which
appends took effect. So all sightings together, and each batch, must fit into one order, and that
order must not turn around two appends of which one was over before the other began.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

from memory_contract.checker.events import EntryTimes, SessionHistory
from memory_contract.checker.verdict import Anomaly, Name
from memory_contract.history import Ids, Operation

# Above this many entries in a tangle only neighbours are compared: pairs grow with its square.
TANGLE_MAX = 400


def check_order(session: SessionHistory) -> list[Anomaly]:
    """Contradictions between sightings, and between a sighting and the clock."""
    edges: set[tuple[str, str]] = set()
    for _, ids in _iter_sequences(session):
        edges.update(pairwise(ids))
    order, ancestor = _sort_ids(session, edges)
    if len(order) < len(session.entries):
        return _find_in_one_read(session) or _find_turned(
            session, session.entries.keys() - set(order)
        )
    late = [
        (session.entries[ancestor[id_]], entry)
        for id_, entry in session.entries.items()
        if id_ in ancestor and session.entries[ancestor[id_]].order_lo > entry.order_hi
    ]
    if not late:
        return []
    return _find_in_one_read(session) or [
        _build_reorder(session, first, then, _find_path(session, first.id, then.id))
        for first, then in late
    ]


def _iter_sequences(session: SessionHistory) -> Iterator[tuple[Operation, Ids]]:
    for op in session.reads:
        if isinstance(op.value, tuple):
            yield op, op.value
    yield from ((op, ids) for _, ids, op in session.contents)
    yield from ((e.op, e.op.ids) for e in session.of("append") if len(e.op.ids) > 1)


def _sort_ids(
    session: SessionHistory, edges: set[tuple[str, str]]
) -> tuple[list[str], dict[str, str]]:
    """An order that fits, as far as there is one; for each id the last-invoked one before it."""
    after: dict[str, list[str]] = {}
    waiting = dict.fromkeys(session.entries, 0)
    for first, then in sorted(edges):
        after.setdefault(first, []).append(then)
        waiting[then] += 1
    order = [id_ for id_, count in waiting.items() if count == 0]
    ancestor: dict[str, str] = {}
    entries = session.entries
    for id_ in order:
        newest = ancestor.get(id_, id_)
        if entries[id_].order_lo > entries[newest].order_lo:
            newest = id_
        for then in after.get(id_, ()):
            known = ancestor.get(then)
            if known is None or entries[known].order_lo < entries[newest].order_lo:
                ancestor[then] = newest
            waiting[then] -= 1
            if waiting[then] == 0:
                order.append(then)
    return order, ancestor


def _find_in_one_read(session: SessionHistory) -> list[Anomaly]:
    """Entries that one sighting shows against the clock; each pair is named once."""
    found: dict[tuple[str, str], Anomaly] = {}
    for op, ids in _iter_sequences(session):
        newest: EntryTimes | None = None
        for id_ in ids:
            entry = session.entries[id_]
            if newest is not None and newest.order_lo > entry.order_hi:
                pair = (newest.id, id_)
                if pair not in found:
                    found[pair] = _build_reorder(session, newest, entry, (op,))
            if newest is None or entry.order_lo > newest.order_lo:
                newest = entry
    return list(found.values())


def _build_reorder(
    session: SessionHistory, first: EntryTimes, then: EntryTimes, seen: tuple[Operation, ...]
) -> Anomaly:
    one, two = then.event.op, first.event.op
    same = {op.worker for op in then.event.attempts} == {op.worker for op in first.event.attempts}
    name: Name = "program-order violation" if same else "real-time reorder"
    proof = (
        f"{then.id} was in place before the append of {first.id} was invoked, "
        f"but {first.id} stands before {then.id}."
    )
    return Anomaly(name, session.name, (first.id, then.id), (one, two, *seen), proof)


def _find_path(session: SessionHistory, start: str, goal: str) -> tuple[Operation, ...]:
    """The sightings that lead from one id to another, by the fewest."""
    sequences = list(_iter_sequences(session))
    reached: dict[str, tuple[Operation, ...]] = {start: ()}
    queue = [start]
    for id_ in queue:
        for op, ids in sequences:
            if id_ in ids:
                for then in ids[ids.index(id_) + 1 :]:
                    if then not in reached:
                        reached[then] = (*reached[id_], op)
                        queue.append(then)
        if goal in reached:
            break
    return tuple(dict.fromkeys(reached.get(goal, ())))


def _find_turned(session: SessionHistory, tangle: set[str]) -> list[Anomaly]:
    """Two sightings that turn a pair around; failing that, a longer circle."""
    seen: dict[tuple[str, str], Operation] = {}
    found: dict[frozenset[int], Anomaly] = {}
    named: set[str] = set()
    for op, ids in _iter_sequences(session):
        kept = [id_ for id_ in ids if id_ in tangle]
        for first, then in combinations(kept, 2) if len(kept) < TANGLE_MAX else pairwise(kept):
            other = seen.get((then, first))
            seen.setdefault((first, then), op)
            if other is not None and not {first, then} <= named:
                named |= {first, then}
                found.setdefault(
                    frozenset((id(other), id(op))),
                    _build_turned(session, (then, first), (other, op)),
                )
    if found:
        return list(found.values())
    return [_find_circle(session, tangle)]


def _build_turned(session: SessionHistory, ids: Ids, seen: tuple[Operation, ...]) -> Anomaly:
    proof = (
        f"{ids[0]} stands before {ids[1]} in {_describe_place(seen[0])},"
        f" and after it in {_describe_place(seen[1])}; "
        "no order of appends allows both."
    )
    return Anomaly("reordered", session.name, ids, seen, proof)


def _describe_place(sighting: Operation) -> str:
    """A batch is in order as it was written, whatever anybody sees of it later."""
    wrote = sighting.op == "append"
    return f"the batch that {sighting.worker} wrote" if wrote else f"what {sighting.worker} saw"


def _find_circle(session: SessionHistory, tangle: set[str]) -> Anomaly:
    best: tuple[Ids, tuple[Operation, ...]] | None = None
    for op, ids in _iter_sequences(session):
        for first, then in pairwise(id_ for id_ in ids if id_ in tangle):
            back = _find_path(session, then, first)
            if back and (best is None or len(back) + 1 < len(best[1])):
                best = ((first, then), (op, *back))
    assert best is not None, "ids that cannot be sorted stand in a circle"
    first, then = best[0]
    proof = f"{first} and {then} stand each before the other, by way of {len(best[1])} sightings."
    return Anomaly("reordered", session.name, best[0], best[1], proof)
