"""Runs work in threads with a time limit: a store that hangs must not hang the kit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from typing import TypeVar

from memory_contract.stacks import read_stacks

T = TypeVar("T")


class WorkTimedOut(Exception):  # noqa: N818 -- names what happened
    """The work did not end in time; its thread goes on."""

    def __init__(self, words: str, stacks: tuple[str, ...] = ()) -> None:
        super().__init__(words)
        # The stacks of all threads at that time.
        self.stacks = stacks


def start_thread(work: Callable[[], T], name: str) -> tuple[threading.Thread, futures.Future[T]]:
    """Start it in a new thread, which does not keep the process alive."""
    done: futures.Future[T] = futures.Future()

    def attempt() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 -- raised again where it is waited for
            done.set_exception(error)

    thread = threading.Thread(target=attempt, name=name, daemon=True)
    thread.start()
    return thread, done


def run_with_timeout(seconds: float, work: Callable[[], T]) -> T:
    """Run it in a new thread, which has no running event loop, whatever the caller has."""
    thread, done = start_thread(work, "indelible-check")
    # `result(timeout)` would not do: the work may raise a TimeoutError itself.
    futures.wait([done], seconds)
    if not done.done():
        raise WorkTimedOut(f"no end within {seconds:.0f} s", read_stacks(thread.ident))
    return done.result()
