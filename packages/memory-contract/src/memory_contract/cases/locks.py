"""Locks are waited for within a bound; helpers that tell a slow machine from a stuck store."""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

from memory_contract.calls import Call
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseUnknown, Client
from memory_contract.cases.case import case
from memory_contract.workers.pool import WorkerLost

SQLITE: Final = b"SQLite format 3\0"
# How long a store without a declared bound is watched.
UNDECLARED_S: Final = 8.0
# The interval of the heartbeat thread.
BEAT_S: Final = 0.05


@case(
    "concurrency",
    catches="a writer that waits for a lock for ever",
    reach="machine",
    modes=("processes",),
    overlaps=False,
)
def lock_is_bounded(context: CaseContext) -> None:
    """While another process holds the store's lock, an append succeeds or fails in time."""
    session = context.new_session()
    first = context.open_in_process()
    first.append(session)
    first.close()
    waiting = context.open_in_process(wait_s=get_patience_s(context))
    waiting.read(session)
    with _hold_locks(context.workspace):
        expect_append_in_time(waiting, session, "a lock")
    then = context.open_in_process()
    then.append(session)
    then.read(session)


def get_patience_s(context: CaseContext) -> float:
    """The time that an operation may take; `UNDECLARED_S` if the store declares no bound."""
    return context.adapter.patience_s or UNDECLARED_S


def expect_append_in_time(waiting: Client, session: str, awaited: str) -> None:
    """Expect that an append returns or raises within the store's bound, which its client has."""
    context, bound_s = waiting.context, get_patience_s(waiting.context)
    with Heartbeat() as heart:
        done = waiting.attempt(Call(op="append", session=session, ids=waiting.draw()))
    if done.outcome == "ok" or not isinstance(context.raised[-1], WorkerLost):
        return
    heart.require_calm(bound_s)
    if context.adapter.patience_s is None:
        raise CaseNotClaimed(f"it waits for {awaited} longer than {bound_s:g} s and names no bound")
    proof = f"an append to {session} was still waiting for {awaited} after {bound_s:g} s"
    context.fail("unbounded wait", proof, session=session)


@contextmanager
def _hold_locks(workspace: Path) -> Iterator[None]:
    """Hold every lock of the workspace that the kit knows: SQLite databases and lock files."""
    files = [path for path in workspace.rglob("*") if path.is_file()]
    databases = [path for path in files if is_sqlite(path)]
    locks = [path for path in files if path.name.endswith((".lock", ".lck"))]
    if not databases and not locks:
        raise CaseNotClaimed("the store keeps no lock that the kit could hold")
    with ExitStack() as held:
        for path in databases:
            # Closing it rolls the transaction back.
            connection = sqlite3.connect(path, isolation_level=None)
            held.enter_context(contextlib.closing(connection)).execute("BEGIN IMMEDIATE")
        for path in locks:
            file = held.enter_context(path.open("rb+"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_sqlite(path: Path) -> bool:
    """Whether a file is a database of SQLite."""
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


class Heartbeat:
    """Measures how long the machine kept an idle thread from running."""

    def __init__(self) -> None:
        self.late_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def require_calm(self, bound_s: float) -> None:
        """End the case if the machine may be why something took longer than a bound."""
        if self.late_s > bound_s / 4:
            raise CaseUnknown(f"the machine itself stood still for {self.late_s:.1f} s")

    def _beat(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(BEAT_S):
            now = time.monotonic()
            self.late_s = max(self.late_s, now - before - BEAT_S)
            before = now
