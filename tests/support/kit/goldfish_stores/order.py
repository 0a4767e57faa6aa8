"""Goldfish that mix up order, ends, sessions and handles."""

from __future__ import annotations

import sqlite3
import time
import uuid
from pathlib import Path
from typing import Any

from memory_contract.adapter import Message
from memory_contract.goldfish.lives import Life, Messages
from memory_contract.goldfish.registry import goldfish
from memory_contract.goldfish.stores import FileStore, ListStore, SqliteStore


@goldfish("openai-agents#1900, llama_index#19389", caught_by="order_in_one_instant")
class OrderedByClock(ListStore):
    """Orders by the time of writing, and what falls into one tick by a random id."""

    capabilities = frozenset({"list"})

    def append(self, session: str, messages: Messages) -> None:  # type: ignore[override]
        stamp = [int(time.time() * 100), uuid.uuid4().hex]
        super().append(session, [{**m, "stamp": [*stamp, at]} for at, m in enumerate(messages)])

    def read(self, session: str) -> Messages:  # type: ignore[override]
        shown = sorted(super().read(session), key=lambda message: message["stamp"])
        return [{"role": m["role"], "content": m["content"]} for m in shown]


@goldfish("llama_index#19389: a batch with one stamp", caught_by="batch_in_order")
class ReversedBatch(ListStore):
    """Pushes the messages of a batch from its end."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        super().append(session, messages[::-1], **options)


@goldfish("llama_index PR #22963 and the empty LPUSH", caught_by="empty_batch_changes_nothing")
class EmptyBatchClears(ListStore):
    """Takes an empty batch for an empty history."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        if not messages:
            self.clear(session)
        super().append(session, messages, **options)


@goldfish("class: a limit from the wrong end", caught_by="limit_gives_the_newest")
class LimitFromTheWrongEnd(ListStore):
    """Counts a limit from the oldest entry."""

    def read(self, session: str, *, limit: int | None = None) -> Messages:
        return super().read(session)[:limit]


@goldfish("class: a queue where a stack was meant", caught_by="pop_from_the_end")
class PopFromTheFront(ListStore):
    """Pops the oldest entry."""

    def pop(self, session: str) -> Message | None:
        with self._changing(session) as life:
            oldest = life.shown[0] if life.shown else None
            life.change(life.shown[1:])
            return oldest


@goldfish("CVE-2026-71433, langgraph PR #8478", caught_by="similar_session_ids")
class ClearByPrefix(SqliteStore):
    """Clears every session whose name begins like the one that was meant."""

    def clear(self, session: str) -> None:
        with self._locked():
            for name in self._names():
                if name.startswith(session):
                    life = self._alive(name)
                    life.change([])
                    self._save(name, life)


@goldfish("class: a flush where a delete was meant", caught_by="clear_only_this_session")
class ClearsEverything(ListStore):
    """Clears all there is."""

    def clear(self, session: str) -> None:
        del session
        with self._locked():
            self._lives.clear()


@goldfish("class: an old counter that is used again", caught_by="clear_then_append")
class ClearOnlyHides(ListStore):
    """Hides a cleared session until somebody writes to it."""

    def clear(self, session: str) -> None:
        with self._changing(session) as life:
            life.change(life.shown)
            life.keys["hidden"] = str(life.moves)

    def read(self, session: str, **options: Any) -> Messages:
        life = self._alive(session)
        hidden = life.keys.get("hidden") == str(life.moves)
        return [] if hidden else super().read(session, **options)


@goldfish("langgraph-redis#187: deployments that shared a key", caught_by="workspaces_stay_apart")
class OneWorldForAll(ListStore):
    """Keeps everything in one place, whatever place it is given."""

    def __init__(self, workspace: Path) -> None:
        del workspace
        super().__init__(Path("default"))


@goldfish("class: a store that is not empty at first", caught_by="fresh_store_is_empty")
class GreetsStrangers(ListStore):
    """Begins every session with a message that nobody wrote."""

    def _load(self, session: str) -> Life:
        known = super()._load(session)
        return known or Life(shown=[{"role": "assistant", "content": "Welcome back!"}])


@goldfish("langchain-redis#74", caught_by="append_then_read")
class NothingComesBack(ListStore):
    """Writes under one name and reads under another."""

    def read(self, session: str, **options: Any) -> Messages:
        return super().read(f"{session}:", **options)


@goldfish("class: a cache in every worker", caught_by="two_handles_one_session")
class StaleCache(FileStore):
    """Reads a session once, and from then on from its own memory."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._cache: dict[str, Life] = {}

    def _load(self, session: str) -> Life | None:
        if session not in self._cache and (found := super()._load(session)) is not None:
            self._cache[session] = found
        return self._cache.get(session)

    def _save(self, session: str, life: Life) -> None:
        self._cache[session] = life
        super()._save(session, life)


@goldfish("agno PR #9313: the first start erased it", caught_by="reopened_store_remembers")
class ForgetsWhenReopened(SqliteStore):
    """Makes its tables anew whenever it is opened."""

    def _create(self) -> None:
        self._db.execute("DROP TABLE IF EXISTS session")
        super()._create()


@goldfish("openai-agents#3983", caught_by="close_is_final")
class PoliteWhenClosed(SqliteStore):
    """Says yes to an append after it was closed, and has nowhere to put it."""

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        try:
            super().append(session, messages, **options)
        except sqlite3.ProgrammingError:
            return


@goldfish("adk#6272: sessions that no list shows", caught_by="sessions_are_listed")
class FirstPageOnly(ListStore):
    """Lists the first page of sessions, and no word that there are more."""

    def sessions(self) -> list[str]:
        return super().sessions()[:10]


@goldfish("LangGraph's suite: FULL with everything skipped", caught_by="capabilities_are_true")
class ClaimsTooMuch(ListStore):
    """Claims an undo that does nothing."""

    def undo(self, session: str) -> None:
        """Take nothing back."""


@goldfish("langgraph#8653: wrong in one shape only", caught_by="short_programs")
class PopSparesSnapshots(ListStore):
    """Hands out the newest entry and leaves it there, if there is a snapshot."""

    def pop(self, session: str) -> Message | None:
        with self._changing(session) as life:
            newest = life.shown[-1] if life.shown else None
            if not life.snapshots:
                life.change(life.shown[:-1])
            return newest


@goldfish("class: a slip that only a long life shows", caught_by="random_programs")
class TiredAfterAWhile(ListStore):
    """Loses the oldest entry of a session with every seventh change of it."""

    def _save(self, session: str, life: Life) -> None:
        if life.moves % 7 == 6:
            del life.shown[:1]
        super()._save(session, life)
