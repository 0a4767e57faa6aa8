"""Being told to end: what was started is ended first, by its process id."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from memory_contract.faults.servers.postgres import list_children

# As a shell reports it.
TERMINATED = 128 + signal.SIGTERM


@contextlib.contextmanager
def end_children_on_signal() -> Iterator[None]:
    """Let SIGTERM unwind as Ctrl-C does, and end whatever this process has started by then."""

    def told(number: int, _frame: FrameType | None) -> None:
        # Once: a second one must not interrupt the ending.
        signal.signal(number, signal.SIG_IGN)
        sys.exit(TERMINATED)

    signal.signal(signal.SIGTERM, told)
    try:
        yield
    finally:
        # One that was being started when the signal came is known to nobody else.
        for child in list(list_children(os.getpid())):
            end(child)


def end(pid: int) -> None:
    """End a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        # Held still first: it must not start another while its children are ended.
        os.kill(pid, signal.SIGSTOP)
        for child in list(list_children(pid)):
            end(child)
        os.kill(pid, signal.SIGKILL)
