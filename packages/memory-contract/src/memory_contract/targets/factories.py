"""What frameworks' factories have in common: finding them, calling them, trying them once.

Here are also the objects of those that make one for each session, by `factory(session_id,
workspace)`. The others, by `factory(workspace)`, are in `stores`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from memory_contract.adapter import Adapter, Flavour, Reach, imported_from_here
from memory_contract.calls import format_error
from memory_contract.handles import Loop, close, open_handle
from memory_contract.targets import TargetError
from memory_contract.workers.pool import StoreRaised, WorkerPool, WorkersUnavailable

_SESSION: Final = "indelible-was-here"
_HELLO: Final = {"role": "user", "content": "indelible was here"}
Factory = Callable[..., Any]
# What a factory of theirs is called with, in words.
_OF_SESSIONS: Final = "session_id, workspace"
# Of what an interface has, not every store has to have all: those raise `NotImplementedError`.
_USES: Final[dict[str, Callable[[Any], Any]]] = {
    "list": lambda handle: handle.sessions(),
    "pop": lambda handle: handle.pop(_SESSION),
    "clear": lambda handle: handle.clear(_SESSION),
}
# How many objects a handle keeps open. Each may hold files, and a case may use many sessions.
_OPEN_MAX: Final = 64


@dataclass(slots=True, kw_only=True)
class Sample:
    """What trying a factory once has shown."""

    kind: type | None = None
    reach: Reach = "machine"
    # Whether it gives the same object for the same session again: then it is not ours to close.
    shared: bool = False
    # What each flavour raised; nothing if it works.
    raised: dict[Flavour, str]
    # What the framework's interface has, and this store has not.
    missing: set[str] = field(default_factory=set)


class Sessions:
    """The objects that one handle has open: one for each session."""

    def __init__(self, make: Callable[[str], Any], *, keep: bool) -> None:
        self._make = make
        self._keep = keep
        self._open: dict[str, Any] = {}
        self._used: Counter[str] = Counter()
        self._lock = threading.Lock()

    @classmethod
    def of(cls, factory: Factory, workspace: Path, *, server: str | None, keep: bool) -> Sessions:
        """The objects that a factory makes in a workspace."""
        return cls(lambda session: made(factory, session, workspace, server=server), keep=keep)

    @contextlib.contextmanager
    def using(self, session: str) -> Iterator[Any]:
        """The object of a session, which stays open meanwhile."""
        with self._lock:
            if session not in self._open:
                self._open[session] = self._make(session)
            self._used[session] += 1
            found = self._open[session]
        try:
            yield found
        finally:
            with self._lock:
                self._used[session] -= 1

    def surplus(self) -> list[Any]:
        """Objects that nobody uses and that are too many; they are the caller's to close."""
        if self._keep or len(self._open) <= _OPEN_MAX:
            return []
        with self._lock:
            idle = [session for session in self._open if not self._used[session]]
            return [self._open.pop(session) for session in idle[: len(self._open) - _OPEN_MAX]]

    def rest(self) -> list[Any]:
        """All objects, if they are ours to close."""
        if self._keep:
            return []
        with self._lock:
            found = list(self._open.values())
            self._open.clear()
        return found


def closing(found: Any) -> Any:
    """Close what a framework made: by its own method, or else the database that it opened."""
    for name in ("aclose", "close"):
        if callable(method := getattr(found, name, None)):
            return method()
    for name in ("async_engine", "engine"):
        if callable(dispose := getattr(getattr(found, name, None), "dispose", None)):
            return dispose()
    return None


def close_all_blocking(objects: list[Any]) -> None:
    """Close objects from code that awaits nothing."""
    if objects:
        loop = Loop()
        try:
            loop.settle(close_all(objects))
        finally:
            loop.close()


async def close_all(objects: list[Any]) -> None:
    """Close objects, awaiting what is to be awaited."""
    for found in objects:
        answer = closing(found)
        if inspect.isawaitable(answer):
            await answer


def factory_named(name: str, package: str, module: str, takes: str = _OF_SESSIONS) -> Factory:
    """The factory that a target names, if its framework is there."""
    if not _is_there(module):
        raise TargetError(f"{package} is not installed: pip install {package}")
    try:
        found = imported_from_here(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise TargetError(f"cannot import {name!r}: {error}") from error
    if not callable(found):
        raise TargetError(f"{name} is no factory: {package} needs one of ({takes})")
    return found  # type: ignore[no-any-return]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # Not even the package that it would be in.
        return False


def server_of(factory: Factory, name: str) -> str | None:
    """The server that a store stands on, if its factory says: as the default of `server`."""
    try:
        parameter = inspect.signature(factory).parameters.get("server")
    except (TypeError, ValueError):
        return None
    if parameter is None:
        return None
    if parameter.default is parameter.empty:
        raise TargetError(
            f"{name} takes a server and names none: give `server` a default, the URL of its own"
        )
    return None if parameter.default is None else str(parameter.default)


def made(factory: Factory, *arguments: Any, server: str | None = None) -> Any:
    """What a factory makes; on another server than its own if there is one."""
    return factory(*arguments) if server is None else factory(*arguments, server=server)


def of_one_session(factory: Factory) -> Callable[[Path], Any]:
    """A factory of sessions' objects, for the one session that it is tried with."""
    return functools.partial(factory, _SESSION)


def sampled(adapter: Adapter, factory: Callable[[Path], Any]) -> Sample:
    """Try the store once, in a folder of its own: which flavours work, and who sees the data."""
    sample = Sample(raised={})
    flavours: list[Flavour] = ["blocking"] if adapter.open is not None else []
    flavours += ["async"] if adapter.open_async is not None else []
    for flavour in flavours:
        with tempfile.TemporaryDirectory(prefix="indelible-sample-") as folder:
            try:
                _try(adapter, Path(folder), flavour, factory, sample)
            except TargetError:
                raise
            except Exception as error:  # noqa: BLE001 -- told, and looked at again by the kit
                sample.raised[flavour] = format_error(error)
    return sample


def _try(
    adapter: Adapter,
    workspace: Path,
    flavour: Flavour,
    factory: Callable[[Path], Any],
    sample: Sample,
) -> None:
    loop = Loop() if flavour == "async" else None
    settle = loop.settle if loop is not None else lambda answer: answer
    try:
        handle = open_handle(adapter, workspace, flavour, loop)
        other = open_handle(adapter, workspace, flavour, loop)
        try:
            settle(handle.append(_SESSION, [dict(_HELLO)]))
            settle(handle.read(_SESSION))
            on_disk = any(workspace.iterdir())
            seen = bool(settle(other.read(_SESSION)))
            _look(factory, workspace, loop, sample)
            sample.reach = _reach(adapter, workspace, flavour, on_disk=on_disk, seen=seen)
            for capability, use in _USES.items():
                if adapter.claims([capability]):
                    try:
                        settle(use(handle))
                    except NotImplementedError:
                        sample.missing.add(capability)
        finally:
            for opened in (handle, other):
                close(opened, loop)
    finally:
        if loop is not None:
            loop.close()


async def _made_twice(factory: Callable[[Path], Any], workspace: Path) -> tuple[Any, Any]:
    return factory(workspace), factory(workspace)


def _look(
    factory: Callable[[Path], Any], workspace: Path, loop: Loop | None, sample: Sample
) -> None:
    """What the factory makes, and whether once. Some can be made only on a loop that runs."""
    ours = loop or Loop()
    try:
        one, two = ours.settle(_made_twice(factory, workspace))
        sample.kind, sample.shared = type(one), one is two
        if one is not two:
            ours.settle(close_all([one, two]))
    finally:
        if loop is None:
            ours.close()


def _reach(
    adapter: Adapter, workspace: Path, flavour: Flavour, *, on_disk: bool, seen: bool
) -> Reach:
    """Who sees what was written: files are for every process, whether they are seen or not."""
    if on_disk:
        return "machine"
    if not seen:
        return "handle"
    try:
        worker_pool = WorkerPool(adapter)
    except WorkersUnavailable:
        return "process"
    try:
        worker = worker_pool.start_worker()
        try:
            worker.ask("open", workspace, flavour)
            return "machine" if worker.ask("call", "read", (_SESSION,), {}) else "process"
        except StoreRaised:
            return "process"
        finally:
            worker.end()
    finally:
        worker_pool.close()


def adapted(
    adapter: Adapter,
    factory: Callable[[Path], Any],
    *,
    awaited: Callable[[type], bool] | None = None,
) -> Adapter:
    """The adapter with what its factory turned out to be: here a function of a workspace alone.

    `awaited` says of a class whether its awaited methods are its own.
    """
    sample = sampled(adapter, factory)
    works = [flavour for flavour in ("blocking", "async") if flavour not in sample.raised]
    notes = list(adapter.notes)
    changes: dict[str, Any] = {"reach": sample.reach}
    both = adapter.open is not None and adapter.open_async is not None
    if both and len(works) == 1:
        # Objects of one class are made for one flavour each; the other one's calls raise.
        lost: Flavour = "async" if works == ["blocking"] else "blocking"
        notes.append(f"not driven {lost}: {sample.raised[lost]}")
        changes["open_async" if lost == "async" else "open"] = None
    elif both and awaited is not None and sample.kind is not None and not awaited(sample.kind):
        changes["open_async"] = None
    if sample.reach == "handle":
        notes.append("a second object of a session does not see the first one's messages")
    if sample.missing:
        changes["capabilities"] = set(adapter.capabilities) - sample.missing
        notes.append(f"not implemented, and not claimed: {', '.join(sorted(sample.missing))}")
    keep = sample.shared or sample.reach == "handle"
    for side in ("open", "open_async"):
        opener = changes.get(side, getattr(adapter, side))
        changes[side] = replace(opener, keep=keep) if opener is not None else None
    return replace(adapter, **changes, notes=tuple(notes))
