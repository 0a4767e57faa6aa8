"""The proxy that stands before a recorded store: it passes every call on and records it.

To the application it is the store: `isinstance` says so, attributes are the store's, errors come
through as they were raised. A failure of the recorder is counted as a missing line and never
raised. A call of a method that the recorder does not know counts as one that may have changed
anything.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from threading import get_ident
from typing import Any, Final

import wrapt

from memory_contract.traces.format import CALL, REMOVERS
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

    def start(self, record: CallRecord | None, *, task: bool = False) -> None:
        """Note when the call begins; write it at once if it may remove entries."""
        if record is None:
            return
        current = _current_task() if task else None
        ident, kind = (get_ident(), "t") if current is None else (id(current), "a")
        record.worker = self.writer.name_worker(self._number, ident, kind)
        record.invoke_ns = time.monotonic_ns()
        if record.op in REMOVERS or record.changes:
            self.writer.announce(record)

    def complete(self, record: CallRecord | None, spec: MethodSpec, answer: Any) -> None:
        """Record a call that returned."""
        if spec.closes:
            self.leave()
        if record is None:
            return
        record.complete_ns = time.monotonic_ns()
        record.outcome = "ok"
        try:
            if spec.read_result is not None and not record.changes:
                spec.read_result(record, answer, self.writer.hasher)
            self.writer.put(record)
        except Exception:  # noqa: BLE001 -- a result of an unknown form
            self.writer.count_missing()

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
            self.writer.count_missing()

    def leave(self) -> None:
        """Let go of the trace: the store was closed."""
        if not self._left:
            self._left = True
            self.writer.leave()


class RecordingProxy(wrapt.BaseObjectProxy):  # type: ignore[type-arg]
    """A recorded store.

    wrapt's `BaseObjectProxy` is `ObjectProxy` without `__iter__`, which would make every store
    look iterable; a store that is gets an `IterableRecordingProxy`.
    """

    def __init__(
        self,
        store: Any,
        recorder: CallRecorder,
        methods: MethodSpecs,
        rewrap: Callable[[Any], Any],
        *,
        session: str | None = None,
        read_only: Collection[str] = (),
    ) -> None:
        """`rewrap` records another store in the same way: a copy, or this one elsewhere."""
        super().__init__(store)
        self._self_recorder = recorder
        self._self_methods = methods
        self._self_rewrap = rewrap
        # The session that the whole object stands for, if it does.
        self._self_session = session
        self._self_read_only = frozenset(read_only)
        self._self_wrappers: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if (wrapper := self._self_wrappers.get(name)) is not None:
            return wrapper
        store, recorder = self.__wrapped__, self._self_recorder
        spec = self._self_methods.get(name)
        if spec is not None and _is_property(store, name):
            return _wrap_call(recorder, spec, name, lambda: getattr(store, name))()
        found = getattr(store, name)
        if spec is not None:
            wrapper = _wrap_call(recorder, spec, name, found)
        elif name in ("close", "aclose"):
            wrapper = _wrap_call(recorder, _CLOSE, name, found)
        elif can_change(name, found, self._self_read_only):
            unknown = build_unknown_method(found, self._self_session)
            wrapper = _wrap_call(recorder, unknown, name, found)
        else:
            return found
        self._self_wrappers[name] = wrapper
        return wrapper

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_self_"):
            super().__setattr__(name, value)
            return
        self._self_wrappers.pop(name, None)
        if name in self._self_methods:
            # What a read shows is replaced: `history.messages = []`.
            self._change(f"set {name}", setattr, name, value)
        else:
            super().__setattr__(name, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._change("set item", lambda store: store.__setitem__(key, value))

    def __delitem__(self, key: Any) -> None:
        self._change("delete item", lambda store: store.__delitem__(key))

    def _change(self, name: str, change: Callable[..., None], *arguments: Any) -> None:
        """Change the store in a way that the recorder does not understand."""

        def apply() -> None:
            change(self.__wrapped__, *arguments)

        spec = build_unknown_method(apply, self._self_session)
        _wrap_call(self._self_recorder, spec, name, apply)()

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

    def __reduce__(self) -> Any:
        return self._self_rewrap, (self.__wrapped__,)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __copy__(self) -> Any:
        return self._self_rewrap(copy.copy(self.__wrapped__))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._self_rewrap(copy.deepcopy(self.__wrapped__, memo))

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


class IterableRecordingProxy(RecordingProxy):
    """A recorded store that can be iterated over."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.__wrapped__)


def get_trace_writer(store: Any) -> TraceWriter | None:
    """Return the writer of a recorded store's trace; None if the store is not recorded."""
    return store._self_recorder.writer if isinstance(store, RecordingProxy) else None  # noqa: SLF001


def _current_task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:
        # A store may be awaited by an event loop that is not asyncio's.
        return None


def _is_property(store: Any, name: str) -> bool:
    found = inspect.getattr_static(store, name, None)
    return not callable(found) and not isinstance(found, staticmethod | classmethod)


def _wrap_call(
    recorder: CallRecorder, spec: MethodSpec, name: str, method: Callable[..., Any]
) -> Callable[..., Any]:
    """Return the method with a record of each call."""

    async def complete_later(record: CallRecord | None, call: Callable[[], Awaitable[Any]]) -> Any:
        recorder.start(record, task=True)
        try:
            answer = await call()
        except BaseException as error:
            recorder.fail(record, spec, error)
            raise
        recorder.complete(record, spec, answer)
        return answer

    if inspect.iscoroutinefunction(inspect.unwrap(method)):

        @functools.wraps(method)
        async def call_async(*arguments: Any, **options: Any) -> Any:
            arguments, options = _list_batch(spec, arguments, options)
            record = recorder.begin(spec, name, arguments, options)
            return await complete_later(record, lambda: method(*arguments, **options))

        return call_async

    @functools.wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        arguments, options = _list_batch(spec, arguments, options)
        record = recorder.begin(spec, name, arguments, options)
        recorder.start(record)
        try:
            answer = method(*arguments, **options)
        except BaseException as error:
            recorder.fail(record, spec, error)
            raise
        if hasattr(answer, "__await__"):
            return complete_later(record, lambda: answer)
        recorder.complete(record, spec, answer)
        return answer

    return call


def _list_batch(spec: MethodSpec, arguments: Any, options: Any) -> tuple[Any, Any]:
    """Make a list of an iterator, so that the recorder and the store can both read it."""
    if spec.batch is None:
        return arguments, options
    place, name = spec.batch
    if len(arguments) > place and isinstance(arguments[place], Iterator):
        arguments = (*arguments[:place], list(arguments[place]), *arguments[place + 1 :])
    elif isinstance(options.get(name), Iterator):
        options = {**options, name: list(options[name])}
    return arguments, options
