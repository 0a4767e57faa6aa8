"""Record what an application does to its store, in production, to explain and replay it later."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from memory_contract.adapter import Adapter, import_object
from memory_contract.handles import then
from memory_contract.registry import RECORDERS, load_registered
from memory_contract.targets.simple_stores import VOCABULARIES
from memory_contract.traces.format import TraceHeader, TtlRefresh, WorkerKind
from memory_contract.traces.recorder.hasher import Hasher, Policy
from memory_contract.traces.recorder.methods import (
    MethodSpecs,
    build_duck_methods,
    build_handle_methods,
    build_langchain_methods,
    build_openai_methods,
)
from memory_contract.traces.recorder.proxy import (
    CallRecorder,
    build_proxy_class,
    get_trace_writer,
)
from memory_contract.traces.recorder.trace_writer import (
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
) -> Store:
    """Return the store with a line in a trace for every call: use it in place of the one given.

    `path` is a file (`trace.jsonl`) or a folder, to which many processes may write; another store
    needs another one, since a trace cannot tell their sessions apart. Contents are hashed unless
    the `policy` says otherwise. `session` names the session of an object that is one session and
    does not say which. `fresh` says that the store is empty now, and `ttl_s` how long it promises
    to keep a session after what `ttl_refreshed_by` says: both let an explanation say more. Files
    rotate at `part_bytes_max`; the oldest go when there are more than `parts_max`.

    A method that the recorder does not know may change anything: its session is not judged from
    then on. Methods whose names begin like those of reads (`get_`, `list_`, …) are taken to change
    nothing, and so are those in `read_only`.

    Calls never fail because of the trace. Where it cannot be begun, that is logged, and the store
    comes back as it is.
    """
    options = TraceOptions(
        policy=policy or Policy(),
        header=TraceHeader(fresh=fresh, ttl_s=ttl_s, ttl_refreshed_by=ttl_refreshed_by),
        part_bytes_max=part_bytes_max,
        parts_max=parts_max,
    )
    recording = _Recording(Path(path).absolute(), options, session, frozenset(read_only))
    return cast("Store", recording(store))


MethodsBuilder = Callable[[Hasher], MethodSpecs]


@dataclass(frozen=True, slots=True)
class _Recording:
    """Records stores in one trace, all in the same way."""

    path: Path
    options: TraceOptions
    session: str | None = None
    read_only: frozenset[str] = frozenset()
    # The table of methods, where it is known; else it is chosen by what a store offers.
    methods: MethodsBuilder | None = None

    def __call__(self, store: Any) -> Any:
        """Return the store with a recorder before it; the store itself if no trace can be begun."""
        if (known := get_trace_writer(store)) is not None and known.path == self.path:
            return store
        build_methods, session = self.methods, None
        if build_methods is None:
            build_methods, session = _choose_methods(store, self.session)
        try:
            writer = open_trace_writer(self.path, self.options)
        except (OSError, ValueError) as error:
            log.warning("nothing is recorded: cannot write a trace to %s: %s", self.path, error)
            return store
        kind: Any = type(store)
        return build_proxy_class(kind)(
            store,
            # Objects that are one session each come and go by the thousand: together they are one
            # store.
            CallRecorder(writer, alone=session is None),
            build_methods(writer.hasher),
            session=session,
            read_only=self.read_only,
        )


def _choose_methods(store: Any, session: str | None) -> tuple[MethodsBuilder, str | None]:
    """Choose the table of methods by what a store offers; with its session, if it is only one."""
    if (registered := _find_registered(store)) is not None:
        return registered, None
    if _offers(store, "add_items", "get_items"):
        name = _find_session(store, session)
        return partial(build_openai_methods, name), name
    if any(_offers(store, *each.methods) for each in VOCABULARIES):
        return partial(build_duck_methods, store), None
    if _offers(store, "add_messages", "clear", "messages"):
        name = _find_session(store, session)
        return partial(build_langchain_methods, name), name
    if _offers(store, "append", "read"):
        return build_handle_methods, None
    raise TypeError(
        f"cannot record {type(store).__name__}: it is no registered store, no handle with append"
        " and read, no class with add_message (or add_messages) and get_history or with"
        " save_context and load_memory, no history of LangChain and no session of the OpenAI Agents"
        " SDK"
    )


def _find_registered(store: Any) -> MethodsBuilder | None:
    """Find the table that the package of a store's class has registered, if it has."""
    package = type(store).__module__.partition(".")[0]
    found = (registered(store) for registered in load_registered(RECORDERS, package))
    return next((methods for methods in found if methods is not None), None)


def _offers(store: Any, *names: str) -> bool:
    return all(map(partial(_has_member, store), names))


def _has_member(store: Any, name: str) -> bool:
    # A property is not evaluated to see whether it is there.
    kind = type(store)
    if hasattr(kind, name) or name in getattr(kind, "model_fields", {}):
        return True
    return name != "messages" and callable(getattr(store, name, None))


def _find_session(store: Any, session: str | None) -> str:
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
    """Return an adapter whose handles are recorded, in whatever process they are opened."""
    header = TraceHeader(
        fresh=fresh,
        workers=workers,
        ttl_late_s=adapter.ttl_s_late,
        ttl_refreshed_by=adapter.ttl_refreshed_by,
    )
    options = TraceOptions(policy=policy or Policy(), header=header)
    recording = _Recording(Path(path).absolute(), options, methods=build_handle_methods)
    sides = {
        side: None if opener is None else RecordedOpener(opener, recording)
        for side, opener in (("open", adapter.open), ("open_async", adapter.open_async))
    }
    return replace(adapter, **cast("Any", sides))


@dataclass(frozen=True, slots=True)
class RecordedOpener:
    """Opens what another factory opens, recorded."""

    opener: Any
    recording: _Recording

    @property
    def name(self) -> str:
        """The factory's own name, so that other processes import its module."""
        if isinstance(self.opener, str):
            return self.opener
        return str(getattr(self.opener, "name", None) or getattr(self.opener, "__module__", ""))

    def __call__(self, workspace: Path, **options: Any) -> Any:
        """Open a recorded handle, or return something to await for it."""
        opener = import_object(self.opener) if isinstance(self.opener, str) else self.opener
        return then(opener(workspace, **options), self.recording)
