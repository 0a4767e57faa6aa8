"""A store in a process that is going to die, and what each verb makes of a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

import indelible
from indelible import ChatMessage
from memory_contract.handles import Loop

# Through these passes all that each engine is asked for, blocking and async.
SEAMS = {
    "sqlite": (
        "indelible.backends.sqlite.connection:SqliteConnection.execute",
        "indelible.backends.sqlite.connection:SqliteConnection.execute_many",
    ),
    "redis": (
        "indelible.backends.redis.channel:Channel.send",
        "indelible.backends.redis.channel_async:AsyncChannel.send",
    ),
    "postgres": (
        "indelible.backends.postgres.connection:PostgresConnection.execute",
        "indelible.backends.postgres.connection_async:AsyncPostgresConnection.execute",
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


def _forgotten_and_imported(store: Any, session: str, _: str, file: Path) -> None:
    store.forget(session)
    store.import_(file)


# Where the memory of a prepared session is.
MEMORY_AT = 7

# What is done to a session, by the verb that does it. With a key where there is one, so that it may
# be done again.
DOES: dict[str, tuple[str, Callable[[Any, str, str, Path], Any]]] = {
    "append": ("add_message", lambda store, s, *_: store.add_message(s, "user", "new")),
    "append with a key": (
        "add_message",
        lambda store, s, *_: store.add_message(s, "user", "new", key="new"),
    ),
    "batch": (
        "add_messages",
        lambda store, s, *_: store.add_messages(s, [_message(n) for n in range(5)], key="b"),
    ),
    "first append": (
        "save_context",
        lambda store, s, *_: store.save_context(f"{s}-new", "hi", "hi", key="hi"),
    ),
    "remember": (
        "remember",
        lambda store, s, *_: store.remember(s, "new", id="m", expected=MEMORY_AT, key="new"),
    ),
    "erase memory": ("erase_memory", lambda store, s, *_: store.erase_memory(s, "m")),
    "trim": ("trim", lambda store, s, *_: store.trim(s, keep_last=2, key="trim")),
    "hide": ("hide", lambda store, s, *_: store.hide(s, [6], key="hide")),
    "clear": ("clear", lambda store, s, *_: store.clear(s, key="clear")),
    "snapshot": ("save_snapshot", lambda store, s, *_: store.save_snapshot(s)),
    "delete snapshot": ("delete_snapshot", lambda store, s, at, _: store.delete_snapshot(s, at)),
    "rollback": (
        "rollback_to_snapshot",
        lambda store, s, at, _: store.rollback_to_snapshot(s, at, key="back"),
    ),
    "undo": ("undo", lambda store, s, *_: store.undo(s, key="undo")),
    "redo": ("redo", lambda store, s, *_: store.redo(s, key="redo")),
    "fork": ("fork", lambda store, s, *_: store.fork(s, f"{s}-fork")),
    "metadata": ("set_metadata", lambda store, s, *_: store.set_metadata(s, {"mood": "calm"})),
    "vacuum": ("vacuum", lambda store, s, *_: store.vacuum(session_id=s, undo_window=0)),
    "reindex": ("reindex", lambda store, *_: store.reindex(rebuild=True)),
    "forget": ("forget", lambda store, s, *_: store.forget(s)),
    "import": ("import_", _forgotten_and_imported),
    "repair": ("repair", lambda store, s, *_: store.repair(s)),
}


class Walked:
    """What the kit asks of the worker: prepare a session, do one thing, say what shows."""

    def __init__(self, url: str, workspace: Path, *, awaited: bool) -> None:
        # A process dies here, not the power: no need to wait for the disk.
        options = {"durability": "process"} if url.startswith("sqlite") else {}
        opened = Settled if awaited else indelible.open
        self._store: Any = opened(url, **options)
        self._file = url.removeprefix("sqlite:///")
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
        if verb in ("remember", "erase memory"):
            store.remember(session, "old", id="m")
        if verb == "redo":
            store.undo(session)
        if verb == "import":
            store.export(self._workspace / f"{session}.jsonl", session)
        if verb == "repair":
            _damage(self._file, session)
        return snapshot

    def do(self, verb: str, session: str, snapshot: str) -> None:
        """One verb."""
        _, do = DOES[verb]
        do(self._store, session, snapshot, self._workspace / f"{session}.jsonl")

    def shows(self, session: str) -> list[Any]:
        """All that a caller can see of a session, and of those that its verbs make."""
        names = (session, f"{session}-new", f"{session}-fork")
        return [self._one(name) for name in names]

    def _one(self, session: str) -> list[Any]:
        store = self._store
        info = store.session(session)
        return [
            str(info.status),
            [m.content for m in store.get_history(session, on_corrupt="quarantine")],
            [str(snapshot.label) for snapshot in store.list_snapshots(session)],
            dict(info.metadata),
            [memory.text for memory in store.list_memories(session)],
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
        report = self._store.verify()
        return [] if report.ok else [finding.what for finding in report.findings]

    def close(self) -> None:
        self._store.close()


def _message(number: int) -> ChatMessage:
    return ChatMessage(role="user" if number % 2 == 0 else "assistant", content=f"message {number}")


def _damage(file: str, session: str) -> None:
    """Change the newest entry behind the store's back."""
    with apsw.Connection(file) as connection:
        connection.execute(
            "UPDATE entry SET payload = CAST(substr(payload, 1, 4) || x'00' AS BLOB)"
            " WHERE id = (SELECT number << 32 | 6 FROM session WHERE name = ?)",
            (session,),
        )
        assert connection.changes() == 1
    connection.close()
