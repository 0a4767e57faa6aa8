"""Nothing that changes data happens unasked."""

from __future__ import annotations

import sys

import typer

from indelible.cli.phrases import safe
from indelible.core.redaction import redact
from indelible.errors import UsageError

# The same code as for a script that forgot --yes: the command was not let go on.
NOT_CONFIRMED = 2
# What a shell gives for a command that Ctrl-C ended.
INTERRUPTED = 130


def confirm(will_do: str, *, yes: bool) -> None:
    """Say what will be done and ask, or end here with nothing changed."""
    if yes:
        return
    sys.stderr.write(f"{safe(redact(will_do))}\n")
    if not sys.stdin.isatty():
        raise UsageError(
            "nothing was changed, since there is no terminal to ask on: add --yes to confirm"
        )
    try:
        # Asked inside the try: a quick Ctrl-C comes before the reading has begun.
        sys.stderr.write("Go on? [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stderr.write("\nNothing was changed.\n")
        raise typer.Exit(INTERRUPTED) from None
    if answer.strip().lower() not in ("y", "yes"):
        # Ctrl-D ends the input without ending the line.
        newline = "" if answer.endswith("\n") else "\n"
        sys.stderr.write(f"{newline}Nothing was changed.\n")
        raise typer.Exit(NOT_CONFIRMED)
