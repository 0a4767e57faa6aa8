"""Step 6: each pop took the last entry, once, and was told of nothing only where nothing was."""

from __future__ import annotations

from collections.abc import Iterator

from memory_contract.checker.events import EntryTimes, Event, SessionHistory
from memory_contract.checker.removal import Removals
from memory_contract.checker.verdict import Anomaly

# Entries that are checked for standing behind a popped one, the newest first.
ASKED_MAX = 64


def check_pops(session: SessionHistory, removals: Removals) -> list[Anomaly]:
    """Two pops of one entry, pops from the middle, and pops of nothing."""
    found = [*_find_double_pops(session, removals)]
    accused = {id(op) for anomaly in found for op in anomaly.witness}
    pops = [pop for pop in session.of("pop") if pop.sure and id(pop.op) not in accused]
    if not pops:
        return found
    sure = sorted((e for e in session.entries.values() if e.sure), key=lambda e: e.order_lo)
    for pop in pops:
        behind = _find_entry_behind(session, removals, pop, sure)
        if behind is None:
            continue
        if pop.op.value is None:
            proof = (
                f"{behind.id} was acknowledged before {pop.op.worker} popped, and nothing could "
                "have removed it; yet the pop found nothing."
            )
            witness = (behind.event.op, pop.op)
            found.append(Anomaly("false empty", session.name, (behind.id,), witness, proof))
        else:
            entry = session.entries[str(pop.op.value)]
            proof = (
                f"{pop.op.worker} popped {entry.id}, but {behind.id} stood behind it, and nothing "
                "could have removed that before."
            )
            seen = (entry.event.op, behind.event.op, pop.op)
            ids = (entry.id, behind.id)
            found.append(Anomaly("wrong pop", session.name, ids, seen, proof))
    return found


def _find_entry_behind(
    session: SessionHistory, removals: Removals, pop: Event, sure: list[EntryTimes]
) -> EntryTimes | None:
    """An entry that was there for certain all through the pop, behind what it returned."""
    popped = session.entries.get(str(pop.op.value)) if pop.op.value is not None else None
    if pop.op.value is not None and popped is None:
        return None
    asked = 0
    for entry in reversed(sure):
        if entry.hi >= pop.lo or (popped and (entry is popped or not popped.before(entry))):
            continue
        asked += 1
        if asked > ASKED_MAX:
            break
        if removals.may_remove(entry, since=entry.lo, until=pop.hi, skip=pop) is None:
            return entry
    return None


def _find_double_pops(session: SessionHistory, removals: Removals) -> Iterator[Anomaly]:
    for id_, pops in removals.pops.items():
        entry = session.entries.get(id_)
        if len(pops) < 2 or entry is None:
            continue
        since, until = min(pop.lo for pop in pops), max(pop.hi for pop in pops)
        if not removals.may_restore(entry, since=since, until=until):
            first, then = pops[0].op, pops[1].op
            proof = (
                f"{id_} was popped by {first.worker} and by {then.worker}; "
                "no rollback or undo could have brought it back in between."
            )
            yield Anomaly("double pop", session.name, (id_,), (entry.event.op, first, then), proof)
