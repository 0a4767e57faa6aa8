"""Goldfish that trim, expire, roll back, fork and undo wrongly."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from memory_contract.goldfish.lives import Life, Messages, copy_messages, trim_messages
from memory_contract.goldfish.registry import goldfish
from memory_contract.goldfish.stores import FileStore, ListStore
from tests.support.kit.goldfish_stores.right import SqliteOfTheNewest


@goldfish("class: no way forward again", caught_by="rollback_there_and_back")
class LaterSnapshotsDropped(ListStore):
    """Drops the snapshots that were taken after the one that it rolls back to."""

    def rollback(self, session: str, snapshot: str) -> None:
        with self._changing(session) as life:
            life.change(life.frozen(snapshot))
            names = list(life.snapshots)
            for name in names[names.index(snapshot) + 1 :]:
                del life.snapshots[name]


@goldfish("adk#4959, ag-ui#2176", caught_by="rollback_is_exact")
class RollbackLeavesGhosts(ListStore):
    """Brings back what a snapshot has, and takes nothing away that it has not."""

    def rollback(self, session: str, snapshot: str) -> None:
        with self._changing(session) as life:
            frozen = life.frozen(snapshot)
            life.change([*frozen, *(m for m in life.shown if m not in frozen)])


@goldfish("langgraph#8835: an alias in the snapshot", caught_by="snapshot_is_frozen")
class LiveSnapshot(ListStore):
    """Keeps the list itself in a snapshot, not a copy of it."""

    def snapshot(self, session: str) -> str:
        with self._changing(session) as life:
            name = life.freeze()
            life.snapshots[name] = life.shown
            return name


@goldfish("langgraph#8551, langgraphjs#2737", caught_by="fork_is_independent")
class LeakingFork(ListStore):
    """Lets a fork and its source write to one list."""

    def fork(self, session: str, target: str) -> None:
        with self._locked():
            self._save(target, Life(shown=self._alive(session).shown, moves=1))


@goldfish("adk#4933, adk#4839", caught_by="undo_takes_back")
class UndoForgetsTheFirst(ListStore):
    """Undoes a change, but for the first entry."""

    def undo(self, session: str) -> None:
        with self._changing(session) as life:
            life.undo()
            life.shown = life.shown[1:]


@goldfish("class: an undo that restores a copy", caught_by="undo_takes_back")
class UndoForgetsWhatCameSince(ListStore):
    """Undoes a change, and drops what was appended after it."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._since: dict[str, Messages] = {}

    def undo(self, session: str) -> None:
        with self._changing(session) as life:
            life.undo()
            since = self._since.pop(session, [])
            life.shown = [message for message in life.shown if message not in since]

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        super().append(session, messages, **options)
        self._since.setdefault(session, []).extend(messages)

    def clear(self, session: str) -> None:
        super().clear(session)
        self._since.pop(session, None)


@goldfish("class: a snapshot's number without its session", caught_by="rollback_is_exact")
class SnapshotsOfAllSessions(ListStore):
    """Counts the snapshots of each session, and keeps them under their numbers alone."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._taken: dict[str, Messages] = {}

    def snapshot(self, session: str) -> str:
        with self._changing(session) as life:
            life.freeze()
            self._taken[str(len(life.snapshots))] = list(life.shown)
            return str(len(life.snapshots))

    def rollback(self, session: str, snapshot: str) -> None:
        with self._changing(session) as life:
            life.change(self._taken[snapshot])


@goldfish("class: the newest of a table", caught_by="trim_keeps_the_newest")
class TrimCountsAllSessions(ListStore):
    """Keeps those of a session's entries that are among the newest of all sessions."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._newest: list[str] = []

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        super().append(session, messages, **options)
        self._newest += [session] * len(messages)

    def trim(self, session: str, keep: int) -> None:
        super().trim(session, self._newest[len(self._newest) - keep :].count(session))


@goldfish("semantic-kernel#12708", caught_by="trim_keeps_structure")
class TrimSplitsPairs(ListStore):
    """Cuts between a tool call and its result."""

    def trim(self, session: str, keep: int) -> None:
        with self._changing(session) as life:
            life.change(trim_messages(life.shown, keep, pairs=False))


@goldfish("semantic-kernel#12612, llama_index#23144", caught_by="trim_keeps_structure")
class TrimDropsTheSystemMessage(ListStore):
    """Lets the system message go with the other old ones."""

    def trim(self, session: str, keep: int) -> None:
        with self._changing(session) as life:
            life.change(trim_messages(life.shown, keep, system=False))


@goldfish("class: a window that counts turns as entries", caught_by="order_of_single_appends")
class HalfOfTheWindow(SqliteOfTheNewest):
    """Claims to keep the last twenty entries, and keeps ten."""

    kept = 10


@goldfish("class: a fork of a fork", caught_by="fork_is_independent")
class ForksOneDeep(ListStore):
    """Copies what its source was told, and not what another fork had brought there."""

    capabilities = frozenset({"fork", "list", "fields"})

    def fork(self, session: str, target: str) -> None:
        with self._locked():
            source, fork = self._alive(session), Life()
            brought = int(source.keys.get("brought", 0))
            fork.add(copy_messages(source.shown[brought:]))
            fork.keys["brought"] = str(len(fork.shown))
            self._save(target, fork)


@goldfish("langgraph-redis#137", caught_by="ttl_ends_everything")
class NeverExpires(ListStore):
    """Takes a time to live and does not look at it."""

    def _prolong(self, life: Life, ttl_s: float | None) -> None:
        pass


@goldfish("langgraph-redis PR #203, rocketride-server PR #547", caught_by="ttl_ends_everything")
class HalfExpires(ListStore):
    """Lets the entries expire and keeps the snapshots."""

    def _alive(self, session: str) -> Life:
        life = self._load(session) or Life()
        return Life(snapshots=life.snapshots) if life.ended else life


@goldfish("mcp-gateway PR #1037", caught_by="ttl_survives_reopening")
class ExpiryInTheProcess(FileStore):
    """Keeps in its own memory when sessions end."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._ends: dict[str, float] = {}

    def append(
        self, session: str, messages: Messages, *, ttl_s: float | None = None, **options: Any
    ) -> None:
        super().append(session, messages, **options)
        if ttl_s is not None:
            self._ends[session] = time.time() + ttl_s

    def _alive(self, session: str) -> Life:
        ended = time.time() >= self._ends.get(session, float("inf"))
        return Life() if ended else super()._alive(session)


# It also says that its sessions may end late, which must not hide it.
@goldfish("tomcounsell/ai#2698", caught_by="ttl_begins_anew_as_declared", ttl_s_late=0.5)
class KeptAliveByReading(ListStore):
    """Begins a session's time anew whenever somebody looks at it."""

    def read(self, session: str, **options: Any) -> Messages:
        life = self._alive(session)
        life.extend_life(life.ttl_s)
        return super().read(session, **options)


@goldfish("class: an append that races the expiry", caught_by="new_life_is_clean")
class OldLifeComesBack(ListStore):
    """Hides a session whose time ran out, and shows all of it again with the next append."""

    def _alive(self, session: str) -> Life:
        return self._load(session) or Life()

    def read(self, session: str, **options: Any) -> Messages:
        return [] if self._alive(session).ended else super().read(session, **options)
