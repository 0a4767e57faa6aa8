"""The command `memory-contract`."""

from __future__ import annotations

import signal
import sys
from typing import Final

INTERRUPTED: Final = 128 + signal.SIGINT


def run() -> None:
    """Run the command line. A Ctrl-C, also while it is imported, ends it without a traceback."""
    try:
        from memory_contract.cli.main import run as run_command  # noqa: PLC0415

        run_command()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(INTERRUPTED)
