"""What telemetry adds to an append, in processor time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

import indelible
from benchmarks.conversation import TEXT
from benchmarks.measure import Result, Work, compute_noise
from indelible.core.observer import OBSERVER

CALLS = 500
ROUNDS = 25


class DroppingExporter(SpanExporter):
    """Exports nothing: where spans go is not ours to measure."""

    def export(self, _: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop them."""
        return SpanExportResult.SUCCESS


def all_results(_: Path) -> Iterator[Result]:
    """Without and with the SDK of OpenTelemetry. In memory, where an append is quick."""
    with indelible.open("memory:") as plain, indelible.open("memory:", telemetry=True) as observed:

        def measure(name: str, at_most_us: float) -> Result:
            return _measure_difference(
                name,
                lambda: observed.add_message("s", "user", TEXT),
                lambda: plain.add_message("s", "user", TEXT),
                at_most_us=at_most_us,
            )

        yield measure("what telemetry adds to an append without an SDK: our own share", 6)
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(DroppingExporter()))
        trace.set_tracer_provider(tracers)
        metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
        yield measure("what telemetry adds to an append, in processor time", 30)
    yield _measure_difference(
        "what an append adds without telemetry: a look for an observer",
        lambda: OBSERVER.get(),  # noqa: PLW0108 (what is called is the work)
        lambda: None,
        at_most_us=3,
    )


def _measure_difference(name: str, subject: Work, baseline: Work, *, at_most_us: float) -> Result:
    mine, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(_measure_us(baseline))
        mine.append(_measure_us(subject))
    differences = [one - other for one, other in zip(mine, theirs, strict=True)]
    return Result(
        name=name,
        subject=f"{statistics.median(mine):.1f} µs",
        baseline=f"{statistics.median(theirs):.1f} µs",
        figure=statistics.median(differences),
        noise=compute_noise(differences),
        target=at_most_us,
        bound="at most",
        unit=" µs",
    )


def _measure_us(work: Work) -> float:
    began_s = time.thread_time()
    for _ in range(CALLS):
        work()
    return (time.thread_time() - began_s) / CALLS * 1e6
