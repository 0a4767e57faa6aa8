"""A store in a process that is going to die, and what each verb makes of a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw

import indelible
from indelible import ChatMessage
from indelible.core.audit import build_audit
from indelible.core.verbs import VERBS
from memory_contract.handles import Loop
from tests.support.stores import unsynced
from tests.support.verbs import CALLS, list_parameters

# Through these passes all that each engine is asked for, blocking and async.
SEAMS = {
    "sqlite": (
        "indelible.backends.sqlite.connection:SqliteConnection.execute",
        "indelible.backends.sqlite.connection:SqliteConnection.execute_many",
    ),
    "redis": (
        "indelible.backends.redis.driver:Channel.send",
        "indelible.backends.redis.driver_async:AsyncChannel.send",
    ),
    "postgres": ("indelible.backends.postgres.connection:PostgresConnection.send",),
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


# Where the memory of a prepared session is.
MEMORY_AT = 7

Do = Callable[[Any, str, str, Path], Any]
# With a store, a session, the file for its export, and the file of the store.
Prepare = Callable[[Any, str, Path, str], Any]


@dataclass(frozen=True)
class WalkedVerb:
    """What is done to a session, with a key where there is one, so that it may be done again."""

    verb: str
    do: Do
    # What it needs beside what every session has.
    prepare: Prepare = lambda *_: None
    # Whether doing it again, without a key, does it twice.
    doubles: bool = False
    # Whether it works on all sessions: the more there are, the more calls it makes.
    whole_store: bool = False
    # Whether it is also walked by async drivers and on a cluster. On PostgreSQL `make test` walks
    # these alone.
    everywhere: bool = False
    # Whether only SQLite can be prepared for it, or has something to do.
    only_sqlite: bool = False


def _remember(store: Any, session: str, *_: Any) -> None:
    store.remember(session, "old", id="m")


def _export_and_forget(store: Any, session: str, export: Path, _: str) -> None:
    store.export(export, session)
    store.forget(session)


DOES: dict[str, WalkedVerb] = {
    "append": WalkedVerb(
        "add_message", lambda store, s, *_: store.add_message(s, "user", "new"), doubles=True
    ),
    "append with a key": WalkedVerb(
        "add_message",
        lambda store, s, *_: store.add_message(s, "user", "new", key="new"),
        everywhere=True,
    ),
    "batch": WalkedVerb(
        "add_messages",
        lambda store, s, *_: store.add_messages(s, [_message(n) for n in range(5)], key="b"),
        everywhere=True,
    ),
    "first append": WalkedVerb(
        "save_context", lambda store, s, *_: store.save_context(f"{s}-new", "hi", "hi", key="hi")
    ),
    "remember": WalkedVerb(
        "remember",
        lambda store, s, *_: store.remember(s, "new", id="m", expected=MEMORY_AT, key="new"),
        _remember,
    ),
    "erase memory": WalkedVerb(
        "erase_memory", lambda store, s, *_: store.erase_memory(s, "m"), _remember
    ),
    "trim": WalkedVerb("trim", lambda store, s, *_: store.trim(s, keep_last=2, key="trim")),
    "hide": WalkedVerb("hide", lambda store, s, *_: store.hide(s, [6], key="hide")),
    "clear": WalkedVerb("clear", lambda store, s, *_: store.clear(s, key="clear")),
    "snapshot": WalkedVerb(
        "save_snapshot", lambda store, s, *_: store.save_snapshot(s), doubles=True
    ),
    "delete snapshot": WalkedVerb(
        "delete_snapshot", lambda store, s, at, _: store.delete_snapshot(s, at)
    ),
    "rollback": WalkedVerb(
        "rollback_to_snapshot",
        lambda store, s, at, _: store.rollback_to_snapshot(s, at, key="back"),
        everywhere=True,
    ),
    "undo": WalkedVerb("undo", lambda store, s, *_: store.undo(s, key="undo")),
    "redo": WalkedVerb(
        "redo",
        lambda store, s, *_: store.redo(s, key="redo"),
        lambda store, s, *_: store.undo(s),
    ),
    "fork": WalkedVerb("fork", lambda store, s, *_: store.fork(s, f"{s}-fork"), everywhere=True),
    "metadata": WalkedVerb(
        "set_metadata", lambda store, s, *_: store.set_metadata(s, {"mood": "calm"})
    ),
    "vacuum": WalkedVerb("vacuum", lambda store, s, *_: store.vacuum(session_id=s, undo_window=0)),
    "reindex": WalkedVerb(
        "reindex",
        lambda store, *_: store.reindex(rebuild=True),
        whole_store=True,
        only_sqlite=True,
    ),
    "forget": WalkedVerb("forget", lambda store, s, *_: store.forget(s), everywhere=True),
    "import": WalkedVerb(
        "import_", lambda store, _, __, export: store.import_(export), _export_and_forget
    ),
    "repair": WalkedVerb(
        "repair",
        lambda store, s, *_: store.repair(s),
        lambda _, s, __, file: _damage(file, s),
        only_sqlite=True,
    ),
}
# Every other verb that writes, by the call that tests share: on all engines if no verb above has
# the operation that commits it.
WALKED = {VERBS[row.verb].commits for row in DOES.values()}
DOES |= {
    verb.name: WalkedVerb(
        verb.name,
        lambda store, s, at, _, call=CALLS[verb.name]: call(store, s, at),
        _remember,
        doubles=verb.appends,
        whole_store=list_parameters(verb.name)[:1] != ["session_id"],
        only_sqlite=verb.commits in WALKED,
    )
    for verb in VERBS.values()
    if verb.writes and verb.name not in {each.verb for each in DOES.values()}
}
# Some of them once more, with a line in the audit of the session.
AUDITED = ("append with a key", "first append", "erase memory", "clear", "rollback", "snapshot")
AUDITED += ("delete snapshot", "fork", "metadata", "forget")
DOES |= {f"audited {verb}": DOES[verb] for verb in AUDITED}


class Walked:
    """What the kit asks of the worker: prepare a session, do one thing, say what shows."""

    def __init__(self, url: str, workspace: Path, *, awaited: bool) -> None:
        # A process dies here, not the power: no need to wait for the disk.
        opened = Settled if awaited else indelible.open
        self._store: Any = opened(url, **unsynced(url))
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
        DOES[verb].prepare(store, session, self._workspace / f"{session}.jsonl", self._file)
        return snapshot

    def do(self, verb: str, session: str, snapshot: str) -> None:
        """One verb."""
        inner = getattr(self._store, "_store", self._store)
        audits = verb.startswith("audited ")
        audit = build_audit(audits, b"a key of the walk" if audits else None, "")
        inner._settings = replace(inner._settings, audit=audit)
        DOES[verb].do(self._store, session, snapshot, self._workspace / f"{session}.jsonl")
        inner._settings = replace(inner._settings, audit=None)

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
            info.entries,
            [memory.text for memory in store.list_memories(session)],
            len(store.timeline(session).changes) if str(info.status) == "active" else 0,
            [line.change for line in store.audit_log(session)],
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
