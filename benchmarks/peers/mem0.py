"""The message table of mem0."""

from __future__ import annotations

from collections.abc import Sequence

from mem0.memory.storage import SQLiteManager

from benchmarks.peers.peer import Message, Peer

ALL = 1_000_000


class Table(Peer):
    """The newest ten messages of each scope; an append deletes the others."""

    used = "`SQLiteManager(path)`: `save_messages`, `get_last_messages`; rollback journal"
    keeps = 10

    def open(self, place: str) -> None:
        self._manager = SQLiteManager(place)

    def append(self, session: str, messages: Sequence[Message]) -> None:
        said = [{"role": each.role, "content": each.text} for each in messages]
        self._manager.save_messages(said, session)

    def last(self, session: str, count: int) -> list[str]:
        return [each["content"] for each in self._manager.get_last_messages(session, count)]

    def load(self, session: str) -> list[str]:
        return self.last(session, ALL)

    def close(self) -> None:
        self._manager.close()
