"""Session managers of Strands Agents that keep files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strands import Agent
from strands.models import Model
from strands.session import SnapshotSessionManager
from strands.session.file_session_manager import FileSessionManager
from strands.storage import LocalFileStorage

from benchmarks.peers.peer import Message, Peer


class Silent(Model):  # type: ignore[misc]
    """A model that is never asked."""

    def update_config(self, **_config: Any) -> None:
        """There is nothing to set."""

    def get_config(self) -> dict[str, Any]:
        """Nothing is set."""
        return {}

    def structured_output(self, *_asked: Any, **_options: Any) -> Any:
        """Nobody asks."""
        raise NotImplementedError

    def stream(self, *_asked: Any, **_options: Any) -> Any:
        """Nobody asks."""
        raise NotImplementedError


def _theirs(message: Message) -> Any:
    return {"role": message.role, "content": [{"text": message.text}]}


def _texts(messages: Sequence[Any]) -> list[str]:
    return [each["content"][0]["text"] for each in messages]


class Files(Peer):
    """A file for each message; a new file replaces an old one whole, and is not synced."""

    used = (
        "`FileSessionManager` under an `Agent`, `append_message`, `list_messages`; "
        "nothing is synced"
    )
    synced = False

    def open(self, place: str) -> None:
        self._place = place
        self._agents: dict[str, tuple[FileSessionManager, Agent]] = {}

    def _agent(self, session: str) -> tuple[FileSessionManager, Agent]:
        if session not in self._agents:
            manager = FileSessionManager(session, storage_dir=self._place)
            agent = Agent(model=Silent(), agent_id="a", session_manager=manager)
            self._agents[session] = manager, agent
        return self._agents[session]

    def append(self, session: str, messages: Sequence[Message]) -> None:
        manager, agent = self._agent(session)
        for message in messages:
            manager.append_message(_theirs(message), agent)

    def last(self, session: str, count: int) -> list[str]:
        return self.load(session)[-count:]

    def load(self, session: str) -> list[str]:
        manager, _ = self._agent(session)
        return _texts([each.to_message() for each in manager.list_messages(session, "a")])


class Snapshots(Peer):
    """One file with the whole agent, written anew at each save."""

    used = (
        "`SnapshotSessionManager` under an `Agent`: a message is appended in memory and "
        "`snapshot_latest` saved, a read restores it; nothing is synced"
    )
    prepared = "all messages in memory, then one save"
    synced = False

    async def open(self, place: str) -> None:
        self._place = place
        self._agents: dict[str, tuple[SnapshotSessionManager, Agent]] = {}

    async def _agent(self, session: str) -> tuple[SnapshotSessionManager, Agent]:
        if session not in self._agents:
            manager = SnapshotSessionManager(session, storage=LocalFileStorage(self._place))
            agent = Agent(model=Silent(), agent_id="a", session_manager=manager)
            self._agents[session] = manager, agent
        return self._agents[session]

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        manager, agent = await self._agent(session)
        agent.messages.extend(map(_theirs, messages))
        await manager.save_snapshot(agent, is_latest=True)

    fill = append

    async def load(self, session: str) -> list[str]:
        manager, agent = await self._agent(session)
        await manager.restore_snapshot(agent)
        return _texts(agent.messages)

    async def last(self, session: str, count: int) -> list[str]:
        return (await self.load(session))[-count:]

    async def snapshot(self, session: str) -> str | None:
        manager, agent = await self._agent(session)
        made: str | None = await manager.save_snapshot(agent, is_latest=False)
        return made

    async def rollback(self, session: str, snapshot: str) -> None:
        manager, agent = await self._agent(session)
        await manager.restore_snapshot(agent, snapshot_id=snapshot)
        await manager.save_snapshot(agent, is_latest=True)
