from enum import StrEnum


class SessionType(StrEnum):
    AGENT = "agent"
