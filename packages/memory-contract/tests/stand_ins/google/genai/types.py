from dataclasses import dataclass


@dataclass
class Part:
    text: str | None = None


@dataclass
class Content:
    role: str
    parts: list[Part]
