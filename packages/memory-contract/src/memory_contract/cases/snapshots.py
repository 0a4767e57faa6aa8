"""Snapshots: what was written down once comes back exactly, as often as it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.history import Ids

_BOTH: Final = ("snapshot", "rollback")
_ROUNDS: Final = 3


@case("lifecycle", catches="a snapshot that changes with its session", needs=_BOTH)
def snapshot_is_frozen(context: CaseContext) -> None:
    """Take a snapshot, change the session in every claimed way, and return to it after each."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    frozen = store.append(session, 2) + store.append(session) + store.append(session)
    taken = store.snapshot(session)
    changes: dict[str, Callable[[Client], object]] = {
        "append": lambda client: client.append(session, 2),
        "pop": lambda client: client.pop(session),
        "trim": lambda client: client.trim(session, 2),
        "clear": lambda client: client.clear(session),
    }
    for op, change in changes.items():
        if op != "append" and not context.claims(op):
            continue
        for client in (store, other):
            change(client)
            client.rollback(session, taken)
            context.expect_shown(session, frozen, after=f"{op} and a rollback")


@case("lifecycle", catches="ghosts: entries that a rollback should have taken away", needs=_BOTH)
def rollback_is_exact(context: CaseContext) -> None:
    """Roll back and go on; only the snapshot and what came after the rollback ever shows."""
    store, other = context.open(), context.open_elsewhere()
    session, beside = context.new_session(), context.new_session()
    untouched = store.append(beside, 2)
    frozen = store.append(session) + store.append(session, 2)
    taken = store.snapshot(session)
    later: Ids = ()
    for client in (store, other, store):
        client.append(session)
        client.append(session, 2)
        client.rollback(session, taken)
        context.expect_shown(session, frozen, after="a rollback")
        later = client.append(session)
        context.expect_shown(session, frozen + later, after="a rollback and an append")
    later += other.append(session, 2)
    context.expect_shown(session, frozen + later, after="a rollback and two appends")
    context.expect_shown(beside, untouched, after="rollbacks of another session")


@case(
    "lifecycle",
    catches="a rollback that wipes the snapshots: what was there to return to is gone",
    needs=_BOTH,
)
def rollback_keeps_every_snapshot(context: CaseContext) -> None:
    """Take snapshots, roll back to each over and over from other callers; all stay."""
    store, session = context.open(), context.new_session()
    snapshots = _take_snapshots(context, store, session)
    names = list(snapshots)
    for _ in range(_ROUNDS):
        caller = context.open_elsewhere()
        context.random.shuffle(names)
        for name in names:
            caller.rollback(session, name)
            context.expect_shown(session, snapshots[name], after=f"a rollback to {name}")
        context.expect_shown(session, snapshots[names[-1]], after="a rollback elsewhere")
        # Appends to a branch that is abandoned must not change the snapshots.
        said = caller.append(session)
        name = caller.snapshot(session)
        snapshots[name] = snapshots[names[-1]] + said
        names.append(name)
    for name, shown in snapshots.items():
        store.rollback(session, name)
        context.expect_shown(session, shown, after=f"a rollback to {name}")


def _take_snapshots(context: CaseContext, store: Client, session: str) -> dict[str, Ids]:
    """Snapshots of a session that grows, is trimmed and is cleared, as far as that is claimed."""
    found: dict[str, Ids] = {}
    shown: Ids = ()
    for count in (2, 1, 3):
        shown += store.append(session, count)
        found[store.snapshot(session)] = shown
    if context.claims("trim"):
        store.trim(session, 2)
        shown = shown[-2:]
        found[store.snapshot(session)] = shown
    if context.claims("clear"):
        store.clear(session)
        shown = store.append(session)
        found[store.snapshot(session)] = shown
    return found


@case("lifecycle", catches="a way back that is no way forward again", needs=_BOTH)
def rollback_there_and_back(context: CaseContext) -> None:
    """Go back to the first of two snapshots, forward to the second, and to a branch."""
    store, other, session = context.open(), context.open_elsewhere(), context.new_session()
    early = store.append(session, 2)
    first = store.snapshot(session)
    late = early + store.append(session, 2)
    second = store.snapshot(session)
    for client in (store, other):
        for taken, shown in ((first, early), (second, late), (second, late), (first, early)):
            client.rollback(session, taken)
            context.expect_shown(session, shown, after=f"a rollback to {taken}")
    branch = early + other.append(session)
    third = other.snapshot(session)
    for taken, shown in ((second, late), (third, branch), (first, early), (third, branch)):
        store.rollback(session, taken)
        context.expect_shown(session, shown, after=f"a rollback to {taken}")
