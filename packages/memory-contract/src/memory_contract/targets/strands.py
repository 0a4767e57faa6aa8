"""Session repositories of Strands Agents, such as `FileSessionManager`.

Used as its `RepositorySessionManager` does for an agent that is made for one turn, as in a web
server: read the session and the agent or create them, list the messages, and create a message
with the index after the last one. A message has a place of its own, so there are no batches.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from memory_contract.adapter import Message, Refused
from memory_contract.targets.vocabulary import StoreHandle, Vocabulary

_AGENT: Final = "kit"
_ROLES: Final = frozenset({"user", "assistant"})
_RACES: Final = (
    "the next index is one after the last message that was listed: Strands leaves it to the "
    "application that one session is written by one agent at a time"
)


class RepositoryHandle(StoreHandle):
    """The messages of one agent in each session."""

    async def append(self, session: str, messages: list[Message]) -> None:
        """Create messages after the last one."""
        types = import_module("strands.types.session")
        for message in list(map(_to_strands, messages)):
            self._prepare(types, session)
            listed = self._listed(session)
            index = listed[-1].message_id + 1 if listed else 0
            ours = types.SessionMessage.from_message(message, index)
            self.store.create_message(session, _AGENT, ours)

    async def read(self, session: str) -> list[Any]:
        """The messages, by their index."""
        if self.store.read_session(session) is None:
            return []
        if self.store.read_agent(session, _AGENT) is None:
            return []
        return [_from_strands(each.to_message()) for each in self._listed(session)]

    def _listed(self, session: str) -> Any:
        return self.store.list_messages(session, _AGENT)

    def _prepare(self, types: Any, session: str) -> None:
        """What a session manager does before the first message."""
        if self.store.read_session(session) is None:
            ours = types.Session(session_id=session, session_type=types.SessionType.AGENT)
            try:
                self.store.create_session(ours)
            except Exception as error:
                # Another writer may have created the session first.
                if self.store.read_session(session) is None:
                    raise Refused(f"the session cannot be made: {error}") from error
        if self.store.read_agent(session, _AGENT) is None:
            agent = types.SessionAgent(agent_id=_AGENT, state={}, conversation_manager_state={})
            self.store.create_agent(session, agent)


def _to_strands(message: Message) -> dict[str, Any]:
    role, content = message["role"], message["content"]
    if role not in _ROLES or not isinstance(content, str):
        raise Refused("a message of Strands is text of the user or of the assistant")
    return {"role": role, "content": [{"text": content}]}


def _from_strands(message: Any) -> Any:
    try:
        text = "".join(block["text"] for block in message["content"])
        return {"role": message["role"], "content": text}
    except (KeyError, TypeError):
        return message


VOCABULARY: Final = Vocabulary(
    package="strands-agents",
    module="strands",
    described="a SessionRepository of Strands Agents",
    methods=("read_session", "create_session", "read_agent", "create_message", "list_messages"),
    handle=RepositoryHandle,
    flavours=("blocking",),
    claims={"batches": False, "notes": (_RACES,)},
)
