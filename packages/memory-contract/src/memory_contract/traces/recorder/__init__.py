"""Record what an application does to its store, in production, to explain and replay it later."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from memory_contract.adapter import Adapter, imported
from memory_contract.registry import RECORDERS, load_registered
from memory_contract.traces.format import TtlRefresh, WorkerKind
from memory_contract.traces.recorder.hasher import Hasher, Policy
from memory_contract.traces.recorder.methods import (
    MethodSpecs,
    build_duck_methods,
    build_handle_methods,
    build_langchain_methods,
    build_openai_methods,
)
from memory_contract.traces.recorder.proxy import CallRecorder, RecordingProxy, get_trace_writer
from memory_contract.traces.recorder.trace_writer import (
    BUFFERED_MAX,
    PART_BYTES_MAX,
    PARTS_MAX,
    TraceOptions,
    TraceWriter,
    log,
    open_trace_writer,
)

__all__ = ["Policy", "TraceWriter", "get_trace_writer", "record", "recorded"]

Store = TypeVar("Store")
_SESSION_NAMES = ("session_id", "_session_id", "session")


def record(
    store: Store,
    path: str | Path,
    *,
    policy: Policy | None = None,
    session: str | None = None,
    fresh: bool = False,
    ttl_s: float | None = None,
    ttl_refreshed_by: TtlRefresh = "append",
    read_only: Collection[str] = (),
    part_bytes_max: int = PART_BYTES_MAX,
    parts_max: int = PARTS_MAX,
    buffered_max: int = BUFFERED_MAX,
) -> Store:
    """The store, with a line in a trace for every call: use it in place of the one given.

    `path` is a file (`trace.jsonl`) or a folder, to which many processes may write. Contents are
    hashed unless the `policy` says otherwise. `session` names the session of an object that is one
    session and does not say which. `fresh` says that the store is empty now, and `ttl_s` how long
    it promises to keep a session after what `ttl_refreshed_by` says: both let an explanation say
    more. Files rotate at `part_bytes_max`; the oldest go when there are more than `parts_max`.

    A method that the recorder does not know may change anything: its session is not judged from
    then on. Methods whose names begin like those of reads (`get_`, `list_`, …) are taken to change
    nothing, and so are those in `read_only`.

    Calls never fail because of the trace. Where it cannot be begun, that is logged, and the store
    comes back as it is.
    """
    how = TraceOptions(
        policy=policy or Policy(),
        fresh=fresh,
        ttl_s=ttl_s,
        ttl_refreshed_by=ttl_refreshed_by,
        part_bytes_max=part_bytes_max,
        parts_max=parts_max,
        buffered_max=buffered_max,
    )
    kind = _kind(store, session)
    try:
        writer = open_trace_writer(Path(path), how)
    except OSError as error:
        log.warning("nothing is recorded: cannot write a trace to %s: %s", path, error)
        return store
    # Objects that are one session each come and go by the thousand: together they are one store.
    recorder = CallRecorder(writer, alone=kind.alone)
    session_of = None if kind.alone else kind.session
    standing = RecordingProxy(
        store, recorder, kind.verbs(writer), session=session_of, read_only=read_only
    )
    return cast("Store", standing)


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    store: Any
    session: str = ""

    @property
    def alone(self) -> bool:
        return self.name not in ("langchain", "openai")

    def verbs(self, writer: TraceWriter) -> MethodSpecs:
        hasher = writer.hasher
        if (registered := _registered(self.store)) is not None:
            return registered(hasher)
        match self.name:
            case "openai":
                return build_openai_methods(self.session, hasher)
            case "langchain":
                return build_langchain_methods(self.session, hasher)
            case "duck":
                return build_duck_methods(self.store, hasher)
            case _:
                return build_handle_methods(hasher)


def _kind(store: Any, session: str | None) -> _Kind:
    """What a store is, by what it can be asked."""
    if _registered(store) is not None:
        return _Kind("registered", store)
    if _has(store, "add_items", "get_items"):
        return _Kind("openai", store, _session_of(store, session))
    if _has(store, "add_messages", "get_history") or _has(store, "save_context", "load_memory"):
        return _Kind("duck", store)
    if _has(store, "add_messages", "clear") and _has(store, "messages"):
        return _Kind("langchain", store, _session_of(store, session))
    if _has(store, "append", "read"):
        return _Kind("handle", store)
    raise TypeError(
        f"cannot record {type(store).__name__}: it is no registered store, no handle with append"
        " and read, no class with add_messages and get_history or save_context and load_memory, no"
        " history of LangChain and no session of the OpenAI Agents SDK"
    )


def _registered(store: Any) -> Callable[[Hasher], MethodSpecs] | None:
    """The table of verbs that the package of a store's class has registered, if it has."""
    package = type(store).__module__.partition(".")[0]
    found = (registered(store) for registered in load_registered(RECORDERS, package))
    return next((verbs for verbs in found if verbs is not None), None)


def _has(store: Any, *names: str) -> bool:
    return all(hasattr(type(store), name) or name in _fields(store) for name in names)


def _fields(store: Any) -> Any:
    return getattr(type(store), "model_fields", {})


def _session_of(store: Any, session: str | None) -> str:
    if session is not None:
        return session
    for name in _SESSION_NAMES:
        found = getattr(store, name, None)
        if isinstance(found, str):
            return found
    raise TypeError(f"{type(store).__name__} does not say which session it is: pass session=")


def recorded(
    adapter: Adapter,
    path: str | Path,
    *,
    policy: Policy | None = None,
    fresh: bool = True,
    workers: WorkerKind | None = None,
) -> Adapter:
    """An adapter whose handles are recorded, in whatever process they are opened."""
    how = TraceOptions(
        policy=policy or Policy(),
        fresh=fresh,
        workers=workers,
        ttl_late_s=adapter.ttl_s_late,
        ttl_refreshed_by=adapter.ttl_refreshed_by,
    )
    place = Path(path).absolute()
    sides = {
        side: None if opener is None else OpenRecorded(opener, place, how)
        for side, opener in (("open", adapter.open), ("open_async", adapter.open_async))
    }
    return replace(adapter, **cast("Any", sides))


@dataclass(frozen=True, slots=True)
class OpenRecorded:
    """Opens what another factory opens, recorded."""

    opener: Any
    path: Path
    how: TraceOptions

    @property
    def name(self) -> str:
        """The factory's own, so that other processes import its module anew."""
        if isinstance(self.opener, str):
            return self.opener
        return str(getattr(self.opener, "name", None) or getattr(self.opener, "__module__", ""))

    def __call__(self, workspace: Path, **options: Any) -> Any:
        """A recorded handle, or something to await for it."""
        made = imported(self.opener) if isinstance(self.opener, str) else self.opener
        handle = made(workspace, **options)
        return self._later(handle) if inspect.isawaitable(handle) else self._before(handle)

    async def _later(self, handle: Any) -> Any:
        return self._before(await handle)

    def _before(self, handle: Any) -> Any:
        writer = open_trace_writer(self.path, self.how)
        return RecordingProxy(
            handle, CallRecorder(writer, alone=True), build_handle_methods(writer.hasher)
        )
