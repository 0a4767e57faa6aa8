"""Goldfish of incidents that were reported: each broke an agent's memory somewhere."""

from __future__ import annotations

import asyncio
import re
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from memory_contract.goldfish.lives import Life, Messages, copy_messages, trim_messages
from memory_contract.goldfish.registry import goldfish
from memory_contract.goldfish.stores import (
    AwaitedStore,
    FileStore,
    ListStore,
    SqliteStore,
    give_way,
)


@goldfish("rollback wiped the snapshots", caught_by="rollback_keeps_every_snapshot")
class RollbackWipesSnapshots(SqliteStore):
    """Writes the session anew when it rolls back, and forgets its snapshots."""

    def rollback(self, session: str, snapshot: str) -> None:
        with self._changing(session) as life:
            life.change(life.frozen(snapshot))
            life.snapshots = {}


@goldfish("window of one: a wrong parameter", caught_by="trim_keeps_the_newest")
class WindowOfOne(ListStore):
    """Keeps the last exchange only, whatever it is asked to keep."""

    def trim(self, session: str, keep: int) -> None:
        super().trim(session, min(keep, 1))


@goldfish("TTL changed in a release", caught_by="ttl_is_never_early")
class ExpiresEarly(ListStore):
    """Lets a session live half as long as it was told."""

    def _prolong(self, life: Life, ttl_s: float | None) -> None:
        super()._prolong(life, None if ttl_s is None else ttl_s / 2)


@goldfish("langchain-redis PR #185, llama_index#12313", caught_by="message_fields_survive")
class DroppedFields(ListStore):
    """Keeps who said what, and no other field."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        said = [
            {"role": m.get("role"), "content": m.get("content")} for m in copy_messages(messages)
        ]
        super().append(session, said, **options)


@goldfish("eviction: allkeys-lru under memory pressure", caught_by="many_sessions")
class EvictedSessions(ListStore):
    """Drops the oldest session when there are many."""

    def _save(self, session: str, life: Life) -> None:
        super()._save(session, life)
        while len(self._lives) > 64:
            del self._lives[next(iter(self._lives))]


@goldfish("langchain PR #2167", caught_by="order_of_single_appends")
class ReversedList(ListStore):
    """Puts new entries at the front and reads from the front."""

    capabilities = frozenset({"list", "fields"})

    def append(self, session: str, messages: Messages) -> None:  # type: ignore[override]
        batch = copy_messages(messages)
        with self._changing(session) as life:
            life.shown[:0] = batch
            life.moves += 1


@goldfish("agent-os#1771, agentscope-java#2327", caught_by="hostile_session_ids")
class JoinedKeys(FileStore):
    """Makes file names of session ids by replacing what a file name cannot hold."""

    def _path(self, session: str) -> Path:
        return self._folder / f"{re.sub('[^a-z0-9]', '_', session.lower())[:200]}.session"


@goldfish("agno#7479", caught_by="append_storm")
class ReadModifyWriteInMemory(ListStore):
    """Reads the list, adds to it, and writes it back, with nothing around the three."""

    capabilities = frozenset({"list", "fields"})

    def append(self, session: str, messages: Messages) -> None:  # type: ignore[override]
        life = self._alive(session)
        shown = [*life.shown, *copy_messages(messages)]
        give_way()
        life.shown = shown
        life.moves += 1
        self._save(session, life)


@goldfish("odysseus#1940, LangChain's FileChatMessageHistory", caught_by="append_storm")
class ReadModifyWriteInAFile(FileStore):
    """Reads a file, adds to it, and writes it anew, without a lock between processes."""

    def _locked(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def _save(self, session: str, life: Life) -> None:
        give_way()
        super()._save(session, life)


@goldfish("openai-agents PR #2843", caught_by="batch_storm")
class TornBatch(SqliteStore):
    """Commits a batch message by message."""

    capabilities = frozenset({"list", "fields"})

    def append(self, session: str, messages: Messages) -> None:  # type: ignore[override]
        for message in messages:
            super().append(session, [message])
            give_way()


@goldfish("the write that was not: a pool ran dry", caught_by="gathered_turns_all_land")
class SwallowedError(ListStore):
    """Does nothing when its pool of connections is empty, and says nothing of it."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._pool = threading.Semaphore(2)

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        if not self._pool.acquire(blocking=False):
            return
        try:
            give_way(4)
            super().append(session, messages, **options)
        finally:
            self._pool.release()


@goldfish(
    "shared instance: one memory object for two users", caught_by="gathered_sessions_stay_apart"
)
class SharedInstance(AwaitedStore):
    """Keeps the session that it works for on itself, across an await."""

    async def append(self, session: str, messages: Messages, **options: Any) -> None:
        self._current = session
        await asyncio.sleep(0)
        self._store.append(self._current, messages, **options)


@goldfish("adk#5194, the compression that raced", caught_by="trim_against_append")
class TrimOfAnOldList(ListStore):
    """Works out what to keep first, and forgets what was appended meanwhile."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        give_way()
        super().append(session, messages, **options)

    def trim(self, session: str, keep: int) -> None:
        kept = trim_messages(self.read(session), keep)
        give_way(2)
        with self._changing(session) as life:
            life.change(kept)
