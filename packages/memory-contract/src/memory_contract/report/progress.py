"""What is shown while the kit runs: a bar at a terminal, else a line per case."""

from __future__ import annotations

import sys
from typing import Any, Self, TextIO

from memory_contract.contract_run import Item
from memory_contract.report.terminal import STYLES, Line, print_lines
from memory_contract.report.text import visible
from memory_contract.results import CaseResult


class ProgressDisplay:
    """Given to `check` as its `progress`, inside a `with`."""

    def __init__(self, *, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._bar, self._task = _open_bar(self._stream)
        self._failed = 0

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, item: Item, result: CaseResult | None) -> None:
        """A case begins, or has ended with a result."""
        if result is None:
            if self._bar is not None:
                self._bar.update(self._task, case=item.id)
            return
        self._failed += result.verdict == "FAIL"
        # A bar leaves to the summary all but what is worth stopping for.
        if self._bar is None or result.verdict in ("FAIL", "UNKNOWN"):
            self._print(Line(format_result(result), STYLES[result.verdict], is_copied=True))
        if self._bar is not None:
            failed = f"{self._failed} failed" if self._failed else ""
            self._bar.update(self._task, advance=1, description=failed)

    def _print(self, line: Line) -> None:
        if self._bar is None:
            print_lines([line], self._stream)
            self._stream.flush()
        else:
            self._bar.console.print(line.text, style=line.style, soft_wrap=True)


def _open_bar(stream: TextIO) -> tuple[Any, Any]:
    """A progress bar of rich, if there is a terminal and rich is installed."""
    if not stream.isatty():
        return None, None
    try:
        from rich.console import Console  # noqa: PLC0415 -- an extra
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )
    except ImportError:
        return None, None
    bar = Progress(
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", style="bold red", markup=False),
        TextColumn("{task.fields[case]}", markup=False),
        console=Console(file=stream, highlight=False, markup=False, emoji=False),
        transient=True,
    )
    return bar, bar.add_task("", total=None, case="")


def format_result(result: CaseResult) -> str:
    """One result in one line."""
    line = f"{result.verdict:<11}  {result.id}  {result.duration_s:.2f} s"
    return f"{line}  {visible(result.reason)}" if result.reason else line
