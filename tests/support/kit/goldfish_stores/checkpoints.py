"""Stores of checkpoints: a correct one, and goldfish that tear, double or erase."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

from memory_contract.goldfish.lives import EVERYTHING
from memory_contract.goldfish.registry import goldfish, right
from memory_contract.goldfish.stores import SqliteStore

CHECKPOINTS: Final = frozenset({"pending", "prune"})


@right
class CheckpointStore(SqliteStore):
    """Keeps writes of tasks beside the state that they were made for."""

    capabilities: ClassVar[frozenset[str]] = EVERYTHING - {"keys"} | CHECKPOINTS

    def put_writes(self, session: str, task: str, texts: list[str]) -> None:
        with self._changing(session) as life:
            for number, text in enumerate(texts):
                life.keys.setdefault(json.dumps([life.moves, task, number]), text)

    def pending(self, session: str) -> list[tuple[str, str]]:
        with self._locked():
            life = self._alive(session)
        return [(task, text) for task, text, of in self._writes(life) if of == life.moves]

    def _writes(self, life: Any) -> list[tuple[str, str, int]]:
        written = [(*json.loads(key), text) for key, text in life.keys.items()]
        return [(task, text, moves) for moves, task, _, text in sorted(written)]

    def prune(self, session: str) -> None:
        with self._changing(session) as life:
            life.snapshots.clear()
            life.journal.clear()


@goldfish(
    "class: a retry of a task that is stored again", caught_by="pending_writes_are_stored_once"
)
class WritesDoubled(CheckpointStore):
    """Stores the writes of a task again when they are sent again."""

    def put_writes(self, session: str, task: str, texts: list[str]) -> None:
        with self._changing(session) as life:
            for text in texts:
                life.keys[json.dumps([life.moves, task, len(life.keys)])] = text


@goldfish(
    "class: writes of a thread, not of a checkpoint", caught_by="pending_writes_are_stored_once"
)
class WritesOfEveryState(CheckpointStore):
    """Shows the writes of older states for the newest one."""

    def pending(self, session: str) -> list[tuple[str, str]]:
        with self._locked():
            return [(task, text) for task, text, _ in self._writes(self._alive(session))]


@goldfish("class: a prune that takes too much", caught_by="prune_keeps_what_shows")
class PruneTakesPendingWrites(CheckpointStore):
    """Erases the writes for the newest state with the older ones."""

    def prune(self, session: str) -> None:
        super().prune(session)
        with self._changing(session) as life:
            life.keys.clear()


@goldfish("class: a prune in name only", caught_by="prune_keeps_what_shows")
class PruneErasesNothing(CheckpointStore):
    """Says that it pruned, and leaves everything."""

    def prune(self, session: str) -> None:
        pass


@goldfish("class: one commit for each write", caught_by="kill_in_pending_writes")
class WritesTorn(CheckpointStore):
    """Commits the writes of a task one by one."""

    def put_writes(self, session: str, task: str, texts: list[str]) -> None:
        for number, text in enumerate(texts):
            with self._changing(session) as life:
                life.keys.setdefault(json.dumps([life.moves, task, number]), text)


@goldfish("class: delete, then write the newest again", caught_by="kill_in_prune")
class PruneInTwoSteps(CheckpointStore):
    """Erases a session, and then stores what it showed."""

    def prune(self, session: str) -> None:
        with self._changing(session) as life:
            shown, life.shown = life.shown, []
            life.snapshots.clear()
        with self._changing(session) as life:
            life.shown = shown
