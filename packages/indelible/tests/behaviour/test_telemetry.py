"""Spans and metrics, as the SDK of OpenTelemetry gets them."""

import logging
import subprocess
import sys
import threading
from importlib.metadata import entry_points

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import indelible
from indelible import ConflictError, OutcomeUnknownError
from indelible.core.deadline import Deadline
from indelible.core.verbs import VERBS
from indelible.testing.faults import MemoryFaults
from tests.support.stores import EMBEDDED, Blocking
from tests.support.verbs import every_verb

SECRET = "s3cret-of-the-test"
DURATION = "gen_ai.client.operation.duration"
OPERATION = "gen_ai.operation.name"
OPERATIONS = {
    "create_memory_store",
    "search_memory",
    "create_memory",
    "update_memory",
    "upsert_memory",
    "delete_memory",
    "delete_memory_store",
}


class Recorded:
    """What the SDK was given since the test began."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        trace.set_tracer_provider(tracers)
        self._reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([self._reader]))
        self._before = {}

    def clear(self):
        self._exporter.clear()
        self._before = self._read()

    @property
    def spans(self):
        return self._exporter.get_finished_spans()

    def count(self, metric, attribute="", value=None):
        """How often something was measured, with this value of an attribute."""
        wanted = {attribute: value} if attribute else {}
        return sum(
            count - self._before.get((name, point), 0)
            for (name, point), count in self._read().items()
            if name == metric and wanted.items() <= dict(point).items()
        )

    def _read(self):
        data = self._reader.get_metrics_data()
        return {
            (metric.name, tuple(sorted(point.attributes.items()))): getattr(point, "count", None)
            or getattr(point, "value", 0)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }


@pytest.fixture(scope="session")
def sdk():
    """The providers of a process can be set only once."""
    return Recorded()


@pytest.fixture
def recorded(sdk):
    sdk.clear()
    return sdk


@pytest.fixture
def store(make_store, recorded):
    return make_store(telemetry=True)


def inner(store):
    return store._store if isinstance(store, Blocking) else store


def test_every_verb_is_a_span(store, recorded):
    every_verb(store)
    spans = {span.attributes["indelible.verb"]: span for span in recorded.spans}
    assert set(spans) == set(VERBS)
    assert {span.name for span in spans.values()} >= OPERATIONS
    for span in spans.values():
        assert span.name == span.attributes["gen_ai.operation.name"]
        assert span.name in OPERATIONS or span.name == span.attributes["indelible.verb"]
        assert recorded.count(DURATION, OPERATION, span.name)


def test_a_span_names_its_session(store, recorded, stores):
    store.add_message("s", "user", "hi")
    store.get_history(session_id="s")
    added, read = recorded.spans
    assert (added.name, read.name) == ("create_memory", "search_memory")
    for span in (added, read):
        assert span.attributes["gen_ai.conversation.id"] == "s"
        assert span.attributes["gen_ai.memory.store.id"] == "s"
        assert span.attributes["gen_ai.memory.record.count"] == 1
    remote = stores.engine not in EMBEDDED
    assert added.kind is (SpanKind.CLIENT if remote else SpanKind.INTERNAL)
    assert ("server.port" in added.attributes) == remote
    if remote:
        assert added.attributes["server.address"] in stores.target
        assert str(added.attributes["server.port"]) in stores.target


def test_a_span_names_its_memory(store, recorded):
    store.remember(("users", "ann"), "drinks tea", id="drink")
    made = store.remember("notes", "drinks coffee")
    store.fork("notes", "copy")
    named, unnamed, forked = (span.attributes for span in recorded.spans)
    assert named["gen_ai.memory.store.id"] == "users/ann"
    assert named["gen_ai.memory.record.id"] == "drink"
    assert "gen_ai.conversation.id" not in named
    assert unnamed["gen_ai.memory.record.id"] == made.key
    assert forked["gen_ai.conversation.id"] == "notes"
    assert forked["gen_ai.memory.store.id"] == "copy"


def test_a_conflict_is_counted(store, recorded):
    store.add_message("s", "user", "hi")
    with pytest.raises(ConflictError):
        store.add_message("s", "user", "late", expected="1.1.0.0")
    *_, span = recorded.spans
    assert span.attributes["error.type"] == "ConflictError"
    assert span.status.status_code is StatusCode.ERROR
    assert recorded.count("indelible.conflicts", OPERATION, "create_memory") == 1
    assert recorded.count(DURATION, "error.type", "ConflictError") == 1


def test_an_unknown_outcome_is_counted(make_store, recorded):
    store = make_store(telemetry=True)
    faults = MemoryFaults()
    faults.watch(inner(store))
    faults.lose_next_reply("add_message")
    with pytest.raises(OutcomeUnknownError):
        store.add_message("s", "user", "hi")
    assert recorded.count("indelible.outcomes_unknown") == 1
    assert recorded.count("indelible.conflicts") == 0


def test_retries_of_a_call_are_counted(store, recorded):
    """Whatever waits for its next attempt asks its deadline how long."""
    perform = inner(store)._backend.perform

    def delayed(op):
        assert Deadline(60).next_wait_s() is not None
        return perform(op)

    inner(store)._backend.perform = delayed
    store.add_message("s", "user", "hi")
    assert recorded.count("indelible.retries") == 1
    # Outside of a call, nobody counts.
    assert Deadline(60).next_wait_s() is not None
    assert recorded.count("indelible.retries") == 1


def test_batches_are_measured(store, recorded, stores):
    threads = [
        threading.Thread(target=store.add_message, args=("s", "user", f"{n}")) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Memory has nothing to gain from batches.
    assert (recorded.count("indelible.batch.size") > 0) == (stores.engine != "memory")


def write_secrets(store):
    """Put a secret into every field but ids of sessions and memories, and fail in some ways."""
    secret = {SECRET: SECRET}
    store.add_message("s", SECRET, SECRET, name=SECRET, metadata=secret, key=SECRET)
    store.add_tool_call("s", SECRET, SECRET, secret, metadata=secret)
    store.add_tool_result("s", SECRET, SECRET, metadata=secret)
    store.add_summary("s", SECRET, [1.0], metadata=secret)
    store.remember("m", SECRET, id="m", value=SECRET, metadata=secret)
    store.save_snapshot("s", label=SECRET)
    store.rollback_to_snapshot("s", SECRET)
    store.set_metadata("s", secret)
    with pytest.raises(indelible.UsageError, match=SECRET):
        store.add_message("s", "user", {SECRET})
    with pytest.raises(indelible.SnapshotNotFoundError):
        store.rollback_to_snapshot("s", f"no {SECRET}")
    with pytest.raises(ConflictError):
        store.add_message("s", "user", SECRET, expected="1.1.0.0")


@pytest.mark.parametrize("captures", [False, True])
def test_nothing_that_was_written_is_recorded(make_store, recorded, captures, monkeypatch):
    if captures:
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    store = make_store(telemetry=True)
    write_secrets(store)
    store.search(f"{SECRET} text")
    told = [value for span in recorded.spans for value in span.attributes.values()]
    told += [event for span in recorded.spans for event in span.events]
    told += [span.status.description for span in recorded.spans]
    assert [value for value in told if SECRET in str(value)] == [f"{SECRET} text"] * captures


def test_a_store_without_telemetry_records_nothing(make_store, recorded):
    make_store().add_message("s", "user", "hi")
    assert recorded.spans == ()
    assert recorded.count(DURATION) == 0
    assert recorded.count("indelible.batch.size") == 0


def test_spans_have_the_callers_as_their_parent(store, recorded, stores):
    if stores.flavour == "async":
        pytest.skip("the test's own span is in another thread")
    with trace.get_tracer("test").start_as_current_span("turn") as turn:
        store.add_message("s", "user", "hi")
        assert trace.get_current_span() is turn
    added, _ = recorded.spans
    assert added.parent.span_id == turn.get_span_context().span_id


def test_opentelemetry_finds_the_instrumentor(make_store, recorded):
    (entry_point,) = entry_points(group="opentelemetry_instrumentor", name="indelible")
    instrumentor = entry_point.load()()
    # What a distribution of OpenTelemetry calls.
    instrumentor.instrument(skip_dep_check=True)
    try:
        make_store().add_message("s", "user", "hi")
        make_store(telemetry=False).add_message("s", "user", "hi")
    finally:
        instrumentor.uninstrument()
    make_store().add_message("s", "user", "hi")
    assert [span.name for span in recorded.spans] == ["create_memory"]


def test_without_its_package_telemetry_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "indelible.telemetry", None)
    with pytest.raises(indelible.UnsupportedError, match="opentelemetry-api"):
        indelible.open("memory:", telemetry=True)


def test_opentelemetry_is_not_imported_without_telemetry():
    source = (
        "import sys, indelible; indelible.open('memory:').add_message('s', 'user', 'hi');"
        " assert 'opentelemetry' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", source], check=True)


def test_the_log_holds_no_secret_and_no_content(make_store, caplog):
    def fail(text):
        raise RuntimeError(SECRET)

    with caplog.at_level(logging.DEBUG):
        store = make_store(embedder=fail)
        write_secrets(store)
        store.search(SECRET)
        faults = MemoryFaults()
        faults.watch(inner(store))
        faults.fail_next("add_message", OutcomeUnknownError(SECRET))
        with pytest.raises(OutcomeUnknownError):
            store.add_message("s", "user", SECRET)
    ours = [record for record in caplog.records if record.name.startswith("indelible.")]
    assert {record.name for record in ours} >= {"indelible.embedding", "indelible.operations"}
    assert SECRET not in "".join(str(vars(record)) for record in ours)


def test_the_log_is_quiet_by_default():
    source = (
        "import indelible\ndef embed(text): raise OSError\n"
        "store = indelible.open('memory:', embedder=embed)\n"
        "store.remember('m', 'tea'); store.search('tea')"
    )
    python = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True)
    assert python.stderr == b""
