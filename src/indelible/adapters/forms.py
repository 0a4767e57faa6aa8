"""A framework's message as one of ours: what we understand of it, and its exact form beside that.

    ChatMessage(role="assistant", content="Hello", langchain={"form": {…}, "shared": {…}})

`shared` names the parts of the form that are equal to a field of the message and are stored only
there. Put together again they are what the framework handed over, field by field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from indelible import ChatMessage, UsageError
from indelible.core.codec import shown
from indelible.core.limits import ROLE_CHARS_MAX
from indelible.core.plans.tools import calls_made

FORM: Final = "form"
SHARED: Final = "shared"


def kept(
    framework: str,
    form: Mapping[str, Any],
    understood: Mapping[str, Any],
    **beside: Any,
) -> ChatMessage:
    """The message that holds a form. Fields in `understood` that are None are left out."""
    fields = {name: value for name, value in understood.items() if value is not None}
    shared = {
        part: name
        for part, value in form.items()
        for name, field in fields.items()
        # The very same object, so that what comes back is equal down to its types.
        if field is value and isinstance(value, str | list)
    }
    rest = {part: value for part, value in form.items() if part not in shared}
    try:
        return ChatMessage(**fields, **{framework: {FORM: rest, SHARED: shared, **beside}})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"a message of {framework} cannot be stored: {where}: {first['msg']}:"
            f" {shown(first['input'])}. Nothing was written",
            value=form,
        ) from None


def form_of(framework: str, message: ChatMessage) -> dict[str, Any] | None:
    """The form that a framework's message had; None if it was written by somebody else."""
    stored = beside(framework, message)
    if stored is None:
        return None
    shared = {part: getattr(message, name) for part, name in stored[SHARED].items()}
    return {**shared, **stored[FORM]}


def beside(framework: str, message: ChatMessage) -> dict[str, Any] | None:
    """All that a framework's adapter keeps with a message."""
    stored: Any = (message.__pydantic_extra__ or {}).get(framework)
    return stored if isinstance(stored, dict) and FORM in stored and SHARED in stored else None


def understood_role(role: Any, otherwise: str) -> str:
    """A role that a message can have."""
    fits = isinstance(role, str) and 0 < len(role) <= ROLE_CHARS_MAX
    return role if fits else otherwise


def understood_content(content: Any) -> Any:
    """Text or blocks as a message holds them; None if it is neither. Text among blocks is one."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, str | dict) for part in content):
        return None
    if any(isinstance(part, str) for part in content):
        return [
            {"type": "text", "text": part} if isinstance(part, str) else part for part in content
        ]
    return content


def text_or_none(value: Any) -> str | None:
    """A text; None if it is something else."""
    return value if isinstance(value, str) else None


def text_of(message: ChatMessage) -> str:
    """The text of a message, in one piece."""
    if not isinstance(message.content, list):
        return message.content or ""
    return "\n".join(str(part["text"]) for part in message.content if "text" in part)


def calls_of(message: ChatMessage) -> list[tuple[str, str, Any]]:
    """Id, tool and arguments of each call that a message makes, however it spells them."""
    return [(call, str(tool), _read(given)) for call, tool, given in calls_made(message)]


def _read(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
