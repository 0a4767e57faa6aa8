"""The command `indelible`, which needs the extra `cli`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from indelible.core.extras import format_install_command

NOT_INSTALLED = 2


def run() -> None:
    """Run the command line, or say what to install for it."""
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"Error: the command needs {' and '.join(missing)}, which the extra brings:"
            f" {format_install_command('cli')}\n"
        )
        sys.exit(NOT_INSTALLED)
    from indelible.cli.main import run as run_command  # noqa: PLC0415

    run_command()
