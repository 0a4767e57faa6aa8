"""Whoever cannot have a lock waits for a while, and then says so."""

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

from memory_contract.adapter import Refused
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseUnknown
from memory_contract.cases.case import case
from memory_contract.client import Client
from memory_contract.workers.pool import StoreRaised, WorkerLost

SQLITE: Final = b"SQLite format 3\0"
# Who names no bound is watched for so long; whether it ends later is not known then.
UNDECLARED_S: Final = 8.0
# The beat of a thread that only looks whether the machine lets it run.
BEAT_S: Final = 0.05


@case(
    "concurrency",
    catches="a writer that waits for a lock for ever",
    reach="machine",
    modes=("processes",),
    overlaps=False,
)
def lock_is_bounded(context: CaseContext) -> None:
    """While another holds the store's own lock, an append ends in time, one way or the other."""
    session = context.new_session()
    first = context.open_in_process()
    first.append(session)
    first.close()
    patience_s = context.adapter.patience_s or UNDECLARED_S
    waiting = context.open_in_process(wait_s=patience_s)
    waiting.read(session)
    with Heartbeat() as heart, _held(context.workspace):
        ended = _ends(waiting, session)
    if not ended and heart.late_s > patience_s / 4:
        raise CaseUnknown(f"the machine itself stood still for {heart.late_s:.1f} s")
    if not ended and context.adapter.patience_s is None:
        raise CaseNotClaimed(f"it waits for a lock longer than {patience_s:g} s and names no bound")
    context.expect(
        ended,
        "unbounded wait",
        f"an append to {session} was still waiting for a lock after {patience_s:g} s",
        session=session,
    )
    then = context.open_in_process()
    then.append(session)
    then.read(session)


def _ends(waiting: Client, session: str) -> bool:
    """Whether the append comes back at all; how is its own affair."""
    try:
        waiting.append(session)
    except WorkerLost:
        return False
    except (StoreRaised, Refused):
        return True
    return True


@contextmanager
def _held(workspace: Path) -> Iterator[None]:
    """Hold every lock that a store keeps in its workspace and that the kit knows."""
    files = [path for path in workspace.rglob("*") if path.is_file()]
    databases = [path for path in files if is_sqlite(path)]
    locks = [path for path in files if path.name.endswith((".lock", ".lck"))]
    if not databases and not locks:
        raise CaseNotClaimed("the store keeps no lock that the kit could hold")
    with ExitStack() as held:
        for path in databases:
            held.enter_context(_database_held(path))
        for path in locks:
            file = held.enter_context(path.open("rb+"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_sqlite(path: Path) -> bool:
    """Whether a file is a database of SQLite."""
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


@contextmanager
def _database_held(path: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


class Heartbeat:
    """Says how long the machine kept a thread from running that wanted nothing but to run."""

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

    def _beat(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(BEAT_S):
            now = time.monotonic()
            self.late_s = max(self.late_s, now - before - BEAT_S)
            before = now
