"""Databases of Agno, used as its agent does: one run for each append.

The agent reads the session or makes a new one, adds the run to it, and saves both: the session
with `upsert_session` and the run, at its index, with `upsert_run`; a database that has no runs of
their own keeps them in the session. A run holds all of its messages, so a batch is one write.
"""

from __future__ import annotations

import time
import uuid
from importlib import import_module
from typing import Any, Final

from memory_contract.adapter import Message, Refused
from memory_contract.targets.vocabulary import StoreHandle, Vocabulary

_AGENT: Final = "kit"
_ROLES: Final = frozenset({"user", "assistant", "system", "tool"})


class DatabaseHandle(StoreHandle):
    """Sessions of one agent."""

    async def append(self, session: str, messages: list[Message]) -> None:
        """Save a run."""
        batch = list(map(_to_agno, messages))
        if not batch:
            return
        sessions = import_module("agno.session.agent")
        found = await self._session(session)
        if found is None:
            found = sessions.AgentSession(
                session_id=session,
                agent_id=_AGENT,
                session_data={},
                created_at=int(time.time()),
            )
        run = _run(session, batch)
        found.upsert_run(run=run)
        # A new run is the last.
        index = len(found.runs) - 1
        await self.settle(self.store.upsert_session(session=found))
        try:
            await self.settle(self.store.upsert_run(run=run, session_id=session, run_index=index))
        except NotImplementedError:
            # So it is in the session, and was saved with it.
            return

    async def read(self, session: str) -> list[Any]:
        """The messages of all runs."""
        found = await self._session(session)
        return (
            []
            if found is None
            else [
                {"role": message.role, "content": message.content}
                for message in found.get_messages()
            ]
        )

    async def clear(self, session: str) -> None:
        await self.settle(self.store.delete_session(session_id=session))

    async def sessions(self) -> list[str]:
        found = await self.settle(self.store.get_sessions(session_type=_of_agents()))
        return [session.session_id for session in found]

    async def _session(self, session: str) -> Any:
        found = self.store.get_session(session_id=session, session_type=_of_agents())
        return await self.settle(found)


def _of_agents() -> Any:
    return import_module("agno.db.base").SessionType.AGENT


def _run(session: str, messages: list[Any]) -> Any:
    return import_module("agno.run.agent").RunOutput(
        run_id=str(uuid.uuid4()),
        agent_id=_AGENT,
        session_id=session,
        messages=messages,
        status=import_module("agno.run.base").RunStatus.completed,
    )


def _to_agno(message: Message) -> Any:
    role, content = message["role"], message["content"]
    if role not in _ROLES or not isinstance(content, str):
        raise Refused("a message of Agno is text of the user, the assistant, the system or a tool")
    return import_module("agno.models.message").Message(role=role, content=content)


VOCABULARY: Final = Vocabulary(
    package="agno",
    module="agno.db",
    described="a BaseDb of Agno",
    methods=("get_session", "upsert_session", "delete_session", "get_sessions"),
    handle=DatabaseHandle,
    claims={"capabilities": ("clear", "list")},
)
