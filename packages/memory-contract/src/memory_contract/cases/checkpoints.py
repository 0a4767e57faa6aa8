"""Stores of checkpoints: what tasks wrote for the newest state, and the erasing of older states.

Time travel is `snapshot` and `rollback`, and a copied thread is a `fork`: cases of other modules
ask for them.
"""

from __future__ import annotations

import contextlib
from typing import Final

from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.interruption import Interruption

# How many writes a task makes.
WRITES: Final = 3

# A task, and the text that it wrote.
Write = tuple[str, str]


def list_pending(client: Client, session: str) -> list[Write]:
    """What tasks wrote for the newest state of a session."""
    return [(task, text) for task, text in client.ask("pending", session)]


def _build_texts(task: str) -> list[str]:
    return [f"{task} {number}" for number in range(WRITES)]


def _build_writes(*tasks: str) -> list[Write]:
    return [(task, text) for task in tasks for text in _build_texts(task)]


def _expect_pending(client: Client, session: str, expected: list[Write], after: str) -> None:
    """Expect these writes, each once, and those of a task in their order."""
    found = list_pending(client, session)
    proof = f"after {after}, {session} has the pending writes {found} instead of {expected}"
    right = sorted(found, key=_get_task) == sorted(expected, key=_get_task)
    client.context.expect(right, "wrong pending writes", proof, session=session)


def _get_task(write: Write) -> str:
    return write[0]


@case(
    "lifecycle",
    catches="writes of a task that are stored twice, or shown for another state",
    needs=["pending"],
)
def pending_writes_are_stored_once(context: CaseContext) -> None:
    """Put writes of tasks, and again as a retry does: each is there once, for its state alone."""
    store, session, beside = context.open(), context.new_session(), context.new_session()
    other = context.open_elsewhere()
    for each in (session, beside):
        store.append(each)
    for client, task in ((store, "a"), (other, "b"), (store, "b"), (other, "a")):
        client.ask("put_writes", session, task, _build_texts(task))
    for reader in context.clients:
        _expect_pending(reader, session, _build_writes("a", "b"), "two tasks that wrote twice each")
        _expect_pending(reader, beside, [], "writes for another session")
    store.append(session)
    other.ask("put_writes", session, "a", _build_texts("a"))
    for reader in context.clients:
        _expect_pending(reader, session, _build_writes("a"), "the next state and one task")


@case(
    "lifecycle",
    catches="a prune that erases what still shows, or leaves what it should erase",
    needs=["prune", "snapshot", "rollback"],
)
def prune_keeps_what_shows(context: CaseContext) -> None:
    """Prune a session: it shows the same and goes on; what it showed before is gone."""
    store, session = context.open(), context.new_session()
    other = context.open_elsewhere()
    shown = store.append(session, 2)
    older = store.snapshot(session)
    shown += store.append(session, 2)
    if context.claims("pending"):
        store.ask("put_writes", session, "a", _build_texts("a"))
    for pruner in (other, store):
        pruner.ask("prune", session)
        context.expect_shown(session, shown, after="a prune")
        for reader in context.clients if context.claims("pending") else ():
            _expect_pending(reader, session, _build_writes("a"), "a prune")
    # Not recorded: a store may raise any error for a state that is gone.
    with contextlib.suppress(Exception):
        store.ask("rollback", session, context.names[older])
        proof = f"{session} was pruned, and can still be rolled back to {older}"
        context.fail("not pruned", proof, session=session)
    shown += other.append(session)
    context.expect_shown(session, shown, after="a prune and an append")


class _Interrupted(Interruption):
    """An act on a session with three states, and writes for the last if the store keeps any."""

    def prepare(self, writer: Client) -> str:
        session = self.context.new_session()
        for _ in range(3):
            writer.append(session)
        if self.context.claims("pending"):
            writer.ask("put_writes", session, "old", _build_texts("old"))
        return session


class _InterruptedWrites(_Interrupted):
    def act(self, writer: Client, name: str) -> None:
        writer.ask("put_writes", name, "new", _build_texts("new"))

    def judge(self, reader: Client, name: str, acknowledged: bool, after: str) -> None:
        old, new = _build_writes("old"), _build_writes("old", "new")
        nothing_done = not acknowledged and list_pending(reader, name) == old
        _expect_pending(reader, name, old if nothing_done else new, after)
        self.act(reader, name)
        _expect_pending(reader, name, new, f"{after} and a retry")


class _InterruptedPrune(_Interrupted):
    def act(self, writer: Client, name: str) -> None:
        writer.ask("prune", name)

    def judge(self, reader: Client, name: str, acknowledged: bool, after: str) -> None:
        del acknowledged
        ids = tuple(id_ for op in self.context.history if op.session == name for id_ in op.ids)
        self.context.expect_shown(name, ids, after=after)
        self.act(reader, name)
        ids += reader.append(name)
        self.context.expect_shown(name, ids, after=f"{after}, another prune and an append")


@case(
    "lifecycle",
    catches="pending writes that a kill tears, or that a retry doubles",
    needs=["pending"],
    reach="machine",
    modes=("processes",),
)
def kill_in_pending_writes(context: CaseContext) -> None:
    """Kill a process at steps of its writes: all or none are there; a retry makes it all, once."""
    _InterruptedWrites(context).kill_at_steps()


@case(
    "lifecycle",
    catches="a prune that a kill leaves half done, so that the newest state is gone",
    needs=["prune"],
    reach="machine",
    modes=("processes",),
)
def kill_in_prune(context: CaseContext) -> None:
    """Kill a process at steps of a prune: the session shows the same, and goes on."""
    _InterruptedPrune(context).kill_at_steps()


@case(
    "lifecycle",
    catches="pending writes that are doubled, torn or lost with the reply of a server",
    needs=["pending"],
    reach="machine",
)
def lost_reply_in_pending_writes(context: CaseContext) -> None:
    """Lose the reply to each request of writes: all or none are there, and all after a retry."""
    _InterruptedWrites(context).lose_replies()


@case(
    "lifecycle",
    catches="a prune that is half done, or done twice, when the reply of a server is lost",
    needs=["prune"],
    reach="machine",
)
def lost_reply_in_prune(context: CaseContext) -> None:
    """Lose the reply to each request of a prune: the session shows the same, and goes on."""
    _InterruptedPrune(context).lose_replies()
