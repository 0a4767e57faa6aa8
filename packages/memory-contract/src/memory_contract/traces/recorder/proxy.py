"""What stands before a recorded store: it passes every call on, and takes notes.

A call of a method that it does not know is noted as one that may have changed anything.

To the application it is the store: `isinstance` says so, attributes are the store's, errors come
through as they were raised. What goes wrong here is counted as a missing line, and nothing else.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Collection
from threading import get_ident
from typing import Any, Final

from memory_contract.traces.format import CALL
from memory_contract.traces.recorder.call_records import CallRecord
from memory_contract.traces.recorder.methods import REMOVERS, MethodSpec, MethodSpecs
from memory_contract.traces.recorder.trace_writer import TraceWriter
from memory_contract.traces.recorder.unknown_methods import (
    build_unknown_method,
    can_change,
    find_session_parameters,
)

_ENDS: Final = ("close", "aclose")
# Names of our own, which no store has.
_OURS: Final = "_indelible_recorded_"


class CallRecorder:
    """Takes the notes of one store."""

    def __init__(self, writer: TraceWriter, *, alone: bool) -> None:
        self.writer = writer
        self.number = writer.enter(alone=alone)
        self._left = False

    def begin(self, verb: MethodSpec, name: str, arguments: Any, options: Any) -> CallRecord | None:
        """The note of a call that is about to be made; None if it cannot be noted."""
        try:
            note = verb.noter(*arguments, **options)
            note.verb = name
        except Exception:  # noqa: BLE001 -- a call that is wrong is the store's to refuse
            if verb.removes:
                # It may remove entries all the same, and nobody knows whose.
                return CallRecord(CALL, "", every=True, changes=True, verb=name)
            self.writer.miss()
            return None
        return note

    def invoke(self, note: CallRecord | None, *, task: bool = False) -> None:
        """The call is made now."""
        if note is None:
            return
        note.worker = self._worker(task=task)
        note.began = time.monotonic_ns()
        if note.op in REMOVERS or note.changes:
            self.writer.announce(note)

    def _worker(self, *, task: bool) -> str:
        current = asyncio.current_task() if task else None
        ident = get_ident() if current is None else id(current)
        return self.writer.worker(self.number, ident, "t" if current is None else "a")

    def failed_append(
        self, session: str, role: str, content: str, began: int, error: BaseException
    ) -> None:
        """An append of one text raised."""
        note = CallRecord("append", session, messages=((role, content),))
        note.verb, note.began = "add_message", began
        try:
            current = asyncio.current_task()
        except RuntimeError:
            current = None
        note.worker = self._worker(task=current is not None)
        self.fail(note, error)

    def complete(self, note: CallRecord | None, verb: MethodSpec, answer: Any) -> None:
        """The call came back."""
        if note is None:
            return
        note.ended = time.monotonic_ns()
        note.outcome = "ok"
        try:
            if verb.answers is not None and not note.changes:
                verb.answers(note, answer, self.writer.hasher)
            self.writer.put(note)
        except Exception:  # noqa: BLE001 -- an answer that nobody expected
            self.writer.miss()

    def fail(self, note: CallRecord | None, error: BaseException) -> None:
        """The call raised."""
        if note is None:
            return
        try:
            note.raised(error)
            self.writer.put(note)
        except Exception:  # noqa: BLE001 -- an error that nobody expected
            self.writer.miss()

    def leave(self) -> None:
        """The store was closed."""
        if not self._left:
            self._left = True
            self.writer.leave()


class RecordingProxy:
    """Stands before a store."""

    def __init__(
        self,
        store: Any,
        recorder: CallRecorder,
        verbs: MethodSpecs,
        *,
        session: str | None = None,
        read_only: Collection[str] = (),
    ) -> None:
        ours = self.__dict__
        ours[f"{_OURS}store"] = store
        ours[f"{_OURS}recorder"] = recorder
        ours[f"{_OURS}verbs"] = verbs
        # The one session that the object stands for, if it does.
        ours[f"{_OURS}session"] = session
        ours[f"{_OURS}read_only"] = frozenset(read_only)

    @property
    def __class__(self) -> type:
        """The store's: whoever asks what this is, is told what it stands before."""
        return type(self.__dict__[f"{_OURS}store"])

    @__class__.setter
    def __class__(self, _: type) -> None:
        raise TypeError("a recorded store stays what it is")

    def __getattr__(self, name: str) -> Any:
        ours = self.__dict__
        store, recorder = ours[f"{_OURS}store"], ours[f"{_OURS}recorder"]
        verb = ours[f"{_OURS}verbs"].get(name)
        if verb is not None and _is_property(store, name):
            return _looked_up(recorder, verb, store, name)
        found = getattr(store, name)
        if verb is not None:
            noted = _noted(recorder, verb, name, found)
            found = _quick(recorder, found, noted) if verb.quick else noted
        elif name in _ENDS:
            found = _ended(recorder, found)
        elif can_change(name, found, ours[f"{_OURS}read_only"]):
            verb = build_unknown_method(
                found, ours[f"{_OURS}session"], find_session_parameters(store)
            )
            found = _noted(recorder, verb, name, found)
        else:
            return found
        ours[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        ours = self.__dict__
        store = ours[f"{_OURS}store"]

        def assign() -> None:
            setattr(store, name, value)

        if name in ours[f"{_OURS}verbs"]:
            # What a read shows is replaced: `history.messages = []`.
            verb = build_unknown_method(assign, ours[f"{_OURS}session"], ())
            _noted(ours[f"{_OURS}recorder"], verb, f"set {name}", assign)()
        else:
            assign()

    def __repr__(self) -> str:
        return repr(self.__dict__[f"{_OURS}store"])

    def __str__(self) -> str:
        return str(self.__dict__[f"{_OURS}store"])

    def __enter__(self) -> Any:
        self.__dict__[f"{_OURS}store"].__enter__()
        return self

    def __exit__(self, *raised: object) -> Any:
        try:
            return self.__dict__[f"{_OURS}store"].__exit__(*raised)
        finally:
            self.__dict__[f"{_OURS}recorder"].leave()

    async def __aenter__(self) -> Any:
        await self.__dict__[f"{_OURS}store"].__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> Any:
        try:
            return await self.__dict__[f"{_OURS}store"].__aexit__(*raised)
        finally:
            self.__dict__[f"{_OURS}recorder"].leave()


def get_trace_writer(store: Any) -> TraceWriter | None:
    """Where a store is recorded; None if it is not."""
    found = getattr(store, "__dict__", {}).get(f"{_OURS}recorder")
    return found.writer if isinstance(found, CallRecorder) else None


def _is_property(store: Any, name: str) -> bool:
    """Whether a name is looked up and not called."""
    found = inspect.getattr_static(store, name, None)
    return not callable(found) and not isinstance(found, staticmethod | classmethod)


def _looked_up(recorder: CallRecorder, verb: MethodSpec, store: Any, name: str) -> Any:
    note = recorder.begin(verb, name, (), {})
    recorder.invoke(note)
    try:
        found = getattr(store, name)
    except BaseException as error:
        recorder.fail(note, error)
        raise
    recorder.complete(note, verb, found)
    return found


def _noted(
    recorder: CallRecorder, verb: MethodSpec, name: str, method: Callable[..., Any]
) -> Callable[..., Any]:
    """The method, with a note of each call."""
    if inspect.iscoroutinefunction(inspect.unwrap(method)):

        @functools.wraps(method)
        async def awaited(*arguments: Any, **options: Any) -> Any:
            if verb.batch is not None:
                arguments, options = _listed(verb.batch, arguments, options)
            note = recorder.begin(verb, name, arguments, options)
            return await _settled(recorder, verb, note, lambda: method(*arguments, **options))

        return awaited

    @functools.wraps(method)
    def called(*arguments: Any, **options: Any) -> Any:
        if verb.batch is not None:
            arguments, options = _listed(verb.batch, arguments, options)
        note = recorder.begin(verb, name, arguments, options)
        recorder.invoke(note)
        try:
            answer = method(*arguments, **options)
        except BaseException as error:
            recorder.fail(note, error)
            raise
        if hasattr(answer, "__await__"):
            return _settled(recorder, verb, note, lambda: answer)
        recorder.complete(note, verb, answer)
        return answer

    return called


def _quick(
    recorder: CallRecorder, method: Callable[..., Any], usual: Callable[..., Any]
) -> Callable[..., Any]:
    """`add_message` of indelible with nothing but a text: the call that must cost next to nothing.

    Whatever else it is given, or raises, goes the usual way.
    """
    put, number, now = recorder.writer.put, recorder.number, time.monotonic_ns
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def awaited(session_id: str, role: str, content: Any, **options: Any) -> Any:
            if options or type(content) is not str or type(role) is not str:
                return await usual(session_id, role, content, **options)
            began = now()
            try:
                answer = await method(session_id, role, content)
            except BaseException as error:
                recorder.failed_append(session_id, role, content, began, error)
                raise
            task, ended, at = id(asyncio.current_task()), now(), answer.positions.start
            put((number, task, "a", session_id, began, ended, role, content, at))
            return answer

        return awaited

    @functools.wraps(method)
    def called(session_id: str, role: str, content: Any, **options: Any) -> Any:
        if options or type(content) is not str or type(role) is not str:
            return usual(session_id, role, content, **options)
        began = now()
        try:
            answer = method(session_id, role, content)
        except BaseException as error:
            recorder.failed_append(session_id, role, content, began, error)
            raise
        ended, at = now(), answer.positions.start
        put((number, get_ident(), "t", session_id, began, ended, role, content, at))
        return answer

    return called


async def _settled(
    recorder: CallRecorder,
    verb: MethodSpec,
    note: CallRecord | None,
    call: Callable[[], Awaitable[Any]],
) -> Any:
    recorder.invoke(note, task=True)
    try:
        answer = await call()
    except BaseException as error:
        recorder.fail(note, error)
        raise
    recorder.complete(note, verb, answer)
    return answer


def _listed(batch: tuple[int, str], arguments: Any, options: Any) -> tuple[Any, Any]:
    """The same arguments, with a batch that can be looked at and then still be given."""
    place, name = batch
    if len(arguments) > place:
        given = arguments[place]
        if not isinstance(given, list | tuple):
            arguments = (*arguments[:place], list(given), *arguments[place + 1 :])
    elif name in options and not isinstance(options[name], list | tuple):
        options = {**options, name: list(options[name])}
    return arguments, options


def _ended(recorder: CallRecorder, method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(inspect.unwrap(method)):

        @functools.wraps(method)
        async def awaited(*arguments: Any, **options: Any) -> Any:
            try:
                return await method(*arguments, **options)
            finally:
                recorder.leave()

        return awaited

    @functools.wraps(method)
    def called(*arguments: Any, **options: Any) -> Any:
        try:
            return method(*arguments, **options)
        finally:
            recorder.leave()

    return called
