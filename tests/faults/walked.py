"""A store in a process that is going to die, and what each verb makes of a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import indelible
from indelible import ChatMessage
from indelible.contract.handles import Loop

# Through these passes all that each engine is asked for, blocking and async.
SEAMS = {
    "sqlite": ("indelible.backends.sqlite.connection:Connection.execute",),
    "redis": (
        "indelible.backends.redis.blocking:Server.carry",
        "indelible.backends.redis.blocking:Server.send_alone",
        "indelible.backends.redis.awaiting:Server.carry",
    ),
    "postgres": (
        "indelible.backends.postgres.link:Link.execute",
        "indelible.backends.postgres.link_async:AsyncLink.execute",
    ),
}
SEAMS["cluster"] = SEAMS["redis"]


@dataclass(frozen=True)
class OpenWalked:
    """Opens a store in the worker."""

    awaited: bool

    def __call__(self, workspace: Path, *, server: str) -> Walked:
        return Walked(server, workspace, awaited=self.awaited)


class Settled:
    """An async store that is called like a blocking one."""

    def __init__(self, url: str, **options: Any) -> None:
        self._loop = Loop()
        self._store = self._loop.settle(indelible.open_async(url, **options))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)
        return lambda *args, **options: self._loop.settle(method(*args, **options))


class Walked:
    """What the kit asks of the worker: prepare a session, do one thing, say what shows."""

    def __init__(self, url: str, workspace: Path, *, awaited: bool) -> None:
        # A process dies here, not the power: no need to wait for the disk.
        options = {"durability": "process"} if url.startswith("sqlite") else {}
        opened = Settled if awaited else indelible.open
        self._store: Any = opened(url, **options)
        self._workspace = workspace

    def read(self, _session: str) -> list[Any]:
        return []

    def prepare(self, verb: str, session: str) -> str:
        """Six entries, a snapshot, one change that can be undone, and one entry more."""
        store = self._store
        store.add_messages(session, [_message(n) for n in range(4)], key="first")
        store.save_context(session, "and", "so")
        snapshot: str = store.save_snapshot(session, label="kept").id
        store.trim(session, keep_last=3)
        store.add_message(session, "user", "on")
        if verb == "import":
            store.export(self._workspace / f"{session}.jsonl", session)
        return snapshot

    def do(self, verb: str, session: str, snapshot: str) -> None:
        """One verb, with a key where it takes one: so it may be done again."""
        store = self._store
        match verb:
            case "append":
                store.add_message(session, "user", "new")
            case "append with a key":
                store.add_message(session, "user", "new", key="new")
            case "batch":
                store.add_messages(session, [_message(n) for n in range(7, 12)], key="batch")
            case "first append":
                store.save_context(f"{session}-new", "hello", "hello", key="hello")
            case "trim":
                store.trim(session, keep_last=2, key="trim")
            case "clear":
                store.clear(session, key="clear")
            case "snapshot":
                store.save_snapshot(session)
            case "rollback":
                store.rollback_to_snapshot(session, snapshot, key="back")
            case "undo":
                store.undo(session, key="undo")
            case "fork":
                store.fork(session, f"{session}-fork")
            case "metadata":
                store.set_metadata(session, {"mood": "calm"})
            case "vacuum":
                store.vacuum(session_id=session, undo_window=0)
            case "forget":
                store.forget(session)
            case "import":
                store.forget(session)
                store.import_(self._workspace / f"{session}.jsonl")

    def shows(self, session: str) -> list[Any]:
        """All that a caller can see of a session, and of those that its verbs make."""
        names = (session, f"{session}-new", f"{session}-fork")
        return [self._one(name) for name in names]

    def _one(self, session: str) -> list[Any]:
        store = self._store
        info = store.session(session)
        return [
            str(info.status),
            [message.content for message in store.get_history(session)],
            [str(snapshot.label) for snapshot in store.list_snapshots(session)],
            dict(info.metadata),
            len(store.timeline(session).changes) if str(info.status) == "active" else 0,
        ]

    def snapshot_shows(self, session: str, snapshot: str) -> list[str]:
        """What the snapshot that was taken at first still brings back; the session is for that."""
        self._store.rollback_to_snapshot(session, snapshot)
        return [message.content for message in self._store.get_history(session)]

    def goes_on(self, session: str) -> bool:
        """Whether the next append is there, and nothing is found to be wrong."""
        self._store.add_message(session, "user", "after")
        there = self._store.get_history(session)[-1].content == "after"
        return bool(there and self._store.verify(session).ok)

    def findings(self) -> list[str]:
        """What is wrong in the whole store."""
        return [finding.what for finding in self._store.verify().findings]

    def close(self) -> None:
        self._store.close()


def _message(number: int) -> ChatMessage:
    return ChatMessage(role="user" if number % 2 == 0 else "assistant", content=f"message {number}")
