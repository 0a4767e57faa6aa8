"""The proxy that stands before a recorded store: it passes every call on and records it.

To the application it is the store: `isinstance` says so, attributes are the store's, errors come
through as they were raised. A failure of the recorder is counted as a missing line and never
raised. A call of a method that the recorder does not know counts as one that may have changed
anything.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import functools
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from concurrent import futures
from functools import partial
from threading import get_ident
from types import MappingProxyType
from typing import Any, Final

import wrapt

from memory_contract.traces.format import CALL
from memory_contract.traces.recorder.call_records import CallRecord
from memory_contract.traces.recorder.methods import (
    MethodSpec,
    MethodSpecs,
    build_unknown_method,
    can_change,
    describe_store_call,
)
from memory_contract.traces.recorder.trace_writer import TraceWriter

_CLOSE: Final = MethodSpec(describe_store_call, closes=True)


class CallRecorder:
    """Records the calls of one store."""

    def __init__(self, writer: TraceWriter, *, alone: bool) -> None:
        self.writer = writer
        self._number = writer.enter(alone=alone)
        self._left = False

    def begin(self, spec: MethodSpec, name: str, arguments: Any, options: Any) -> CallRecord | None:
        """Describe a call that is about to be made; None if that is not possible."""
        if spec.closes:
            return None
        try:
            record = spec.describe(*arguments, **options)
        except Exception:  # noqa: BLE001 -- wrong arguments are for the store to refuse
            if not spec.removes:
                self.writer.count_missing()
                return None
            # It may remove entries all the same, of any session.
            record = CallRecord(CALL, "", every=True, changes=True)
        record.verb = name
        return record

    def start(self, record: CallRecord | None, *, awaited: bool = False) -> None:
        """Note when the call begins; announce it if it may remove entries."""
        if record is None:
            return
        self.writer.begin(record)
        task = _current_task() if awaited or record.may_remove else None
        if task is None:
            record.worker = self.writer.name_worker(self._number, get_ident(), "t")
        elif awaited:
            record.worker = self.writer.name_worker(self._number, id(task), "a")
        else:
            # The announcement and the result must name the same worker, and the result of a
            # blocking method may have to be awaited.
            record.worker = self.writer.name_worker(self._number, id(record), "t")
        record.invoke_ns = time.monotonic_ns()
        if record.may_remove:
            self.writer.announce(record)

    def await_result(self, record: CallRecord | None) -> None:
        """Note that the result of a blocking method comes later: other calls may begin first."""
        if record is not None and not record.may_remove:
            record.worker = self.writer.name_worker(self._number, id(record), "a")

    def complete(self, record: CallRecord | None, spec: MethodSpec, answer: Any) -> None:
        """Record a call that returned."""
        if spec.closes:
            self.leave()
        if record is None:
            return
        record.complete_ns = time.monotonic_ns()
        record.outcome = "ok"
        try:
            is_iterator = record.op == "read" and isinstance(answer, Iterator | AsyncIterator)
            if is_iterator or isinstance(answer, futures.Future):
                # Reading it here would leave nothing for the application, or block it.
                record.outcome = "info"
            elif spec.read_result is not None and record.op != CALL:
                spec.read_result(record, answer, self.writer.hasher)
            self.writer.put(record)
        except Exception:  # noqa: BLE001 -- a result of an unknown form
            self.writer.count_missing(record)

    def fail(self, record: CallRecord | None, spec: MethodSpec, error: BaseException) -> None:
        """Record a call that raised."""
        if spec.closes:
            self.leave()
        if record is None:
            return
        try:
            record.set_error(error)
            self.writer.put(record)
        except Exception:  # noqa: BLE001 -- an error of an unknown form
            self.writer.count_missing(record)

    async def finish(
        self, record: CallRecord | None, spec: MethodSpec, call: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Await a call and record its result."""
        try:
            answer = await call()
        except BaseException as error:
            self.fail(record, spec, error)
            raise
        self.complete(record, spec, answer)
        return answer

    def call(
        self,
        spec: MethodSpec,
        name: str,
        method: Callable[..., Any],
        _: Any = None,
        arguments: tuple[Any, ...] = (),
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """Call a method, and record the call; wrapt passes the instance, too."""
        arguments, options = _list_batch(spec, arguments, options)
        record = self.begin(spec, name, arguments, options)
        self.start(record)
        try:
            answer = method(*arguments, **options)
        except BaseException as error:
            self.fail(record, spec, error)
            raise
        if not hasattr(answer, "__await__"):
            self.complete(record, spec, answer)
            return answer
        self.await_result(record)
        finished = self.finish(record, spec, lambda: answer)
        # A future may be given callbacks, or be awaited by nobody.
        is_future = asyncio.isfuture(answer)
        return answer.get_loop().create_task(finished) if is_future else finished

    async def call_async(
        self,
        spec: MethodSpec,
        name: str,
        method: Callable[..., Any],
        _: Any,
        arguments: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> Any:
        """Call a coroutine function, and record the call when it is awaited."""
        arguments, options = _list_batch(spec, arguments, options)
        record = self.begin(spec, name, arguments, options)
        self.start(record, awaited=True)
        return await self.finish(record, spec, lambda: method(*arguments, **options))

    def change(self, name: str, change: Callable[[], Any], session: str | None) -> Any:
        """Change the store in a way that the recorder does not understand."""
        return self.call(build_unknown_method(change, session), name, change)

    def leave(self) -> None:
        """Let go of the trace: the store was closed."""
        if not self._left:
            self._left = True
            self.writer.leave()


# The first versions of wrapt 2 cannot be subscripted at runtime.
class RecordedMethod(wrapt.FunctionWrapper):  # type: ignore[type-arg]
    """A method of a recorded store: to who looks at it, the bound method itself."""

    def __init__(
        self,
        method: Callable[..., Any],
        call: Callable[..., Any],
        recorder: CallRecorder,
        session: str | None,
    ) -> None:
        super().__init__(method, call)
        self._self_recorder = recorder
        self._self_session = session

    def __reduce_ex__(self, protocol: Any) -> Any:
        # What is called where it is unpickled is not recorded.
        self._self_recorder.change("pickle", lambda: None, self._self_session)
        return _pass_on, (self.__wrapped__,)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


def _pass_on(found: Any) -> Any:
    """Leave what is unpickled as it is, without a recorder."""
    return found


class RecordingProxy(wrapt.BaseObjectProxy):  # type: ignore[type-arg]
    """A recorded store.

    wrapt's `BaseObjectProxy` is `ObjectProxy` without `__iter__`, which would make every store
    look iterable; `build_proxy_class` adds what a store's class has. A copy, or what is unpickled,
    is the bare store: it may change the data unseen, and the trace says so.
    """

    # wrapt's form would ask `__getattr__`, which Python asks, too: what the store lacks would be
    # looked up twice.
    __getattribute__ = object.__getattribute__

    def __init__(
        self,
        store: Any,
        recorder: CallRecorder,
        methods: MethodSpecs,
        *,
        session: str | None = None,
        read_only: Collection[str] = (),
    ) -> None:
        super().__init__(store)
        self._self_recorder = recorder
        self._self_methods = methods
        # The session that the whole object stands for, if it does.
        self._self_session = session
        self._self_read_only = frozenset(read_only)
        # By name: a method of the store, and its wrapper.
        self._self_wrappers: dict[str, tuple[Any, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        store = self.__wrapped__
        known = self._self_wrappers.get(name)
        # The store may have replaced its method since.
        if known is not None and known[0] == getattr(store, name):
            return known[1]
        recorder, spec = self._self_recorder, self._self_methods.get(name)
        if spec is not None and spec.is_property:
            return recorder.call(spec, name, lambda: getattr(store, name))
        found = getattr(store, name)
        if spec is None and name in ("close", "aclose"):
            spec = _CLOSE
        elif spec is None and can_change(name, found, self._self_read_only):
            spec = build_unknown_method(found, self._self_session)
        if spec is None:
            return found
        is_async = inspect.iscoroutinefunction(inspect.unwrap(found))
        call = partial(recorder.call_async if is_async else recorder.call, spec, name)
        wrapper = RecordedMethod(found, call, recorder, self._self_session)
        self._self_wrappers[name] = found, wrapper
        return wrapper

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_self_"):
            super().__setattr__(name, value)
            return
        if name in self._self_methods:
            # What a read shows is replaced: `history.messages = []`.
            self._change(f"set {name}", setattr, name, value)
        else:
            super().__setattr__(name, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._change("set item", lambda store: store.__setitem__(key, value))

    def __delitem__(self, key: Any) -> None:
        self._change("delete item", lambda store: store.__delitem__(key))

    def _change(self, name: str, change: Callable[..., Any], *arguments: Any) -> Any:
        """Change or copy the store in a way that the recorder does not understand."""
        apply = partial(change, self.__wrapped__, *arguments)
        return self._self_recorder.change(name, apply, self._self_session)

    def __enter__(self) -> Any:
        return self._entered(self.__wrapped__.__enter__())

    async def __aenter__(self) -> Any:
        return self._entered(await self.__wrapped__.__aenter__())

    def _entered(self, entered: Any) -> Any:
        return self if entered is self.__wrapped__ else entered

    def __exit__(self, *raised: object) -> Any:
        try:
            return self.__wrapped__.__exit__(*raised)
        finally:
            self._self_recorder.leave()

    async def __aexit__(self, *raised: object) -> Any:
        try:
            return await self.__wrapped__.__aexit__(*raised)
        finally:
            self._self_recorder.leave()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._change("pickle", lambda store: (_pass_on, (store,)))

    def __copy__(self) -> Any:
        return self._change("copy", copy.copy)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._change("deepcopy", copy.deepcopy, memo)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


@functools.lru_cache
def build_proxy_class(kind: Any) -> type[RecordingProxy]:
    """Build the class of proxies for stores of a class.

    Python looks for `__iter__`, and `dataclasses` for fields, in the class of an object.
    """
    members: dict[str, Any] = {}
    if hasattr(kind, "__iter__"):
        members["__iter__"] = lambda self: iter(self.__wrapped__)
    if dataclasses.is_dataclass(kind):
        members["__dataclass_fields__"] = kind.__dataclass_fields__
    return type("RecordingProxy", (RecordingProxy,), members)


def get_trace_writer(store: Any) -> TraceWriter | None:
    """Return the writer of a recorded store's trace; None if the store is not recorded."""
    return store._self_recorder.writer if isinstance(store, RecordingProxy) else None  # noqa: SLF001


def _current_task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:
        # A store may be awaited by an event loop that is not asyncio's.
        return None


def _list_batch(spec: MethodSpec, arguments: Any, options: Any) -> tuple[Any, Any]:
    """Make a list of an iterator, so that the recorder and the store can both read it."""
    if not spec.takes_batch:
        return arguments, options

    def to_list(value: Any) -> Any:
        return list(value) if isinstance(value, Iterator) else value

    return tuple(map(to_list, arguments)), {name: to_list(options[name]) for name in options}
