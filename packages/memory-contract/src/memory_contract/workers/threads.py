"""Programs run by threads of this process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from memory_contract.calls import Log, Program, run
from memory_contract.handles import close

# How often the interpreter looks whether another thread wants to run: the more often, the more
# of the ways in which two calls can interleave are seen. The default is 5 ms.
SWITCH_S: Final = 1e-5
_USUAL_S: Final = sys.getswitchinterval()


def race(
    programs: Sequence[Program],
    names: dict[str, Any],
    *,
    handle: Any = None,
    open_own: Callable[[], Any] | None = None,
    ready: Callable[[], None] | None = None,
) -> list[Log]:
    """Run each program in a thread, all at once: on one handle, or each on its own.

    `ready` is called when all are open.
    """
    gate = threading.Barrier(len(programs), action=ready)
    logs = [Log() for _ in programs]
    mishaps: list[BaseException] = []

    def work(program: Program, log: Log) -> None:
        try:
            ours = open_own() if open_own is not None else handle
            try:
                gate.wait()
                run(ours, program, dict(names), log)
            finally:
                if open_own is not None:
                    close(ours)
        except BaseException as error:  # noqa: BLE001 -- told to who waits for the thread
            gate.abort()
            mishaps.append(error)

    threads = [
        threading.Thread(target=work, args=pair, daemon=True)
        for pair in zip(programs, logs, strict=True)
    ]
    with many_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    causes = [error for error in mishaps if not isinstance(error, threading.BrokenBarrierError)]
    if causes:
        raise causes[0]
    return logs


@contextmanager
def many_switches() -> Iterator[None]:
    """Let threads take turns as often as they can, for a while."""
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        # Not what it was before: that may be the doing of a race that hangs and was left behind.
        sys.setswitchinterval(_USUAL_S)
