"""A checkpointer of LangGraph in a process that is going to die, and what a thread shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

import indelible
from indelible.adapters.langgraph import IndelibleSaver
from tests.support.stores import unsynced

# Long enough that each is a value of its own.
TEXT = "many words of a message " * 20


def put(saver: IndelibleSaver, thread: str, number: int) -> Any:
    """Store the checkpoint of a number; it continues the one before."""
    configurable = {"thread_id": thread, "checkpoint_ns": ""}
    if number > 1:
        configurable["checkpoint_id"] = f"{number - 1:04}"
    versions: Any = {"messages": f"{number:04}"}
    checkpoint = empty_checkpoint() | {
        "id": f"{number:04}",
        "channel_values": {"messages": [f"{at} {TEXT}" for at in range(number)]},
        "channel_versions": versions,
    }
    return saver.put({"configurable": configurable}, checkpoint, {"step": number}, versions)


def put_writes(saver: IndelibleSaver, thread: str, number: int) -> None:
    """Store two writes for a checkpoint."""
    configurable = {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": f"{number:04}"}
    writes = [("messages", f"write {number} {TEXT}"), ("other", number)]
    saver.put_writes({"configurable": configurable}, writes, f"task {number}")


PREPARED = 3
DOES: dict[str, Callable[[IndelibleSaver, str], Any]] = {
    "put": lambda saver, thread: put(saver, thread, PREPARED + 1),
    "put_writes": lambda saver, thread: put_writes(saver, thread, PREPARED),
    "prune": lambda saver, thread: saver.prune([thread]),
    "compact": lambda saver, thread: saver.compact([thread]),
}


def open_walked_saver(_workspace: Path, *, server: str) -> WalkedSaver:
    """Open a saver in the worker."""
    # A process dies here, not the power: no need to wait for the disk.
    return WalkedSaver(indelible.open(server, **unsynced(server)))


def open_synced_saver(workspace: Path) -> WalkedSaver:
    """Open a saver on a file, which survives a power cut."""
    return WalkedSaver(indelible.open(workspace / "agent.db"))


class WalkedSaver:
    """Prepares a thread, does one thing to it, and says what shows."""

    def __init__(self, store: indelible.MemoryStore) -> None:
        self._store = store
        self._saver = IndelibleSaver(store)

    def read(self, _session: str) -> list[Any]:
        return []

    def prepare(self, thread: str) -> None:
        """Three checkpoints; writes for all but the last."""
        for number in range(1, PREPARED + 1):
            put(self._saver, thread, number)
            if number < PREPARED:
                put_writes(self._saver, thread, number)

    def do(self, verb: str, thread: str) -> None:
        """One thing."""
        DOES[verb](self._saver, thread)

    def shows(self, thread: str) -> list[Any]:
        """Every checkpoint of the thread, newest first, with its values and writes."""
        return [
            [
                each.checkpoint["id"],
                each.checkpoint["channel_values"]["messages"],
                [list(write) for write in each.pending_writes or ()],
            ]
            for each in self._saver.list({"configurable": {"thread_id": thread}})
        ]

    def goes_on(self, thread: str) -> bool:
        """Whether the next checkpoint is there, and nothing is found to be wrong."""
        put(self._saver, thread, PREPARED + 2)
        newest = self._saver.get_tuple({"configurable": {"thread_id": thread}})
        there = newest is not None and newest.checkpoint["id"] == f"{PREPARED + 2:04}"
        return bool(there and self._store.verify(f"~thread/{thread}").ok)

    def close(self) -> None:
        self._store.close()
