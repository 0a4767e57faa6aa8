"""Opening and closing handles, blocking or awaited, and calling either as if it were blocking."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final

from memory_contract.adapter import Adapter, Flavour

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
# A chain of awaits is not longer than this.
AWAITS_MAX: Final = 200


class Loop:
    """An event loop that runs only while it is asked to: no thread beside it, so runs repeat."""

    def __init__(self, factory: LoopFactory | None = None) -> None:
        self._runner = asyncio.Runner(loop_factory=factory)

    def settle(self, answer: Any) -> Any:
        """Return an answer, after awaiting it if it is awaitable."""
        if inspect.isawaitable(answer):
            return self._runner.run(to_coroutine(answer))
        return answer

    def close(self) -> None:
        """End what still runs, and the loop."""
        self._runner.close()


async def to_coroutine(answer: Any) -> Any:
    """Wrap an awaitable in a coroutine."""
    return await answer


class StepwiseAwait(Generator[Any, Any, Any]):
    """Awaits something; `on_suspension` is called each time that it suspends."""

    def __init__(self, awaitable: Awaitable[Any], on_suspension: Callable[[], None]) -> None:
        # What is awaited, under the name that a coroutine has for it: see `iter_awaited`.
        self.cr_await = awaitable
        self._steps: Any = awaitable.__await__()
        self._on_suspension = on_suspension

    def __await__(self) -> StepwiseAwait:
        return self

    def send(self, _: Any) -> Any:
        """Go on until it suspends again; what it waited for gives it no value."""
        return self._suspend(next(self._steps))

    def throw(self, *error: Any) -> Any:
        """Raise an error, such as a cancellation, where it belongs."""
        return self._suspend(self._steps.throw(*error))

    def _suspend(self, step: Any) -> Any:
        self._on_suspension()
        return step


def iter_awaited(awaited: Any) -> Iterator[tuple[str, int, str]]:
    """Yield the calls of a coroutine and of what it awaits, from the outermost on."""
    for _ in range(AWAITS_MAX):
        frame = _get_first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        awaited = _get_first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
        if awaited is None:
            return


def _get_first(awaited: Any, *names: str) -> Any:
    found = (getattr(awaited, name, None) for name in names)
    return next((value for value in found if value is not None), None)


def open_handle(
    adapter: Adapter,
    workspace: Path,
    flavour: Flavour,
    loop: Loop | None,
    server: str | None = None,
) -> Any:
    """Open a handle on a workspace. An async one is opened on the loop that will call it.

    `server` is the one to stand on in place of the adapter's own.
    """
    factory = adapter.factory(flavour)
    options = {} if server is None else {"server": server}
    if loop is None:
        return factory(workspace, **options)

    async def opened() -> Any:
        # Some clients look for the running loop when they are made.
        handle = factory(workspace, **options)
        return await handle if inspect.isawaitable(handle) else handle

    return loop.settle(opened())


def close(handle: Any, loop: Loop | None = None) -> None:
    """Close a handle, if it has something to close."""
    method = getattr(handle, "close", None)
    if callable(method):
        answer = method()
        if loop is not None:
            loop.settle(answer)


def dismiss(answer: Any) -> None:
    """Close or cancel an awaitable that will not be awaited, so that Python does not warn."""
    for name in ("close", "cancel"):
        if callable(end := getattr(answer, name, None)):
            with contextlib.suppress(Exception):
                end()
            return


def then(answer: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert an answer, now or when it is awaited."""
    return _convert_later(answer, convert) if inspect.isawaitable(answer) else convert(answer)


async def _convert_later(answer: Any, convert: Callable[[Any], Any]) -> Any:
    return convert(await answer)
