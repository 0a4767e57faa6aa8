"""Step 7: a snapshot stays, holds what showed when it was taken, and comes back as it was."""

from __future__ import annotations

from collections.abc import Iterator

from memory_contract.checker.events import Event, SessionHistory
from memory_contract.checker.removal import Removals
from memory_contract.checker.verdict import Anomaly
from memory_contract.history import NOT_FOUND, Ids, Operation

# A read of a rollback's result, and what it lacks or has too much.
Accused = set[tuple[int, str]]


def check_snapshots(session: SessionHistory, removals: Removals) -> list[Anomaly]:
    """Lost snapshots, and snapshots that hold what they cannot hold."""
    found = [*_find_lost(session, removals)]
    first: dict[str, tuple[Ids, Operation]] = {}
    for name, ids, op in session.contents:
        taken = removals.snapshots.get(name, ())
        # Two snapshots of one name leave open which of them was seen.
        if len(taken) != 1:
            continue
        known = first.setdefault(name, (ids, op))
        if known[0] != ids:
            found.append(_build_unstable(session, name, known, (ids, op), taken[0]))
        else:
            found += _check_contents(session, removals, taken[0], ids, op)
    return found


def _find_lost(session: SessionHistory, removals: Removals) -> Iterator[Anomaly]:
    used = [event.op for event in removals.rollbacks if event.sure]
    used += [op for _, _, op in session.contents]
    for op in session.refused:
        if op.value != NOT_FOUND:
            continue
        for event in removals.snapshots.get(op.snapshot or "", ()):
            gone = any(e.within(event.lo, op.complete_ns or 0) for e in session.of("expire"))
            # It was there for certain if it was acknowledged, or used, before.
            known = [event.op] if event.sure else []
            known += [each for each in used if each.snapshot == op.snapshot]
            before = [each for each in known if (each.complete_ns or 0) < op.invoke_ns]
            if before and not gone:
                what = "" if before[0].op == "snapshot" else f"a {before[0].op} of "
                proof = (
                    f"{what}snapshot {op.snapshot} was acknowledged to {before[0].worker},"
                    f" and {op.worker} was told that there is none."
                )
                witness = tuple(dict.fromkeys((event.op, before[0], op)))
                yield Anomaly("lost snapshot", session.name, (), witness, proof)
                break


def _build_unstable(
    session: SessionHistory,
    name: str,
    one: tuple[Ids, Operation],
    two: tuple[Ids, Operation],
    taken: Event,
) -> Anomaly:
    differ = tuple(sorted(set(one[0]) ^ set(two[0]))) or two[0]
    proof = f"snapshot {name} was seen twice and was not the same: {' '.join(differ)} differ."
    witness = tuple(dict.fromkeys((taken.op, one[1], two[1])))
    return Anomaly("unstable snapshot", session.name, differ, witness, proof)


def _check_contents(
    session: SessionHistory, removals: Removals, taken: Event, ids: Ids, op: Operation
) -> Iterator[Anomaly]:
    name, held = taken.op.snapshot or "", set(ids)
    seen = (op,) if op is not taken.op else ()
    for entry in session.entries.values():
        witness = (entry.event.op, taken.op, *seen)
        if entry.id not in held and removals.surely_in(name, entry):
            proof = f"{entry.id} was there when snapshot {name} was taken, and is not in it."
            yield Anomaly("lossy snapshot", session.name, (entry.id,), witness, proof)
        elif entry.id in held and entry.lo > taken.hi:
            proof = f"{entry.id} was appended after snapshot {name} was taken, and is in it."
            yield Anomaly("leaking snapshot", session.name, (entry.id,), witness, proof)


def check_rollbacks(session: SessionHistory, removals: Removals, accused: Accused) -> list[Anomaly]:
    """Reads of a session at rest after a rollback that do not show the snapshot."""
    rollbacks = [event for event in removals.rollbacks if event.sure]
    if not rollbacks:
        return []
    moving = [*session.changes(), *session.of("append"), *session.forked]
    found: list[Anomaly] = []
    for read in session.reads:
        before = [event for event in rollbacks if event.hi < read.invoke_ns]
        event = max(before, key=lambda event: event.lo, default=None)
        if event is None or read.limit is not None:
            continue
        end = read.complete_ns or 0
        if any(other.within(event.lo, end) for other in moving if other is not event):
            continue
        wrong = _find_difference(session, removals, event, read)
        if wrong and not any((id(read), id_) in accused for id_ in wrong[0]):
            found.append(_build_mismatch(session, removals, event, read, wrong))
    return found


def _find_difference(
    session: SessionHistory, removals: Removals, event: Event, read: Operation
) -> tuple[Ids, tuple[Operation, ...]] | None:
    """The ids that tell the read from the snapshot, and where the snapshot was seen."""
    name, shown = event.op.snapshot or "", read.value or ()
    taken = removals.snapshots.get(name, ())
    if len(taken) != 1:
        return None
    for other, ids, op in session.contents:
        if other == name and ids != shown:
            return tuple(sorted(set(ids) ^ set(shown))) or ids, (op,)
    lacking = [
        entry.id
        for entry in session.entries.values()
        if entry.id not in shown and removals.surely_in(name, entry)
    ]
    more = [id_ for id_ in shown if not removals.may_hold(name, session.entries[id_])]
    return ((*lacking, *more), ()) if lacking or more else None


def _build_mismatch(
    session: SessionHistory,
    removals: Removals,
    event: Event,
    read: Operation,
    wrong: tuple[Ids, tuple[Operation, ...]],
) -> Anomaly:
    ids, seen = wrong
    taken = removals.snapshots[event.op.snapshot or ""][0].op
    proof = (
        f"nothing happened between the rollback to {event.op.snapshot} and the read by "
        f"{read.worker}, yet the read differs from the snapshot in {' '.join(ids)}."
    )
    witness = tuple(dict.fromkeys((taken, *seen, event.op, read)))
    return Anomaly("rollback mismatch", session.name, ids, witness, proof)
