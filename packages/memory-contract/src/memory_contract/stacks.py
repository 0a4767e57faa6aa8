"""Where threads, tasks and worker processes stand, a line for each: what to look at when one hangs.

A line goes from the outermost call to the innermost, such as
`thread "w0": store.py:12 append > queue.py:171 get`.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import re
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

# The innermost calls say where it hangs; those of the kit around them are all alike.
FRAMES_MAX: Final = 8
# Beyond this, more lines hide more than they show.
LINES_MAX: Final = 12
# How long a worker that is alive takes at most to say where it stands. One that is stopped says
# nothing.
DUMP_S_MAX: Final = 2.0
# A chain of awaits is not longer than this.
AWAITS_MAX: Final = 200
# After the last line of a dump.
QUIET_S: Final = 0.2
# What a worker is asked with.
ASK: Final = signal.SIGUSR2

# File, line and function.
StackCall = tuple[str, object, str]

_THREAD: Final = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+")
_FRAME: Final = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')


def format_stack(calls: Iterable[StackCall]) -> str:
    """Calls as one line, the innermost last."""
    words = [
        f"{Path(file).name}:{line} {name}"
        for file, line, name in calls
        if not file.startswith("<frozen importlib")
    ]
    dropped = ["…"] if len(words) > FRAMES_MAX else []
    return " > ".join([*dropped, *words[-FRAMES_MAX:]])


def read_stacks(first: int | None = None) -> tuple[str, ...]:
    """The threads of this process but for the one that asks, and the tasks of their event loops.

    `first` is the thread that is told of before the others.
    """
    frames = sys._current_frames()  # noqa: SLF001 -- documented, under this name
    found: list[tuple[str, str]] = []
    for thread in sorted(threading.enumerate(), key=lambda each: each.ident != first):
        frame = frames.get(thread.ident or 0)
        if frame is not None and thread.ident != threading.get_ident():
            found.append((f'thread "{thread.name}"', format_stack(_list_calls(frame))))
            found += _iter_tasks(frame)
    return _format_stacks(found)


def _format_stacks(found: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """A line for each stack, however many stand there."""
    whose: dict[str, list[str]] = {}
    for who, stack in found:
        whose.setdefault(stack, []).append(who)
    lines = [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {stack}"
        for stack, names in whose.items()
    ]
    return tuple(lines[:LINES_MAX])


def _list_calls(innermost: FrameType) -> list[StackCall]:
    found: list[StackCall] = []
    for frame, line in traceback.walk_stack(innermost):
        found.insert(0, (frame.f_code.co_filename, line, frame.f_code.co_name))
    return found


def _iter_tasks(innermost: FrameType) -> Iterator[tuple[str, str]]:
    """The tasks of the event loop that a thread runs, if it does."""
    for frame, _ in traceback.walk_stack(innermost):
        loop = frame.f_locals.get("self") if frame.f_code.co_name == "run_forever" else None
        if isinstance(loop, asyncio.AbstractEventLoop):
            for task in asyncio.all_tasks(loop):
                yield f'task "{task.get_name()}"', format_stack(iter_awaited(task.get_coro()))


def iter_awaited(awaited: Any) -> Iterator[StackCall]:
    """Yield the calls of a coroutine and of what it awaits, from the outermost on."""
    for _ in range(AWAITS_MAX):
        frame = _get_first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is None:
            return
        yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        awaited = _get_first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
        if awaited is None:
            # What counts the suspensions of a call stands between the call and its task.
            awaited = frame.f_locals.get("awaitable")


def _get_first(awaited: Any, *names: str) -> Any:
    found = (getattr(awaited, name, None) for name in names)
    return next((value for value in found if value is not None), None)


def install_dump(writer: int) -> None:
    """In a worker: write all stacks to a pipe when the kit asks for them."""

    def tell_tasks(_signal: int, frame: FrameType | None) -> None:
        if frame is not None:
            lines = "".join(f"{line}\n" for line in _format_stacks(_iter_tasks(frame)))
            os.write(writer, lines.encode(errors="backslashreplace"))

    # The first in C, which works wherever a thread hangs; then ours, as soon as Python runs.
    signal.signal(ASK, tell_tasks)
    faulthandler.register(ASK, file=writer, all_threads=True, chain=True)


def ask_for_dump(pid: int, reader: int) -> tuple[str, ...]:
    """Where a worker stands, if it is able to say."""
    try:
        os.kill(pid, ASK)
    except ProcessLookupError:
        return ()
    text, ends = b"", time.monotonic() + DUMP_S_MAX
    while True:
        wait_s = min(QUIET_S, ends - time.monotonic()) if text else ends - time.monotonic()
        if not select.select([reader], [], [], max(0.0, wait_s))[0]:
            break
        part = os.read(reader, 65536)
        if not part:
            break
        text += part
    return parse_dump(text.decode(errors="backslashreplace"), f"process {pid}")


def parse_dump(text: str, whose: str) -> tuple[str, ...]:
    """The lines of a worker: threads as `faulthandler` writes them, tasks as we do."""
    threads: list[list[StackCall]] = []
    tasks = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif (found := _FRAME.match(line)) and threads:
            threads[-1].append((found[1], found[2], found[3]))
        elif line.startswith("task "):
            tasks.append(line)
    stacks = [("thread", format_stack(reversed(calls))) for calls in threads]
    return tuple(f"{whose}, {line}" for line in (*_format_stacks(stacks), *tasks))
