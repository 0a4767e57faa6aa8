"""Being told to end: what was started is ended first."""

from __future__ import annotations

import signal
import sys
from types import FrameType

# As a shell reports it.
TERMINATED = 128 + signal.SIGTERM


def end_in_order_when_told() -> None:
    """Let SIGTERM unwind as Ctrl-C does, so that servers and workers are ended on the way out."""

    def end(number: int, _frame: FrameType | None) -> None:
        # Once: a second one must not interrupt the ending.
        signal.signal(number, signal.SIG_IGN)
        sys.exit(TERMINATED)

    signal.signal(signal.SIGTERM, end)
