"""Steps 4, 5, 8 and 9: what must be there and is not, and what cannot be there and is."""

from __future__ import annotations

from collections.abc import Iterable

from memory_contract.checker.events import FOREVER, EntryTimes, SessionHistory
from memory_contract.checker.removal import Removals
from memory_contract.checker.verdict import Anomaly, Name, format_ids, is_, was
from memory_contract.history import Operation

Missing = dict[str, list[Operation]]


class Presence:
    """One pass over the reads of a session, in the order in which they were invoked."""

    def __init__(self, session: SessionHistory, removals: Removals, *, flicker: bool) -> None:
        self.session = session
        self.removals = removals
        self.changed = bool(session.changes())
        known = session.entries.values()
        # A flickering entry need not be acknowledged; having been seen is enough.
        wanted = (e for e in known if e.sure or (flicker and e.own and e.hi < FOREVER))
        self.pending = sorted(wanted, key=lambda entry: entry.hi)
        # One history has one report, so nothing is told in the order of a set.
        self.rank = {id_: rank for rank, id_ in enumerate(session.entries)}
        self.expected: set[str] = set()
        self.excused: set[str] = set()
        # The invocation of the newest read that saw an entry and was over.
        self.seen_since: dict[str, int] = {}
        self.missing: Missing = {}
        self.doubts = 0

    def run(self) -> Missing:
        """Which reads lack which entries without any excuse."""
        at = 0
        finished = sorted(self.session.reads, key=lambda op: op.complete_ns or 0)
        done = 0
        for read in self.session.reads:
            while at < len(self.pending) and self.pending[at].hi < read.invoke_ns:
                self.expected.add(self.pending[at].id)
                at += 1
            while self.changed and (finished[done].complete_ns or 0) < read.invoke_ns:
                self._note_sighting(finished[done])
                done += 1
            self._check_read(read)
        return self.missing

    def _note_sighting(self, read: Operation) -> None:
        """Remember a sighting; what was excused and is back is expected again."""
        for id_ in read.value or ():
            self.seen_since[id_] = max(read.invoke_ns, self.seen_since.get(id_, 0))
            if id_ in self.excused:
                self.excused.discard(id_)
                self.expected.add(id_)

    def _check_read(self, read: Operation) -> None:
        seen = set(read.value or ())
        if self.expected <= seen:
            return
        absent: list[str] = []
        for id_ in sorted(self.expected - seen, key=self.rank.__getitem__):
            entry = self.session.entries[id_]
            if _is_cut_off(read, entry, self.session):
                continue
            if self.changed and self._is_excused(entry, read):
                continue
            absent.append(id_)
        limit = self.session.get_limit(read)
        if limit is not None:
            # The newest must have been there; a whole answer would not have shown those before.
            absent = absent[-max(1, limit - len(read.value or ())) :]
        for id_ in absent:
            self.missing.setdefault(id_, []).append(read)

    def _is_excused(self, entry: EntryTimes, read: Operation) -> bool:
        """Whether something may have removed the entry; the sooner the better for later reads."""
        until = read.complete_ns or 0
        remover = self.removals.may_remove(entry, since=entry.lo, until=until)
        since = self.seen_since.get(entry.id)
        if remover is not None and since is not None and since > entry.lo:
            remover = self.removals.may_remove(entry, since=since, until=until, undo=True)
        if remover is None:
            return False
        must = self.removals.must_remove(entry, arrived=entry.hi, before=read.invoke_ns)
        self.doubts += must is None
        if remover.lo <= read.invoke_ns:
            # It excuses every later read as well, until the entry is seen again.
            self.expected.discard(entry.id)
            self.excused.add(entry.id)
        return True


def _is_cut_off(read: Operation, entry: EntryTimes, session: SessionHistory) -> bool:
    """Whether a read of the last n may have stopped before it came to the entry."""
    limit = session.get_limit(read)
    if limit is None or not isinstance(read.value, tuple) or len(read.value) < limit:
        return False
    return not read.value or not session.entries[read.value[0]].before(entry)


def check_absences(session: SessionHistory, missing: Missing) -> list[Anomaly]:
    """Give each unexcused absence its name."""
    if not missing:
        return []
    sightings: dict[str, list[Operation]] = {id_: [] for id_ in missing}
    for read in session.reads:
        for id_ in sightings.keys() & set(read.value or ()):
            sightings[id_].append(read)
    lost: dict[int, list[str]] = {}
    stale: dict[tuple[Name, int], list[str]] = {}
    for id_, reads in missing.items():
        last_seen = max((op.complete_ns or 0 for op in sightings[id_]), default=-1)
        if last_seen < reads[-1].invoke_ns:
            lost.setdefault(id(session.entries[id_].event), []).append(id_)
        for read in reads:
            if last_seen >= read.invoke_ns:
                name = _choose_stale_name(read, session.entries[id_], sightings[id_])
                stale.setdefault((name, id(read)), []).append(id_)
    found = [_build_lost(session, ids, missing[ids[0]]) for ids in lost.values()]
    reads_by_id = {id(read): read for reads in missing.values() for read in reads}
    for (name, which), ids in stale.items():
        found.append(_build_stale(session, name, ids, reads_by_id[which], sightings[ids[0]]))
    return found


def _choose_stale_name(read: Operation, entry: EntryTimes, sightings: Iterable[Operation]) -> Name:
    if not entry.sure:
        return "flickering entry"
    writers = {op.worker for op in entry.event.attempts if op.outcome == "ok"}
    if entry.own and read.worker in writers:
        return "read-your-writes"
    for sighting in sightings:
        if sighting.worker == read.worker and (sighting.complete_ns or 0) <= read.invoke_ns:
            return "non-monotonic read"
    return "stale read"


def _build_lost(session: SessionHistory, ids: list[str], reads: list[Operation]) -> Anomaly:
    entry = session.entries[ids[0]]
    append, named = entry.event.op, format_ids(ids)
    later = [e for e in session.of("expire") if e.lo > (reads[0].complete_ns or 0)]
    if later and entry.sure:
        its = "its" if len(ids) == 1 else "their"
        proof = (
            f"{named} {was(ids)} gone before {its} time: the expiry could not begin until later."
        )
        witness = (*entry.origin(), reads[0], later[0].op)
        return Anomaly("early expiry", session.name, tuple(ids), witness, proof)
    if not entry.sure:
        proof = (
            f"{named} {was(ids)} seen, never acknowledged, and {is_(ids)} gone without a remover."
        )
        seen = [op for op in session.reads if ids[0] in (op.value or ())][:1]
        shown = (append, *seen, reads[-1])
        return Anomaly("flickering entry", session.name, tuple(ids), shown, proof)
    last = reads[-1] is session.reads[-1]
    them = "it" if len(ids) == 1 else "them"
    proof = (
        f"{named} {was(ids)} acknowledged to {append.worker} and {is_(ids)} missing from the "
        f"{'final read' if last else f'read by {reads[-1].worker}, and from every later one'}; "
        f"no clear, pop, trim, rollback or expiry could have removed {them} in between."
    )
    beside = _find_overlapping(session, append, reads[-1])
    witness = (*entry.origin(), reads[-1])
    return Anomaly("lost append", session.name, tuple(ids), witness, proof, beside)


def _find_overlapping(
    session: SessionHistory, append: Operation, read: Operation
) -> tuple[Operation, ...]:
    """Another append that was under way at the same time and is there."""
    end = append.complete_ns or FOREVER
    for event in session.of("append"):
        overlaps = event.op is not append and event.within(append.invoke_ns, end)
        if overlaps and set(event.op.ids) <= set(read.value or ()):
            return (event.op,)
    return ()


def _build_stale(
    session: SessionHistory, name: Name, ids: list[str], read: Operation, sightings: list[Operation]
) -> Anomaly:
    entry, named = session.entries[ids[0]], format_ids(ids)
    if name in {"non-monotonic read", "flickering entry"}:
        own = (op for op in sightings if op.worker == read.worker or name == "flickering entry")
        seen = next((op for op in own if (op.complete_ns or 0) <= read.invoke_ns), sightings[0])
        proof = f"{named} {was(ids)} seen by {seen.worker} and then not by {read.worker}"
    else:
        seen = sightings[-1]
        proof = (
            f"{named} {was(ids)} acknowledged before {read.worker} read, and {was(ids)} not seen"
        )
    them = "it" if len(ids) == 1 else "them"
    proof += f"; no clear, pop, trim, rollback or expiry could have removed {them} in between."
    ordered = (seen, read) if seen.invoke_ns < read.invoke_ns else (read, seen)
    return Anomaly(name, session.name, tuple(ids), (*entry.origin(), *ordered), proof)


def check_resurrections(session: SessionHistory, removals: Removals) -> list[Anomaly]:
    """Entries that a read shows although they were removed for certain before it began."""
    found: dict[tuple[str, int], Anomaly] = {}
    for read in session.reads if session.changes() else ():
        for id_ in read.value or ():
            entry = session.entries[id_]
            remover = removals.must_remove(entry, arrived=entry.hi, before=read.invoke_ns)
            if remover is None or (id_, id(remover)) in found:
                continue
            if removals.may_restore(entry, since=remover.lo, until=read.complete_ns or 0):
                continue
            zombie = remover.op.op == "expire"
            name: Name = "zombie entry" if zombie else "resurrected entry"
            proof = (
                f"{id_} was removed for certain by the {remover.op.op} of {remover.op.worker}, "
                f"and {read.worker} still saw it; no rollback or undo could have brought it back."
            )
            witness = (*entry.origin(), remover.op, read)
            found[id_, id(remover)] = Anomaly(name, session.name, (id_,), witness, proof)
    return list(found.values())
