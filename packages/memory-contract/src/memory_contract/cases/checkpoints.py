"""Stores of checkpoints: what tasks wrote for the newest state, and the erasing of older states.

Time travel is `snapshot` and `rollback`, and a copied thread is a `fork`: cases of other modules
ask for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from memory_contract.adapter import Refused
from memory_contract.case_context import CaseContext, CaseNotClaimed, Client
from memory_contract.cases.case import case
from memory_contract.cases.perturbation import draw_positions
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.workers.pool import StoreRaised, WorkerLost

# How many kills there are, and how many writes a task makes.
KILLS: Final = 10
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


@case(
    "lifecycle",
    catches="pending writes that a kill tears, or that a retry doubles",
    needs=["pending"],
    reach="machine",
    modes=("processes",),
)
def kill_in_pending_writes(context: CaseContext) -> None:
    """Kill a process at steps of its writes: all or none are there; a retry makes it all, once."""

    def write(client: Client, session: str) -> None:
        client.ask("put_writes", session, "new", _build_texts("new"))

    def judge(reader: Client, session: str, acknowledged: bool, after: str) -> None:
        old, new = _build_writes("old"), _build_writes("old", "new")
        found = list_pending(reader, session)
        proof = f"after {after}, {session} has the pending writes {found}"
        allowed = [new] if acknowledged else [old, new]
        right = sorted(found, key=_get_task) in [sorted(each, key=_get_task) for each in allowed]
        context.expect(right, "wrong pending writes", proof, session=session)
        write(reader, session)
        _expect_pending(reader, session, new, f"{after} and a retry")

    _kill_at_steps(context, write, judge)


@case(
    "lifecycle",
    catches="a prune that a kill leaves half done, so that the newest state is gone",
    needs=["prune"],
    reach="machine",
    modes=("processes",),
)
def kill_in_prune(context: CaseContext) -> None:
    """Kill a process at steps of a prune: the session shows the same, and goes on."""
    shown = {}

    def prune(client: Client, session: str) -> None:
        shown[session] = client.look(session)
        client.ask("prune", session)

    def judge(reader: Client, session: str, acknowledged: bool, after: str) -> None:
        del acknowledged
        ids = shown[session]
        context.expect_shown(session, ids, after=after)
        reader.ask("prune", session)
        ids += reader.append(session)
        context.expect_shown(session, ids, after=f"{after}, another prune and an append")

    _kill_at_steps(context, prune, judge)


def _kill_at_steps(
    context: CaseContext,
    act: Callable[[Client, str], None],
    judge: Callable[[Client, str, bool, str], None],
) -> None:
    """Kill a process at steps of what it does to a session; judge what the next one finds."""
    disk = FaultyDisk(context.workspace, python=True)

    def prepare() -> tuple[Client, str]:
        writer, session = context.open_in_process(plugin=disk), context.new_session()
        for _ in range(3):
            writer.append(session)
        if context.claims("pending"):
            writer.ask("put_writes", session, "old", _build_texts("old"))
        return writer, session

    writer, session = prepare()
    writer.worker.call_plugin("kill_at_step", 0)
    act(writer, session)
    steps: int = writer.worker.call_plugin("steps")
    _end(writer)
    if not steps:
        raise CaseNotClaimed("no step of it touches a file")
    for step in draw_positions(context, steps + 1, KILLS):
        writer, session = prepare()
        writer.worker.call_plugin("kill_at_step", step)
        acknowledged = False
        with contextlib.suppress(WorkerLost):
            act(writer, session)
            acknowledged = True
        _end(writer)
        with contextlib.closing(context.open_in_process()) as reader:
            where = f"a kill at step {step}"
            try:
                judge(reader, session, acknowledged, where)
            except (StoreRaised, Refused) as error:
                proof = f"after {where}, a fresh process meets {error}"
                context.fail("unusable after a kill", proof, session=session)


def _end(client: Client) -> None:
    client.worker.kill()
    client.is_open = False
