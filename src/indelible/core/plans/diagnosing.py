"""What may go wrong with a store on the engine as it runs: dangers, and space that nobody needs."""

from __future__ import annotations

from indelible import view
from indelible.core.limits import JOURNAL_LINES_MAX, UNDO_WINDOW_S
from indelible.core.plan import Plan, ask
from indelible.core.plans.checking import Progress, each_session
from indelible.core.rules import kept_lines, reachable
from indelible.core.waist import Diagnose, Identify, ReadJournal, ReadSnapshots, Reclaim
from indelible.errors import FormatError
from indelible.model import Gravity, Risk, Status

# Sessions that are named one by one; of more, it says how many there are.
SESSIONS_NAMED_MAX = 20


def risks(*, sessions: bool, progress: Progress | None) -> Plan[tuple[Risk, ...]]:
    """What the engine can lose, and, if asked, the sessions that are mostly out of reach."""
    found = list((yield from ask(Diagnose())))
    if sessions:
        found += yield from _out_of_reach(progress)
    order = list(Gravity)
    return tuple(sorted(found, key=lambda risk: order.index(risk.severity)))


def identity() -> Plan[str | None]:
    """What tells the place of a store from every other."""
    return (yield from ask(Identify()))


def _out_of_reach(progress: Progress | None) -> Plan[list[Risk]]:
    found: list[Risk] = []
    wasted = unnamed = 0
    names = yield from each_session(None)
    for name in names:
        try:
            dead, alive = yield from _counted(name)
        except FormatError:
            # Damage is what `verify` is for.
            continue
        wasted += dead
        if progress is not None:
            progress(name, wasted)
        if dead <= alive:
            continue
        if len(found) == SESSIONS_NAMED_MAX:
            unnamed += 1
        else:
            found.append(
                _wasteful(f"session {name!r}", f"{dead} of its {dead + alive} entries are")
            )
    if unnamed:
        found.append(_wasteful(f"{unnamed} more sessions", "more than half of each is"))
    return found


def _counted(session: str) -> Plan[tuple[int, int]]:
    """How many entries nothing can bring back, and how many something can."""
    snapshots = yield from ask(ReadSnapshots(session))
    journal = yield from ask(ReadJournal(session, JOURNAL_LINES_MAX))
    head = journal.head
    if head.status is not Status.ACTIVE:
        return 0, 0
    undo_since_ms = head.now_ms - UNDO_WINDOW_S * 1000
    reach = reachable(head, snapshots.records, kept_lines(journal.lines, undo_since_ms))
    removable = yield from ask(Reclaim(session, undo_since_ms, dry_run=True))
    return removable.entries, view.count(reach)


def _wasteful(subject: str, share: str) -> Risk:
    return Risk(
        severity=Gravity.WARNING,
        subject=subject,
        risk=f"nothing is lost: {share} out of reach of every view, snapshot and undo, and take"
        " space all the same",
        remedy="run `vacuum`",
    )
