"""The messages that the kit hands to a store of messages."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any


class ChatMessage:
    """A message with attributes, copies and dumps like a frozen pydantic model's.

    Fields are checked when they are dumped, not before: a store that takes what is no text has
    taken it itself, and a store that writes the dump sees it refused.
    """

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a message does not change: {name} cannot be set to {value!r}")

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.__dict__.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatMessage) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self)
        return f"ChatMessage({fields})"

    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> ChatMessage:
        """Another message with the same fields, some of them changed."""
        fields = copy.deepcopy(self.__dict__) if deep else self.__dict__
        return ChatMessage(**{**fields, **(update or {})})

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """The fields; a `ValueError` if role or content are not what a message can have."""
        role, content = self.__dict__.get("role"), self.__dict__.get("content")
        if not isinstance(role, str) or not role:
            raise ValueError(f"a role is text, not {role!r}")
        if not (content is None or isinstance(content, str | list)):
            raise ValueError(f"content is text or a list of blocks, not {content!r}")
        check_text(self.__dict__)
        return dict(self.__dict__)

    def model_dump_json(self, **_: Any) -> str:
        """The fields as JSON."""
        return json.dumps(self.model_dump(), ensure_ascii=False)


def check_text(value: Any) -> None:
    """Refuse text that no encoding can hold, at any depth."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, Mapping):
        for name, item in value.items():
            check_text(name)
            check_text(item)
    elif isinstance(value, list | tuple):
        for item in value:
            check_text(item)
