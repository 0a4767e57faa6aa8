"""Real processes: spawned, asked for one answer, asked all at once, or killed in the middle."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Barrier
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Spawned and not forked: a fork would share the parent's open files, and prove less.
SPAWN: Final = multiprocessing.get_context("spawn")
# Far beyond what any part of the demo takes; only a hang gets there.
ANSWER_TIMEOUT_S: Final = 90.0
# Many turns long, so that the moment of a kill has nothing to do with where in a turn it falls.
KILL_WITHIN_S: Final = 0.02


class ChildDiedError(Exception):
    """A process of the demo ended, or hung, without an answer."""


def make_barrier(parties: int) -> Barrier:
    """A line that nobody crosses before all are there."""
    return SPAWN.Barrier(parties)


def ask(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a process of its own and wait until that process is gone."""
    with _child(_answer, work, args, kwargs) as (process, pipe):
        answer: T = _wait_for_answer(process, pipe)
        return answer


def ask_all(work: Callable[..., T], calls: Iterable[tuple[Any, ...]]) -> list[T]:
    """Run `work` once for each tuple of arguments, in as many processes at the same time."""
    with ExitStack() as running:
        children = [running.enter_context(_child(_answer, work, args, {})) for args in calls]
        return [_wait_for_answer(process, pipe) for process, pipe in children]


def kill_after(
    count: int, work: Callable[P, Iterator[T]], *args: P.args, **kwargs: P.kwargs
) -> list[T]:
    """Let `work` yield `count` times, SIGKILL it soon after; everything that it had yielded."""
    with _child(_stream, work, args, kwargs) as (process, pipe):
        heard = [_receive(process, pipe) for _ in range(count)]
        # At once would always be at the beginning of the next turn, and spare what comes later.
        time.sleep(random.uniform(0, KILL_WITHIN_S))
        process.kill()
        # Acknowledgements that were in the pipe when the signal came were given, too.
        try:
            while True:
                heard.append(pipe.recv())
        except (EOFError, OSError):
            return heard


@contextmanager
def _child(
    body: Callable[..., None], work: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Iterator[tuple[SpawnProcess, Connection]]:
    """A process and the pipe that it reports through; both are gone at the end, come what may."""
    ours, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=body, args=(theirs, work, args, kwargs), daemon=True)
    # Ctrl-C reaches every process of a terminal. Children inherit that it is blocked, from their
    # first instruction on; the parent gets it afterwards, and ends its children by itself.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    # With this copy closed, the end of the child is the end of the pipe.
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


def _answer(
    pipe: Connection, work: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> None:
    pipe.send(work(*args, **kwargs))


def _stream(
    pipe: Connection,
    work: Callable[..., Iterator[Any]],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> None:
    for item in work(*args, **kwargs):
        pipe.send(item)


def _wait_for_answer(process: SpawnProcess, pipe: Connection) -> Any:
    answer = _receive(process, pipe)
    process.join(ANSWER_TIMEOUT_S)
    return answer


def _receive(process: SpawnProcess, pipe: Connection) -> Any:
    try:
        if pipe.poll(ANSWER_TIMEOUT_S):
            return pipe.recv()
    except EOFError:
        process.join(ANSWER_TIMEOUT_S)
    raise ChildDiedError(f"{process.name} gave no answer; exit code {process.exitcode}")
