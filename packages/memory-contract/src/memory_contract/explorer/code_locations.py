"""Where in its code a task stands that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

_ASYNCIO: Final = str(Path(asyncio.__file__).parent)
_KIT: Final = str(Path(__file__).parents[1])
# A chain of awaits is not longer than this.
_DEPTH_MAX: Final = 200


def find_location(coroutine: Any) -> str:
    """`file.py:17 in append`: the innermost place that is neither asyncio's nor the kit's."""
    found = ""
    for frame in _frames(coroutine):
        path = frame.f_code.co_filename
        if not path.startswith((_ASYNCIO, _KIT)):
            found = f"{Path(path).name}:{frame.f_lineno} in {frame.f_code.co_name}"
    return found


def _frames(awaited: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of what it awaits, from the outermost on."""
    for _ in range(_DEPTH_MAX):
        frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is None:
            return
        yield frame
        awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
        if awaited is None:
            # What counts the suspensions of a call stands between the call and its task.
            awaited = frame.f_locals.get("awaitable")


def _first(awaited: Any, *names: str) -> Any:
    found = (getattr(awaited, name, None) for name in names)
    return next((value for value in found if value is not None), None)
