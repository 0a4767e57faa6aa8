"""Who may have removed an entry, who must have, and who may have brought it back.

"May" and "must" are the two sides on which every accusation stands. An entry's absence proves
something only if nobody may have removed it; its presence only if somebody must have, and nobody
may have brought it back. Where a question cannot be answered, the answer is the one that accuses
nobody.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

from memory_contract.checker.events import FOREVER, EntryTimes, Event, SessionHistory, is_empty_pop


class Removals:
    """The removers and restorers of one session."""

    def __init__(self, session: SessionHistory) -> None:
        self.session = session
        pops = [pop for pop in session.of("pop") if not is_empty_pop(pop)]
        # What may touch any entry: a pop without an answer took whatever was last.
        sweepers = session.of("clear", "expire") + [pop for pop in pops if not pop.sure]
        self.sweepers: list[Event] = sorted(sweepers, key=lambda event: event.lo)
        self._starts = [event.lo for event in self.sweepers]
        self._latest = list(accumulate((event.hi for event in self.sweepers), max))
        self.pops: dict[str, list[Event]] = {}
        for pop in pops:
            if pop.sure and isinstance(pop.op.value, str):
                self.pops.setdefault(pop.op.value, []).append(pop)
        self.trims = session.of("trim")
        self.rollbacks = session.of("rollback")
        self.undos = session.of("undo")
        self.snapshots: dict[str, list[Event]] = {}
        for event in session.of("snapshot"):
            self.snapshots.setdefault(event.op.snapshot or "", []).append(event)
        self.only_trims = not (pops or sweepers or self.rollbacks or self.undos)
        entries = session.entries.values()
        self._order_starts = sorted(entry.order_lo for entry in entries)
        self._order_ends = sorted(entry.order_hi for entry in entries)
        self._sure_starts = sorted(entry.order_lo for entry in entries if entry.sure)
        self._sure_arrivals = sorted(entry.hi for entry in entries if entry.sure)
        self._asked: set[tuple[str, str]] = set()

    def may_remove(
        self,
        entry: EntryTimes,
        *,
        since: int,
        until: int,
        undo: bool = False,
        skip: Event | None = None,
    ) -> Event | None:
        """Something that may have removed the entry between the two moments.

        Undo counts only where asked for: it shows what showed before a change, and all that came
        later, so it never is the first to remove an entry.
        """
        at = bisect_right(self._starts, until) - 1
        if at >= 0 and self._latest[at] >= since:
            for event in reversed(self.sweepers[: at + 1]):
                if event.hi >= since and event is not skip:
                    return event
        others: list[Event] = [*self.pops.get(entry.id, ()), *(self.undos if undo else ())]
        others += [
            trim for trim in self.trims if self._may_drop(entry, trim.op.keep or 0, by=trim.hi)
        ]
        for event in others:
            if event.within(since, until) and event is not skip:
                return event
        for event in self.rollbacks:
            possible = event.within(since, until) and event is not skip
            if possible and not self.surely_in(event.op.snapshot or "", entry):
                return event
        keep = self.session.keeps_last
        if keep is None or not self._may_drop(entry, keep, by=until):
            return None
        # The append that pushed it out of what the store keeps.
        pushing = reversed(self.session.of("append"))
        return next((event for event in pushing if event.within(since, until)), None)

    def _may_drop(self, entry: EntryTimes, keep: int, *, by: int) -> bool:
        """Whether so many entries may follow this one that it is not among the newest `keep`."""
        there = bisect_right(self._order_starts, by)
        before = bisect_left(self._order_ends, entry.order_lo)
        # Neither the entry follows itself, nor do those before it in its batch.
        following = there - before - 1 - entry.event.op.ids.index(entry.id)
        return following >= keep

    def must_remove(self, entry: EntryTimes, *, arrived: int, before: int) -> Event | None:
        """The newest thing that removed the entry for certain and was done by then."""
        found = [pop for pop in self.pops.get(entry.id, ()) if pop.hi < before]
        for event in reversed(self.sweepers):
            if event.lo <= arrived:
                break
            if event.sure and event.hi < before and event.op.op != "pop":
                found.append(event)
                break
        for event in [*self.rollbacks, *self.trims]:
            certain = event.sure and arrived < event.lo and event.hi < before
            if certain and self._must_drop(event, entry):
                found.append(event)
        return max(found, key=lambda event: event.lo, default=None)

    def _must_drop(self, event: Event, entry: EntryTimes) -> bool:
        if event.op.op == "rollback":
            return not self.may_hold(event.op.snapshot or "", entry)
        if (event.op.keep or 0) == 0:
            return True
        # Where only trims remove, an entry outlives none of those that follow it, so whatever was
        # there before the trim and follows still counts, or the entry went with an earlier one.
        there = bisect_left(self._sure_arrivals, event.lo)
        not_behind = bisect_right(self._sure_starts, entry.order_hi)
        batch = entry.event.op.ids
        same = entry.own and entry.event.sure and entry.event.hi < event.lo
        behind = len(batch) - 1 - batch.index(entry.id) if same else 0
        return self.only_trims and there - not_behind + behind >= (event.op.keep or 0)

    def may_restore(self, entry: EntryTimes, *, since: int, until: int) -> bool:
        """Whether something may have brought the entry back between the two moments."""
        return any(undo.within(since, until) for undo in self.undos) or any(
            rollback.within(since, until) and self.may_hold(rollback.op.snapshot or "", entry)
            for rollback in self.rollbacks
        )

    def may_hold(self, name: str, entry: EntryTimes) -> bool:
        """Whether a snapshot of that name may hold the entry; one that nobody took may."""
        taken = self.snapshots.get(name)
        return taken is None or any(entry.lo <= event.hi for event in taken)

    def surely_in(self, name: str, entry: EntryTimes) -> bool:
        """Whether the snapshot holds the entry in every legal execution."""
        taken = self.snapshots.get(name, ())
        if len(taken) != 1 or not (entry.sure and taken[0].sure and entry.hi < taken[0].lo):
            return False
        asked = (name, entry.id)
        if asked in self._asked:
            # The answer depends on itself: two rollbacks that overlap each other's snapshots.
            return False
        self._asked.add(asked)
        try:
            return self.may_remove(entry, since=entry.lo, until=taken[0].hi) is None
        finally:
            self._asked.discard(asked)


def settle_fork(session: SessionHistory, sessions: dict[str, SessionHistory]) -> None:
    """Find out which entries a fork brought for certain: those that were surely there for it."""
    if len(session.forked) != 1:
        return
    (fork,) = session.forked
    if not fork.sure or fork.op.snapshot is not None:
        return
    source = sessions[fork.op.session]
    removals = Removals(source)
    for id_, entry in session.entries.items():
        there = source.entries[id_] if not entry.own else None
        if there is not None and there.own and there.sure and there.hi < fork.lo:
            removed = removals.may_remove(there, since=there.lo, until=fork.hi)
            entry.hi, entry.sure = (FOREVER, False) if removed else (fork.hi, True)
