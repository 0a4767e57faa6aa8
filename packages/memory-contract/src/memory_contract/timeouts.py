"""Runs work in threads with a time limit: a store that hangs must not hang the kit."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

# The innermost calls show where it hangs; the outer ones are the kit's own.
FRAMES_MAX: Final = 8


class WorkTimedOut(Exception):  # noqa: N818 -- names what happened
    """The work did not end in time; its thread goes on. The message shows its stack."""


def run_with_timeout(seconds: float, work: Callable[[], T]) -> T:
    """Run it in a new thread, which has no running event loop, whatever the caller has."""
    done: futures.Future[T] = futures.Future()

    def attempt() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 -- raised again where it is waited for
            done.set_exception(error)

    # It does not keep the process alive.
    thread = threading.Thread(target=attempt, name="memory-contract-check", daemon=True)
    thread.start()
    # `result(timeout)` would not do: the work may raise a TimeoutError itself.
    futures.wait([done], seconds)
    if not done.done():
        raise WorkTimedOut(f"no end within {seconds:.0f} s, at {_format_stack(thread)}")
    return done.result()


def _format_stack(thread: threading.Thread) -> str:
    """`store.py:12 append > queue.py:171 get`: from the outermost call to the innermost."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 -- documented so
    calls = [] if frame is None else traceback.extract_stack(frame)[-FRAMES_MAX:]
    return " > ".join(f"{Path(call.filename).name}:{call.lineno} {call.name}" for call in calls)
