"""The command `indelible`, which needs the extra `cli`."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from indelible.core.extras import format_install_command

NOT_INSTALLED = 2
# The exit code that shells report after Ctrl-C.
INTERRUPTED = 130


def run() -> None:
    """Run the command line, or say what to install for it."""
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"Error: the command needs {' and '.join(missing)}, which the extra brings:"
            f" {format_install_command('cli')}\n"
        )
        sys.exit(NOT_INSTALLED)
    # A stream that the caller closed is None, and code that writes to one does not expect that.
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115, PTH123 (open until the end)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    try:
        from indelible.cli.main import run as run_command  # noqa: PLC0415

        run_command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
