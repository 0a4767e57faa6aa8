"""Confirmation before a command changes data."""

from __future__ import annotations

import sys

import typer

from indelible.cli.phrases import escape_text
from indelible.core.redaction import redact
from indelible.errors import UsageError

# The same code as without a terminal and --yes.
NOT_CONFIRMED = 2
# The exit code that shells report after Ctrl-C.
INTERRUPTED = 130


def confirm(will_do: str, *, yes: bool) -> None:
    """Ask before a change; end the command if the answer is not yes."""
    if yes:
        return
    sys.stderr.write(f"{escape_text(redact(will_do))}\n")
    if not sys.stdin.isatty():
        raise UsageError(
            "nothing was changed, since there is no terminal to ask on: add --yes to confirm"
        )
    try:
        # Inside the try, since Ctrl-C may come before the read begins.
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
