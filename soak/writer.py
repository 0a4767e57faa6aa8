"""One writer: a process with many tasks on one store, until its time is over or it is killed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import indelible
from memory_contract.calls import classify_outcome
from memory_contract.history import Ids
from soak.record import Record

TASKS: Final = 48
# Sessions are named after the moment, so that several processes write to the same ones; and the
# number of those at each moment.
MOMENT_S: Final = 0.3
SHARED: Final = 4
# Reads stay short: a writer of so many entries to one session goes on in a session of its own.
ENTRIES_MAX: Final = 200
# Most appends are one message; the others are turns of a loop with tools.
BATCHES: Final = 0.08
BATCH_MAX: Final = 12
KEPT_BY_TRIM: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The task of a writer."""

    name: str
    url: str
    record: Path
    began: float
    until: float
    seed: str
    # Whether it reads all sessions at its end, since its store ends with its process.
    reads: bool = False
    # The pause after each call of a task, so that writers which never wait leave time for others.
    rest_s: float = 0.0


def write(orders: Orders) -> None:
    """Write until the time is over."""
    asyncio.run(Writer(orders).run())


class Writer:
    """The tasks of one process."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._random = Random(orders.seed)
        self._record = Record(orders.record)
        self._entries = 0
        self._written: dict[str, int] = {}
        self._own = 0
        self._snapshots: dict[str, list[tuple[str, str]]] = {}

    async def run(self) -> None:
        """Run all tasks, and read the sessions if nobody else can."""
        self._store = await indelible.open_async(self._orders.url)
        async with asyncio.TaskGroup() as group:
            for number in range(TASKS):
                group.create_task(self._task(f"{self._orders.name}.{number}"))
        if self._orders.reads:
            for session in self._written:
                await self._read("final", session)
        self._record.close()
        await self._store.close()

    async def _task(self, worker: str) -> None:
        while time.monotonic() < self._orders.until:
            session, chance = self._choose_session(), self._random.random()
            if chance < 0.015:
                await self._read(worker, session)
            elif chance < 0.03 and session.endswith(".0"):
                await self._change(worker, session)
            else:
                count = self._random.randint(2, BATCH_MAX) if chance > 1 - BATCHES else 1
                await self._append(worker, session, count)
            if self._orders.rest_s:
                await asyncio.sleep(self._orders.rest_s)

    def _choose_session(self) -> str:
        moment = int((time.monotonic() - self._orders.began) / MOMENT_S)
        session = f"{moment}.{self._random.randrange(SHARED)}"
        if self._written.get(session, 0) >= ENTRIES_MAX:
            session = f"{self._orders.name}.{self._own}.x"
            if self._written.get(session, 0) >= ENTRIES_MAX:
                self._own += 1
        return session

    async def _append(self, worker: str, session: str, count: int) -> None:
        first = self._entries
        self._entries += count
        self._written[session] = self._written.get(session, 0) + count
        ids = tuple(f"{self._orders.name}e{n}" for n in range(first, first + count))
        key = f"k{ids[0]}"
        batch = [indelible.ChatMessage(role="user", content=id_) for id_ in ids]
        for _ in range(2):
            # After an unknown outcome, repeat with the same key: it must be stored once.
            call = self._record.begin(worker, session, "append", ids=ids, key=key)
            try:
                await self._store.add_messages(session, batch, key=key, replay="hidden-ok")
            except indelible.MemoryStoreError as error:
                outcome = classify_outcome(error)
                self._record.end(call, outcome)
                if outcome == "fail":
                    return
            else:
                self._record.end(call, "ok")
                return

    async def _read(self, worker: str, session: str) -> None:
        call = self._record.begin(worker, session, "read")
        try:
            seen = parse_ids(await self._store.get_history(session))
        except indelible.MemoryStoreError:
            self._record.end(call, "fail")
        else:
            self._record.end(call, "ok", seen)

    async def _change(self, worker: str, session: str) -> None:
        taken = self._snapshots.setdefault(session, [])
        match self._random.choice(("trim", "clear", "snapshot", "rollback")):
            case "trim":
                call = self._record.begin(worker, session, "trim", keep=KEPT_BY_TRIM)
                await self._finish(
                    call, self._store.trim(session, keep_last=KEPT_BY_TRIM, align=None)
                )
            case "clear":
                call = self._record.begin(worker, session, "clear")
                await self._finish(call, self._store.clear(session))
            case "rollback" if taken:
                name, snapshot = self._random.choice(taken)
                call = self._record.begin(worker, session, "rollback", snapshot=name)
                await self._finish(call, self._store.rollback_to_snapshot(session, snapshot))
            case _:
                name = f"{worker}s{len(taken)}"
                call = self._record.begin(worker, session, "snapshot", snapshot=name)
                found = await self._finish(call, self._store.save_snapshot(session))
                if found is not None:
                    taken.append((name, found.id))

    async def _finish(self, call: int, work: Any) -> Any:
        try:
            found = await work
        except indelible.MemoryStoreError as error:
            self._record.end(call, classify_outcome(error))
            return None
        self._record.end(call, "ok")
        return found


def parse_ids(history: Any) -> Ids:
    """Return the ids of the entries that a session shows."""
    return tuple(str(message.content) for message in history)
