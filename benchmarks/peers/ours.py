"""indelible itself: as it is opened by default, blocking and awaited."""

from __future__ import annotations

from collections.abc import Sequence

import indelible
from benchmarks.peers.peer import Message, Peer


def _ours(messages: Sequence[Message]) -> list[indelible.ChatMessage]:
    return [indelible.ChatMessage(role=each.role, content=each.text) for each in messages]


class Blocking(Peer):
    """`indelible.open`: every append with key, order, checksum and version."""

    used = "`indelible.open(…)`, nothing set; 64 tasks are 64 threads"

    def open(self, place: str) -> None:
        self._store = indelible.open(place)

    def append(self, session: str, messages: Sequence[Message]) -> None:
        if len(messages) == 1:
            self._store.add_message(session, messages[0].role, messages[0].text)
        elif len(messages) == 2:
            self._store.save_context(session, messages[0].text, messages[1].text)
        else:
            self._store.add_messages(session, _ours(messages))

    def last(self, session: str, count: int) -> list[str]:
        return [str(each.content) for each in self._store.get_history(session, last=count)]

    def load(self, session: str) -> list[str]:
        return [str(each.content) for each in self._store.get_history(session)]

    def snapshot(self, session: str) -> str:
        return self._store.save_snapshot(session).id

    def rollback(self, session: str, snapshot: str) -> None:
        self._store.rollback_to_snapshot(session, snapshot)

    def close(self) -> None:
        self._store.close()


class Awaited(Peer):
    """`indelible.open_async`: the same promises, awaited."""

    used = "`indelible.open_async(…)`, nothing set"

    async def open(self, place: str) -> None:
        self._store = await indelible.open_async(place)

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        if len(messages) == 1:
            await self._store.add_message(session, messages[0].role, messages[0].text)
        elif len(messages) == 2:
            await self._store.save_context(session, messages[0].text, messages[1].text)
        else:
            await self._store.add_messages(session, _ours(messages))

    async def last(self, session: str, count: int) -> list[str]:
        return [str(each.content) for each in await self._store.get_history(session, last=count)]

    async def load(self, session: str) -> list[str]:
        return [str(each.content) for each in await self._store.get_history(session)]

    async def snapshot(self, session: str) -> str:
        return (await self._store.save_snapshot(session)).id

    async def rollback(self, session: str, snapshot: str) -> None:
        await self._store.rollback_to_snapshot(session, snapshot)

    async def close(self) -> None:
        await self._store.close()
