"""Nothing that changes data happens unasked."""

from __future__ import annotations

import sys

import typer

from indelible.cli.wording import safe
from indelible.errors import UsageError

# The same code as for a script that forgot --yes: the command was not let go on.
NOT_CONFIRMED = 2


def confirm(will_do: str, *, yes: bool) -> None:
    """Say what will be done and ask, or end here with nothing changed."""
    if yes:
        return
    sys.stderr.write(f"{safe(will_do)}\n")
    if not sys.stdin.isatty():
        raise UsageError(
            "nothing was changed, since there is no terminal to ask on: add --yes to confirm"
        )
    sys.stderr.write("Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.stderr.write("Nothing was changed.\n")
        raise typer.Exit(NOT_CONFIRMED)
