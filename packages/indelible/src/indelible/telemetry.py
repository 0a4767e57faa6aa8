"""Spans and metrics of a store, by OpenTelemetry's conventions for memory operations of GenAI.

The verbs of a store that is opened with `telemetry=True` are wrapped, one by one, by the table of
verbs; a store without telemetry runs none of this code. No content is recorded, except ids and, if
it is asked for, the text of a search.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from opentelemetry import metrics, trace
from opentelemetry.context import attach, detach
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context

from indelible.core.observer import OBSERVER, Defaults
from indelible.core.plans.memories import build_collection_id
from indelible.core.verbs import VERBS, StoreVerb
from indelible.errors import ConflictError, MemoryStoreError, OutcomeUnknownError
from indelible.model import Receipt
from indelible.store import MemoryStore
from indelible.store_async import AsyncMemoryStore
from indelible.version import __version__

S = TypeVar("S", MemoryStore, AsyncMemoryStore)
T = TypeVar("T")

_STORE_ID: Final = "gen_ai.memory.store.id"
_RECORD_ID: Final = "gen_ai.memory.record.id"
_RECORD_COUNT: Final = "gen_ai.memory.record.count"
# The parameters of verbs that are recorded, and as what. A fork's store is the new session.
_IDS: Final[Mapping[str, tuple[str, ...]]] = {
    "session_id": ("gen_ai.conversation.id", _STORE_ID),
    "new_session_id": (_STORE_ID,),
    "collection": (_STORE_ID,),
    "id": (_RECORD_ID,),
}
# What the conventions call these verbs. Other verbs keep their own names.
_BY_NAME: Final = {
    "remember": "upsert_memory",
    "embed_missing": "update_memory",
    "refresh_ttl": "update_memory",
    "retract": "delete_memory",
    "erase_memory": "delete_memory",
    "fork": "create_memory_store",
    "import_": "create_memory_store",
    "forget": "delete_memory_store",
}
# Verbs take less than that of most operations: the conventions' bounds begin at 10 ms.
_SECONDS: Final = (1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60)
_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
# The variable by which instrumentations of GenAI are told to record contents.
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def get_operation_name(verb: StoreVerb) -> str:
    """Return what the conventions call a verb; its own name if they have none."""
    by_effect = "create_memory" if verb.appends else "search_memory" if verb.reads else verb.name
    return _BY_NAME.get(verb.name, by_effect)


class Instrumentor:
    """Switches telemetry on for the stores that a process opens from now on.

    The entry point of the group `opentelemetry_instrumentor`: `opentelemetry-instrument` calls it.
    """

    def instrument(self, **_: object) -> None:
        """Let `open` without `telemetry` mean `telemetry=True`."""
        Defaults.telemetry = True

    def uninstrument(self, **_: object) -> None:
        """Let `open` without `telemetry` mean `telemetry=False` again."""
        Defaults.telemetry = False


class Telemetry:
    """The tracer, the instruments and the common attributes of one store."""

    def __init__(self, server: tuple[str, int] | None, *, remote: bool) -> None:
        self._tracer = trace.get_tracer("indelible", __version__)
        self._kind = SpanKind.CLIENT if remote else SpanKind.INTERNAL
        self._captures = os.environ.get(_CAPTURE, "").lower() == "true"
        self._common: dict[str, str | int] = {}
        if server is not None:
            self._common = {"server.address": server[0], "server.port": server[1]}
        meter = metrics.get_meter("indelible", __version__)
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Duration of a verb",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._batch_size = meter.create_histogram(
            "indelible.batch.size",
            "{request}",
            "Requests that were sent together",
            explicit_bucket_boundaries_advisory=_COUNTS,
        )
        self._queue_depth = meter.create_histogram(
            "indelible.queue.depth",
            "{request}",
            "Requests that waited behind a batch, when there were any",
            explicit_bucket_boundaries_advisory=_COUNTS,
        )
        self._retries = meter.create_counter(
            "indelible.retries", "{attempt}", "Attempts after the first, of any operation"
        )
        self._conflicts = meter.create_counter(
            "indelible.conflicts", "{call}", "Calls that were refused with a ConflictError"
        )
        self._unknown = meter.create_counter(
            "indelible.outcomes_unknown", "{call}", "Calls that ended with an OutcomeUnknownError"
        )

    def instrument(self, store: S) -> S:
        """Wrap the verbs of a store."""
        wrap = self._wrap_async if isinstance(store, AsyncMemoryStore) else self._wrap
        for verb in VERBS.values():
            setattr(store, verb.name, wrap(verb, getattr(store, verb.name)))
        return store

    def count_retry(self) -> None:
        """Count one more attempt of an operation."""
        self._retries.add(1, self._common)

    def record_batch(self, requests: int, waiting: int) -> None:
        """Record how many requests a batch holds, and how many wait behind it."""
        self._batch_size.record(requests, self._common)
        if waiting:
            self._queue_depth.record(waiting, self._common)

    def record_call(
        self, seconds: float, error: BaseException | None, attributes: Mapping[str, str | int]
    ) -> None:
        """Record how long a call took, and how it ended."""
        self._duration.record(seconds, attributes)
        if isinstance(error, ConflictError):
            self._conflicts.add(1, attributes)
        elif isinstance(error, OutcomeUnknownError):
            self._unknown.add(1, attributes)

    def _wrap(self, verb: StoreVerb, method: Callable[..., Any]) -> Callable[..., Any]:
        build = self._prepare(verb, method)

        @functools.wraps(method)
        def call(*args: Any, **options: Any) -> Any:
            with build(args, options) as observed:
                return observed.note(method(*args, **options))

        return call

    def _wrap_async(self, verb: StoreVerb, method: Callable[..., Any]) -> Callable[..., Any]:
        build = self._prepare(verb, method)

        @functools.wraps(method)
        async def call(*args: Any, **options: Any) -> Any:
            with build(args, options) as observed:
                return observed.note(await method(*args, **options))

        return call

    def _prepare(self, verb: StoreVerb, method: Callable[..., Any]) -> _BuildCall:
        """Prepare what all calls of a verb share."""
        operation = get_operation_name(verb)
        measured = {**self._common, "gen_ai.operation.name": operation}
        described = {**measured, "indelible.verb": verb.name}
        parameters = list(inspect.signature(method).parameters)
        ids = {**_IDS, "query": ("gen_ai.memory.query.text",)} if self._captures else _IDS
        named = [(parameters.index(name), name, ids[name]) for name in ids if name in parameters]
        makes_id = verb.name == "remember"

        def build(args: tuple[Any, ...], options: dict[str, Any]) -> _ObservedCall:
            attributes = described.copy()
            for position, name, keys in named:
                value = args[position] if position < len(args) else options.get(name)
                if isinstance(value, tuple):
                    value = _format_collection(value)
                if isinstance(value, str):
                    attributes.update(dict.fromkeys(keys, value))
            span = self._tracer.start_span(operation, kind=self._kind, attributes=attributes)
            unnamed = makes_id and _RECORD_ID not in attributes
            return _ObservedCall(self, span, measured, unnamed=unnamed)

        return build


class _ObservedCall:
    """One call of a verb: its span, its duration and how it ended."""

    __slots__ = (
        "_began_s",
        "_context",
        "_measured",
        "_observer",
        "_span",
        "_telemetry",
        "_unnamed",
    )

    def __init__(
        self, telemetry: Telemetry, span: Span, measured: dict[str, Any], *, unnamed: bool
    ) -> None:
        self._telemetry = telemetry
        self._span = span
        self._measured = measured
        # Whether it is to store a memory without an id: the receipt's key is its id.
        self._unnamed = unnamed

    def __enter__(self) -> Self:
        self._observer = OBSERVER.set(self._telemetry)
        self._context = attach(set_span_in_context(self._span))
        self._began_s = time.perf_counter()
        return self

    def note(self, result: T) -> T:
        """Note which memory a call wrote, and how many entries it wrote or returned."""
        if isinstance(result, Receipt):
            self._span.set_attribute(_RECORD_COUNT, len(result.positions))
            if self._unnamed:
                self._span.set_attribute(_RECORD_ID, result.key)
        elif isinstance(result, list):
            self._span.set_attribute(_RECORD_COUNT, len(result))
        return result

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        seconds = time.perf_counter() - self._began_s
        measured = self._measured
        if kind is not None:
            # The message of an error may show what was written, so record only its type.
            measured = {**measured, "error.type": kind.__qualname__}
            self._span.set_attribute("error.type", kind.__qualname__)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()
        self._telemetry.record_call(seconds, error, measured)
        detach(self._context)
        OBSERVER.reset(self._observer)


_BuildCall = Callable[[tuple[Any, ...], dict[str, Any]], _ObservedCall]


def _format_collection(labels: tuple[Any, ...]) -> str | None:
    """Return the id of a collection; None for labels that the verb will refuse."""
    try:
        return build_collection_id(labels)
    except MemoryStoreError:
        return None
