"""Change everything that can be changed, as a careless caller would with what is its own."""

from __future__ import annotations

import contextlib
from dataclasses import is_dataclass
from typing import Any, Final

CHANGED: Final = "changed"
# Under these names messages and turns keep what was said.
SAID: Final = ("role", "content", "human", "ai")


def scribble(value: Any, seen: set[int] | None = None) -> None:
    """Write over a value, all the way down: lists, dicts, and messages that are objects.

    Who refuses to be changed cannot be shared to anybody's harm, and is left as it is.
    """
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, list | tuple):
        for item in value:
            scribble(item, seen)
        if isinstance(value, list):
            # Whatever it is a list of, there are now more of them.
            value += value[:2] or [{"role": "user", "content": "slipped in"}]
    elif isinstance(value, dict):
        _scribble_dict(value, seen)
    elif not isinstance(value, type) and (is_dataclass(value) or _speaks(value)):
        _scribble_object(value, seen)


def _scribble_dict(value: dict[Any, Any], seen: set[int]) -> None:
    for key, item in list(value.items()):
        if isinstance(item, str):
            value[key] = CHANGED
        else:
            scribble(item, seen)
    value["more"] = CHANGED


def _speaks(value: Any) -> bool:
    return any(hasattr(value, name) for name in SAID)


def _scribble_object(value: Any, seen: set[int]) -> None:
    for item in list(getattr(value, "__dict__", {}).values()):
        scribble(item, seen)
    for name in SAID:
        if hasattr(value, name):
            with contextlib.suppress(Exception):
                setattr(value, name, CHANGED)
