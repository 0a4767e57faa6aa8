"""Processes that take turns on one thread at the same time, and what is left of their turns."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver

import indelible
from benchmarks.langgraph.chat import THREAD, build_counter
from indelible.adapters.langgraph import IndelibleSaver
from indelible.testing.processes import starting

PROCESSES, TURNS = 8, 50
SECONDS_MAX = 300.0


def measure(folder: Path) -> str:
    """Say how many turns were lost without an error."""
    theirs, ours = str(folder / "crowd-theirs.db"), str(folder / "crowd-ours.db")
    SqliteSaver(sqlite3.connect(theirs)).setup()
    lines = [
        f"## {PROCESSES} processes on one thread\n",
        f"- SqliteSaver: {_count_lost(count_with_theirs, theirs)}",
        f'- indelible, `on_conflict="refuse"`: {_count_lost(count_with_ours, ours)}',
    ]
    return "\n".join(lines)


def _count_lost(count: Any, path: str) -> str:
    with starting() as start:
        workers = [start(count, path, TURNS) for _ in range(PROCESSES)]
        taken = sum(worker.result(SECONDS_MAX)[0] for worker in workers)
        kept = start(count, path, 0).result(SECONDS_MAX)[1]
    return f"{taken - kept} of {taken} turns are lost, without an error."


def count_with_theirs(path: str, turns: int) -> tuple[int, int]:
    """In a process: count up. Returns how many turns succeeded, and what is counted now."""
    connection = sqlite3.connect(path, check_same_thread=False, timeout=60)
    return _count(build_counter(SqliteSaver(connection)), turns)


def count_with_ours(path: str, turns: int) -> tuple[int, int]:
    """The same on our saver."""
    with indelible.open(path, busy_timeout_s=60) as store:
        return _count(build_counter(IndelibleSaver(store, on_conflict="refuse")), turns)


def _count(graph: Any, turns: int) -> tuple[int, int]:
    taken = 0
    while taken < turns:
        try:
            graph.invoke({"asked": 1}, THREAD, durability="sync")
        except (indelible.ConflictError, sqlite3.OperationalError):
            continue
        taken += 1
    return taken, graph.get_state(THREAD).values.get("turns", 0)
