"""The command `indelible`, which needs the extra `cli`."""

from __future__ import annotations

import io
import os
import sys
from importlib.util import find_spec

from indelible.core.extras import format_install_command

# Exit codes. The last one is what shells report after Ctrl-C.
WRONG_DATA = 1
WRONG_USAGE = 2
NO_ENGINE = 4
INTERRUPTED = 130


def run() -> None:
    """Run the command line, or say what to install for it."""
    # A stream that the caller closed is None, and code that writes to one does not expect that.
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115, PTH123 (open until the end)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Where the locale has no UTF-8, other characters are escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"Error: the command needs {' and '.join(missing)}, which the extra installs:"
            f" {format_install_command('cli')}\n"
        )
        sys.exit(WRONG_USAGE)
    try:
        from indelible.cli.main import run as run_command  # noqa: PLC0415

        run_command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
