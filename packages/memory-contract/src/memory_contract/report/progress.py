"""What goes on while the kit runs: a bar for who watches, a line for each case for who reads."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from memory_contract.checking import Item
from memory_contract.report.terminal import STYLES
from memory_contract.report.wording import visible
from memory_contract.results import CaseResult


class Progress:
    """Given to `check` as its `progress`, inside a `with`. `total` is how many items will come."""

    def __init__(self, total: int | None = None, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._bar: Bar | None = None
        if self._stream.isatty():
            self._bar = _bar(self._stream)
            self._task = self._bar.add_task("", total=total, case="")
        self._failed = 0

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, item: Item, result: CaseResult | None) -> None:
        """An item begins, or has ended with a result."""
        if self._bar is None:
            if result is not None:
                print(line_of(result), file=self._stream, flush=True)
            return
        if result is None:
            self._bar.update(self._task, case=item.id)
            return
        self._failed += result.verdict == "FAIL"
        # What the summary will say is not said twice, but for what is worth stopping for.
        if result.verdict in ("FAIL", "UNKNOWN"):
            self._bar.console.print(Text(line_of(result), STYLES[result.verdict]))
        failed = f"{self._failed} failed" if self._failed else ""
        self._bar.update(self._task, advance=1, description=failed)


def _bar(stream: TextIO) -> Bar:
    return Bar(
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", style="bold red", markup=False),
        TextColumn("{task.fields[case]}", markup=False),
        console=Console(file=stream, highlight=False, emoji=False),
        transient=True,
    )


def line_of(result: CaseResult) -> str:
    """One result in one line."""
    line = f"{result.verdict:<11}  {result.id}  {result.duration_s:.2f} s"
    return f"{line}  {visible(result.reason)}" if result.reason else line
