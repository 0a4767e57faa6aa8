"""What is shown while the kit runs: one line that changes at a terminal, else a line per case.

The first failure is proved at once.
"""

from __future__ import annotations

import sys
from typing import Self, TextIO

from memory_contract.contract_run import Item
from memory_contract.report.terminal import (
    STYLES,
    Line,
    StatusLine,
    print_lines,
    render_proof,
)
from memory_contract.report.text import counted, visible
from memory_contract.results import CaseResult, Report


class ProgressDisplay:
    """Given to `check` as its `progress`, inside a `with`.

    `target` and `keeps_last` are named in the command that repeats the first failure.
    """

    def __init__(
        self, *, stream: TextIO | None = None, target: str = "", keeps_last: int | None = None
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._report = Report(target=target, seed=0, gates=(), results=(), keeps_last=keeps_last)
        # The result whose proof was shown.
        self.proved: CaseResult | None = None
        self._status = StatusLine(self._stream)
        self._done = 0
        self._failed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.clear()

    def __call__(self, item: Item, result: CaseResult | None) -> None:
        """A case begins, or has ended with a result."""
        if result is None:
            failed = f", {self._failed} failed" if self._failed else ""
            self._status.show(f"{counted(self._done, 'case')} done{failed}: {item.id}")
            return
        self._done += 1
        self._failed += result.verdict == "FAIL"
        # At a terminal, the summary shows the others.
        if not self._status.is_shown or result.verdict in ("FAIL", "UNKNOWN"):
            self._status.clear()
            if result.verdict == "FAIL" and self.proved is None:
                self.proved = result
                lines = [*render_proof(self._report, result)]
            else:
                lines = [Line(format_result(result), STYLES[result.verdict], is_copied=True)]
            print_lines(lines, self._stream)
            self._stream.flush()


def format_result(result: CaseResult) -> str:
    """One result in one line; the summary proves all that failed."""
    line = f"{result.verdict:<11}  {result.id}  {result.duration_s:.2f} s"
    words = result.failures[0].name if result.failures else result.reason
    return f"{line}  {visible(words)}" if words else line
