"""Several processes that use one store: each is forked from one that has opened nothing."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.peers.peer import Message, Peer, await_result

PROCESSES = 8
# A child that is not back by then is killed; what it would have said is not known.
HUNG_S = 60.0
# Acknowledged appends before the kill, and how long to wait for them.
BEFORE_KILL = 50
BEFORE_KILL_S = 10.0
LOOK_AGAIN_S = 0.002

Texts = Callable[[str], Iterator[Message]]


class WorkerGroup:
    """What is measured with several processes: each method is an order."""

    def __init__(self, peer: type[Peer], texts: Texts) -> None:
        self._class = peer
        self._texts = texts
        self._prefixes = (f"c{number:03d}" for number in itertools.count())
        self._fork = get_context("fork")

    def warm(self, place: str) -> None:
        """Import what a first use imports, as a child tells: what follows is not about imports."""

        async def work(peer: Peer) -> list[str]:
            await await_result(peer.open(place))
            await await_result(peer.append("warm", [next(self._texts("w"))]))
            await await_result(peer.last("warm", 1))
            return sorted(sys.modules)

        for name in self._child(work):
            if name not in sys.modules:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)

    def first(self, place: str) -> float:
        """Seconds from nothing to the first message that is kept, imports not counted."""

        async def work(peer: Peer) -> float:
            started = time.perf_counter()
            await await_result(peer.open(place))
            await await_result(peer.append("first", [next(self._texts("f"))]))
            return time.perf_counter() - started

        return float(self._child(work))

    def processes(self, place: str, many: bool, each: int, limit_s: float) -> dict[str, Any]:
        """Eight processes appending to one session or to one each; then a ninth looks."""
        prefix = next(self._prefixes)
        # One that all share is new each time: it gets long.
        shared = f"shared-{prefix}"
        sessions = [f"own-{number}" if many else shared for number in range(PROCESSES)]

        def work_of(number: int) -> Callable[[Peer, Any], Coroutine[Any, Any, Any]]:
            async def work(peer: Peer, ready: Any) -> Any:
                session = sessions[number]
                await await_result(peer.open(place))
                ready.wait(HUNG_S)
                return await self._append(peer, session, f"{prefix}p{number}", each, limit_s)

            return work

        # Tables and sessions that are made by eight at once are another question.
        self._child(lambda peer: _made(peer, place, set(sessions)))
        answers = self._children([work_of(number) for number in range(PROCESSES)])
        errors: Counter[str] = Counter()
        for answer in answers:
            errors.update(answer["errors"])
        began = min(answer["began"] for answer in answers)
        ended = max(answer["ended"] for answer in answers)
        kept = {answer["session"]: set[str]() for answer in answers}
        for answer in answers:
            kept[answer["session"]].update(answer["kept"])

        async def look(peer: Peer) -> int:
            await await_result(peer.open(place))
            lost = 0
            for session, texts in kept.items():
                if texts:
                    lost += len(texts - set(await await_result(peer.load(session))))
            return lost

        return {
            "seconds": ended - began,
            "kept": sum(map(len, kept.values())),
            "lost": self._child(look),
            "errors": dict(errors),
        }

    def killed(self, place: str) -> dict[str, Any]:
        """Append until a `kill -9`, then open in a new process and read; what is missing."""
        notes = Path(f"{next(self._prefixes)}-{os.getpid()}.acknowledged").absolute()

        async def work(peer: Peer, _ready: Any) -> None:
            await await_result(peer.open(place))
            with notes.open("w", buffering=1) as file:
                for message in self._texts("k"):
                    await await_result(peer.append("killed", [message]))
                    file.write(message.text + "\n")

        child = self._fork.Process(target=self._run, args=(work, None, None))
        child.start()
        deadline = time.monotonic() + BEFORE_KILL_S
        while time.monotonic() < deadline and _lines(notes) < BEFORE_KILL and child.is_alive():
            time.sleep(LOOK_AGAIN_S)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        acknowledged = set(notes.read_text("utf-8").splitlines()) if notes.exists() else set()
        notes.unlink(missing_ok=True)

        async def look(peer: Peer) -> Any:
            started = time.perf_counter()
            await await_result(peer.open(place))
            await await_result(peer.last("killed", 20))
            seconds = time.perf_counter() - started
            return seconds, len(acknowledged - set(await await_result(peer.load("killed"))))

        seconds, lost = self._child(look)
        return {"seconds": seconds, "kept": len(acknowledged), "lost": lost, "errors": {}}

    async def _append(
        self, peer: Peer, session: str, prefix: str, each: int, limit_s: float
    ) -> dict[str, Any]:
        kept, errors = [], Counter[str]()
        began = time.monotonic()
        for message in itertools.islice(self._texts(prefix), each):
            if time.monotonic() > began + limit_s:
                break
            try:
                await await_result(peer.append(session, [message]))
            except Exception as error:  # noqa: BLE001 (whatever a peer raises is counted)
                errors[type(error).__name__] += 1
            else:
                kept.append(message.text)
        return {
            "session": session,
            "began": began,
            "ended": time.monotonic(),
            "kept": kept,
            "errors": dict(errors),
        }

    def _child(self, work: Callable[[Peer], Coroutine[Any, Any, Any]]) -> Any:
        async def alone(peer: Peer, _ready: Any) -> Any:
            return await work(peer)

        return self._children([alone])[0]

    def _children(self, works: list[Callable[[Peer, Any], Any]]) -> list[Any]:
        ready = self._fork.Barrier(len(works))
        pipes = [self._fork.Pipe(duplex=False) for _ in works]
        children = [
            self._fork.Process(target=self._run, args=(work, ready, sender))
            for work, (_, sender) in zip(works, pipes, strict=True)
        ]
        for child in children:
            child.start()
        answers = []
        try:
            for receiver, sender in pipes:
                sender.close()
                if not receiver.poll(HUNG_S):
                    raise TimeoutError(f"a process was not back after {HUNG_S:.0f} s")
                answers.append(json.loads(receiver.recv()))
        finally:
            for child in children:
                child.kill()
                child.join()
        for answer in answers:
            if "error" in answer:
                raise RuntimeError(answer["error"])
        return [answer["result"] for answer in answers]

    def _run(self, work: Callable[[Peer, Any], Any], ready: Any, sender: Any) -> None:
        """In the child: do it, say what came of it, and wait for the kill."""
        try:
            answer = {"result": asyncio.run(work(self._class(), ready))}
        except BaseException as error:  # noqa: BLE001
            with contextlib.suppress(Exception):
                ready.abort()
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        sender.send(json.dumps(answer))
        sender.close()
        os._exit(0)


async def _made(peer: Peer, place: str, sessions: set[str]) -> None:
    await await_result(peer.open(place))
    for session in sessions:
        await await_result(peer.append(session, [Message("user", "made")]))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
