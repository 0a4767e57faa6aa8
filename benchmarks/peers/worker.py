"""One peer in a process of its own, inside its framework's environment; orders come as JSON lines.

    python -m benchmarks.peers.worker langchain:Sqlite serve
    python -m benchmarks.peers.worker langchain:Sqlite crowd

`serve` opens the peer and does what is measured in one process. `crowd` opens nothing itself: it
forks, so that a second process costs no import, and its children may be killed.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import itertools
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, TextIO

from benchmarks.peers.peer import Message, Peer, await_result
from benchmarks.peers.worker_group import WorkerGroup

TEXT = "What did we agree on for the delivery of order 4711? " * 2
TASKS = 64
# A short session is always prepared whole.
FRESH_S = 60.0
SEVERAL = 5


def peer_class(code: str) -> type[Peer]:
    """`langchain:Sqlite` as the class that it names."""
    module, name = code.split(":")
    found: type[Peer] = getattr(importlib.import_module(f"benchmarks.peers.{module}"), name)
    return found


def texts(prefix: str) -> Iterator[Message]:
    """Messages that can be told apart: user and assistant in turn."""
    for number in itertools.count():
        role = "assistant" if number % 2 else "user"
        yield Message(role, f"{prefix}-{number:06d} {TEXT}")


class Serving:
    """What is measured in one process: each method is an order, and answers with plain values.

    Several stores are open at once, each at a place of its own: `at` says which is meant.
    """

    def __init__(self, code: str) -> None:
        self._class = peer_class(code)
        self._peers: dict[str, Peer] = {}
        self._awaited = inspect.iscoroutinefunction(self._class.append)
        self._prefixes = (f"m{number:03d}" for number in itertools.count())
        self._snapshots: dict[tuple[str, str], Any] = {}
        self._made: set[tuple[str, str]] = set()
        # As an application would, it keeps its threads, and they their connections.
        self._pool = ThreadPoolExecutor(TASKS)

    async def about(self, packages: list[str]) -> dict[str, Any]:
        """What the page says of it."""
        return {
            "used": self._class.used,
            "prepared": self._class.prepared,
            "snapshot_is": self._class.snapshot_is,
            "keeps": self._class.keeps,
            "synced": self._class.synced,
            "awaited": self._awaited,
            "snapshots": self._class.offers("snapshot"),
            "versions": {name: version(name) for name in packages},
        }

    async def open(self, place: str, at: str) -> None:
        """Open a store there."""
        self._peers[at] = self._class()
        await await_result(self._peers[at].open(place))

    async def fill(self, at: str, session: str, count: int, limit_s: float) -> int:
        """Prepare a session; how many messages it got within the limit."""
        peer = self._peers[at]
        messages = list(itertools.islice(texts(next(self._prefixes)), count))
        if peer.offers("fill"):
            await await_result(peer.fill(session, messages))
            return count
        deadline = time.monotonic() + limit_s
        for first in range(0, count, peer.batch):
            if time.monotonic() > deadline:
                return first
            await await_result(peer.append(session, messages[first : first + peer.batch]))
        return count

    async def append(
        self, at: str, session: str, calls: int, each: int, batch_s: float, fresh: int = 0
    ) -> list[float]:
        """Append so many messages with each call; to a new session of `fresh` messages, if any."""
        prefix = next(self._prefixes)
        if fresh:
            session = f"{session}-{prefix}"
            await self.fill(at, session, fresh, limit_s=FRESH_S)
        said = texts(prefix)
        # The first is not counted.
        todo = iter([list(itertools.islice(said, each)) for _ in range(calls + 1)])
        peer = self._peers[at]
        return await self._timed(lambda: peer.append(session, next(todo)), calls, batch_s)

    async def last(
        self, at: str, session: str, count: int, calls: int, batch_s: float
    ) -> list[float]:
        """Read the newest messages."""
        peer = self._peers[at]
        return await self._timed(lambda: peer.last(session, count), calls, batch_s)

    async def load(self, at: str, session: str, calls: int, batch_s: float) -> list[float]:
        """Read all."""
        peer = self._peers[at]
        return await self._timed(lambda: peer.load(session), calls, batch_s)

    async def snapshot(self, at: str, session: str, calls: int, batch_s: float) -> list[float]:
        """Take snapshots."""
        peer = self._peers[at]
        return await self._timed(lambda: peer.snapshot(session), calls, batch_s)

    async def rollback(self, at: str, session: str, calls: int, batch_s: float) -> list[float]:
        """Roll back to one snapshot, taken at first."""
        peer = self._peers[at]
        if (at, session) not in self._snapshots:
            self._snapshots[at, session] = await await_result(peer.snapshot(session))
        target = self._snapshots[at, session]
        return await self._timed(lambda: peer.rollback(session, target), calls, batch_s)

    async def back_and_forth(self, at: str, session: str, calls: int, limit_s: float) -> int:
        """Take a snapshot and roll back to it, again and again; how often."""
        peer = self._peers[at]

        async def once() -> None:
            await await_result(peer.rollback(session, await await_result(peer.snapshot(session))))

        return await _often(once, calls, limit_s)

    async def say(self, at: str, session: str, calls: int, limit_s: float) -> int:
        """Append messages one by one; how many."""
        peer, said = self._peers[at], texts(next(self._prefixes))

        async def once() -> None:
            await await_result(peer.append(session, [next(said)]))

        return await _often(once, calls, limit_s)

    async def newest(self, at: str, session: str) -> bool:
        """Append twenty messages, one by one; whether these are the last 20, in their order."""
        peer = self._peers[at]
        said = list(itertools.islice(texts(next(self._prefixes)), 20))
        for message in said:
            await await_result(peer.append(session, [message]))
        return list(await await_result(peer.last(session, 20))) == [each.text for each in said]

    async def tasks(self, at: str, many: bool, each: int, limit_s: float) -> dict[str, Any]:
        """64 tasks appending to one session or to one each; threads where the peer blocks."""
        peer, prefix = self._peers[at], next(self._prefixes)
        # One that all share is new each time: it gets long.
        sessions = [f"own-{number}" if many else f"shared-{prefix}" for number in range(TASKS)]
        said: dict[str, set[str]] = {session: set() for session in sessions}
        errors: Counter[str] = Counter()
        # Sessions that are made by many at once are another question.
        for session in said:
            if (at, session) not in self._made:
                await await_result(peer.append(session, [Message("user", "made")]))
                self._made.add((at, session))
        deadline = time.monotonic() + limit_s
        loop = asyncio.get_running_loop()

        async def one(number: int) -> None:
            for message in itertools.islice(texts(f"{prefix}t{number:02d}"), each):
                if time.monotonic() > deadline:
                    return
                todo = sessions[number], [message]
                try:
                    if self._awaited:
                        await peer.append(*todo)
                    else:
                        await loop.run_in_executor(self._pool, peer.append, *todo)
                except Exception as error:  # noqa: BLE001 (whatever a peer raises is counted)
                    errors[type(error).__name__] += 1
                else:
                    said[sessions[number]].add(message.text)

        started = time.perf_counter()
        await asyncio.gather(*map(one, range(TASKS)))
        seconds = time.perf_counter() - started
        lost = 0
        for session, kept in said.items():
            lost += len(kept - set(await await_result(peer.load(session)))) if kept else 0
        acknowledged = sum(map(len, said.values()))
        return {"seconds": seconds, "kept": acknowledged, "lost": lost, "errors": dict(errors)}

    async def _timed(self, call: Callable[[], Any], calls: int, batch_s: float) -> list[float]:
        """Seconds per call of a batch, and how many calls were counted.

        The first is not: its caches are cold, and it waits for what the disk still owes to others.
        One that takes as long as several batches is no matter of that, and is the batch.
        """
        took = await self._several(call, 1)
        if took >= SEVERAL * batch_s:
            return [took, 1]
        times = max(1, min(calls, int(batch_s / took)))
        return [await self._several(call, times) / times, times]

    async def _several(self, call: Callable[[], Any], times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            result = call()
            if self._awaited:
                await result
        return time.perf_counter() - started


async def _often(once: Callable[[], Awaitable[None]], calls: int, limit_s: float) -> int:
    """Again and again, until there is no time for more; how often."""
    deadline = time.monotonic() + limit_s
    for times in range(calls):
        if times and time.monotonic() > deadline:
            return times
        await once()
    return calls


async def _serve(code: str, answers: TextIO) -> None:
    serving = Serving(code)
    loop = asyncio.get_running_loop()
    # Read in a thread: the loop goes on meanwhile, as it does in an application.
    with ThreadPoolExecutor(1) as reader:
        while line := await loop.run_in_executor(reader, sys.stdin.readline):
            order = json.loads(line)
            try:
                answer = {"result": await getattr(serving, order.pop("do"))(**order)}
            except Exception as error:  # noqa: BLE001 (told to the one who gave the order)
                answer = {"error": f"{type(error).__name__}: {error}"[:300]}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    # Threads of drivers may still wait for connections.
    os._exit(0)


def _crowd(code: str, answers: TextIO) -> None:
    crowd = WorkerGroup(peer_class(code), texts)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"result": getattr(crowd, order.pop("do"))(**order)}
        except Exception as error:  # noqa: BLE001
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    """Obey until the input ends."""
    code, role = sys.argv[1:3]
    # What a framework prints must not come between our answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    if role == "serve":
        asyncio.run(_serve(code, answers))
    else:
        _crowd(code, answers)


if __name__ == "__main__":
    main()
