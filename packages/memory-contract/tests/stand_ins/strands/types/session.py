from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class SessionType(StrEnum):
    AGENT = "AGENT"


@dataclass
class Session:
    session_id: str
    session_type: SessionType


@dataclass
class SessionAgent:
    agent_id: str
    state: dict[str, Any]
    conversation_manager_state: dict[str, Any]


@dataclass
class SessionMessage:
    message: dict[str, Any]
    message_id: int

    @classmethod
    def from_message(cls, message, index):
        return cls(message=message, message_id=index)

    def to_message(self):
        return self.message
