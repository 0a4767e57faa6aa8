"""Run every benchmark, print the ratios, and exit 1 if a target is missed."""

from __future__ import annotations

import platform
import sys
import tempfile
from itertools import chain
from pathlib import Path

import apsw
from rich.console import Console
from rich.table import Table

import indelible
from benchmarks import goldens, on_postgres, on_redis, store, traces, transfer


def main() -> int:
    """Measure, print, judge."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    table = Table(
        title=f"indelible {indelible.__version__} · SQLite {apsw.sqlite_lib_version()} · "
        f"Python {platform.python_version()} · medians, interleaved"
    )
    for heading in ("", "indelible", "beside", "figure", "target"):
        table.add_column(heading, justify="left" if not heading else "right")
    missed = 0
    with tempfile.TemporaryDirectory() as folder, console.status("measuring …") as status:
        for result in chain.from_iterable(
            room.all_results(Path(folder))
            for room in (store, transfer, on_redis, on_postgres, traces, goldens)
        ):
            status.update(f"measured: {result.name}")
            missed += not result.met
            table.add_row(
                result.name,
                result.subject,
                result.baseline,
                f"{result.figure:,.2f}{result.unit}",
                f"{result.bound} {result.target:,}{result.unit}"
                + ("" if result.met else "  MISSED"),
                style=None if result.met else "red",
            )
    console.print(table)
    return 1 if missed else 0


sys.exit(main())
