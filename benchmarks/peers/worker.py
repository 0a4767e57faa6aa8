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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, TextIO

from benchmarks.peers.crowd import Crowd
from benchmarks.peers.peer import Message, Peer, done

TEXT = "What did we agree on for the delivery of order 4711? " * 2
TASKS = 64


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
    """What is measured in one process: each method is an order, and answers with plain values."""

    def __init__(self, code: str) -> None:
        self._class = peer_class(code)
        self._peer: Peer | None = None
        self._awaited = inspect.iscoroutinefunction(self._class.append)
        self._prefixes = (f"m{number:03d}" for number in itertools.count())
        self._snapshots: dict[str, Any] = {}
        self._made: set[str] = set()
        # As an application would, it keeps its threads, and they their connections.
        self._pool = ThreadPoolExecutor(TASKS)

    @property
    def peer(self) -> Peer:
        """The opened peer."""
        assert self._peer is not None
        return self._peer

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

    async def open(self, place: str) -> None:
        """Open it there; what was open is closed."""
        if self._peer is not None:
            await done(self._peer.close())
        self._peer = self._class()
        self._snapshots.clear()
        self._made.clear()
        await done(self._peer.open(place))

    async def fill(self, session: str, count: int, limit_s: float) -> int:
        """Prepare a session; how many messages it got within the limit."""
        messages = list(itertools.islice(texts(next(self._prefixes)), count))
        if self.peer.offers("fill"):
            await done(self.peer.fill(session, messages))
            return count
        deadline = time.monotonic() + limit_s
        for first in range(0, count, self.peer.batch):
            if time.monotonic() > deadline:
                return first
            await done(self.peer.append(session, messages[first : first + self.peer.batch]))
        return count

    async def append(self, session: str, calls: int, each: int, limit_s: float) -> list[float]:
        """Append so many messages with each call; seconds per call and how many calls."""
        said = texts(next(self._prefixes))
        batches = [list(itertools.islice(said, each)) for _ in range(calls)]
        todo = iter(batches)
        return await self._timed(lambda: self.peer.append(session, next(todo)), calls, limit_s)

    async def last(self, session: str, count: int, calls: int, limit_s: float) -> list[float]:
        """Read the newest messages."""
        return await self._timed(lambda: self.peer.last(session, count), calls, limit_s)

    async def load(self, session: str, calls: int, limit_s: float) -> list[float]:
        """Read all."""
        return await self._timed(lambda: self.peer.load(session), calls, limit_s)

    async def count(self, session: str) -> int:
        """How many messages can be read."""
        return len(await done(self.peer.load(session)))

    async def snapshot(self, session: str, calls: int, limit_s: float) -> list[float]:
        """Take snapshots."""
        return await self._timed(lambda: self.peer.snapshot(session), calls, limit_s)

    async def rollback(self, session: str, calls: int, limit_s: float) -> list[float]:
        """Roll back to one snapshot, taken at first."""
        if session not in self._snapshots:
            self._snapshots[session] = await done(self.peer.snapshot(session))
        target = self._snapshots[session]
        return await self._timed(lambda: self.peer.rollback(session, target), calls, limit_s)

    async def back_and_forth(self, session: str, calls: int, limit_s: float) -> int:
        """Take a snapshot and roll back to it, again and again; how often."""
        deadline = time.monotonic() + limit_s
        for times in range(calls):
            if times and time.monotonic() > deadline:
                return times
            taken = await done(self.peer.snapshot(session))
            await done(self.peer.rollback(session, taken))
        return calls

    async def newest(self, session: str) -> bool:
        """Append twenty messages, one by one; whether these are the last 20, in their order."""
        said = list(itertools.islice(texts(next(self._prefixes)), 20))
        for message in said:
            await done(self.peer.append(session, [message]))
        return list(await done(self.peer.last(session, 20))) == [each.text for each in said]

    async def tasks(self, many: bool, each: int, limit_s: float) -> dict[str, Any]:
        """64 tasks appending to one session or to one each; threads where the peer blocks."""
        prefix = next(self._prefixes)
        sessions = [f"own-{number}" if many else "shared" for number in range(TASKS)]
        said: dict[str, set[str]] = {session: set() for session in sessions}
        errors: Counter[str] = Counter()
        # Sessions that are made by many at once are another question.
        for session in said.keys() - self._made:
            await done(self.peer.append(session, [Message("user", "made")]))
            self._made.add(session)
        deadline = time.monotonic() + limit_s
        loop = asyncio.get_running_loop()

        async def one(number: int) -> None:
            for message in itertools.islice(texts(f"{prefix}t{number:02d}"), each):
                if time.monotonic() > deadline:
                    return
                todo = sessions[number], [message]
                try:
                    if self._awaited:
                        await self.peer.append(*todo)
                    else:
                        await loop.run_in_executor(self._pool, self.peer.append, *todo)
                except Exception as error:  # noqa: BLE001 (whatever a peer raises is counted)
                    errors[type(error).__name__] += 1
                else:
                    said[sessions[number]].add(message.text)

        started = time.perf_counter()
        await asyncio.gather(*map(one, range(TASKS)))
        seconds = time.perf_counter() - started
        lost = 0
        for session, kept in said.items():
            lost += len(kept - set(await done(self.peer.load(session)))) if kept else 0
        acknowledged = sum(map(len, said.values()))
        return {"seconds": seconds, "kept": acknowledged, "lost": lost, "errors": dict(errors)}

    async def _timed(self, call: Callable[[], Any], calls: int, limit_s: float) -> list[float]:
        """Seconds per call, and how many calls there were time for: at least one."""
        deadline = time.monotonic() + limit_s
        times = 0
        started = time.perf_counter()
        while times < calls and (not times or time.monotonic() < deadline):
            result = call()
            if self._awaited:
                await result
            times += 1
        return [(time.perf_counter() - started) / times, times]


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
    crowd = Crowd(peer_class(code), texts)
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
