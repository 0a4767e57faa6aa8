"""The pager that long output goes to, as in git: $PAGER, or less."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

# Print what fits on one screen without waiting, keep colors, and leave it on the screen.
LESS = "FRX"
# Pagers that would do nothing.
_NONE = ("", "cat")


@contextmanager
def open_pager() -> Iterator[IO[str] | None]:
    """Start the pager and wait for its end; None if there is none, or stdout is no terminal.

    A pager that is left early ends what is done inside, without an error.
    """
    pager = _start() if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" else None
    if pager is None:
        yield None
        return
    assert pager.stdin is not None
    try:
        with suppress(BrokenPipeError):
            yield pager.stdin
    finally:
        with suppress(BrokenPipeError):
            pager.stdin.close()
        _wait(pager)


def _start() -> subprocess.Popen[str] | None:
    default = next((name for name in ("less", "more") if shutil.which(name)), "")
    command = os.environ.get("PAGER", default).strip()
    if command in _NONE:
        return None
    environment = {"LESS": LESS, **os.environ}
    try:
        return subprocess.Popen(  # noqa: S603 (what the user set)
            shlex.split(command),
            stdin=subprocess.PIPE,
            env=environment,
            encoding="utf-8",
            errors="backslashreplace",
        )
    except (OSError, ValueError):
        # It is not installed, or not a command: print without it.
        return None


def _wait(pager: subprocess.Popen[str]) -> None:
    """Wait for the pager's end. Ctrl-C is for the pager then, which goes on."""
    while pager.poll() is None:
        with suppress(KeyboardInterrupt):
            pager.wait()
