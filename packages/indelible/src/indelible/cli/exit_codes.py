"""Reports an error: what happened to the data, what to do next, and the exit code."""

from __future__ import annotations

import shlex
import sys

import typer

from indelible.cli import NO_ENGINE, WRONG_DATA, WRONG_USAGE
from indelible.cli.phrases import format_count
from indelible.cli.suggestions import suggest_command
from indelible.core.redaction import has_password, redact, redact_url
from indelible.errors import (
    BusyError,
    ConflictError,
    CorruptEntryError,
    MemoryStoreBackendError,
    MemoryStoreError,
    OutcomeUnknownError,
    SessionNotFoundError,
    SnapshotNotFoundError,
    UnsupportedError,
    UsageError,
)
from indelible.printable import escape_unseen_in_lines


def report_error(error: MemoryStoreError, context: typer.Context) -> int:
    """Print what happened to the data and what to do next; return the exit code of a command.

    That is 2 for wrong usage, 4 for an engine that failed, and 1 for a problem with the data.
    """
    text = _explain(error, context)
    sys.stderr.write(f"Error: {escape_unseen_in_lines(redact(text))}\n")
    if isinstance(error, (UsageError, UnsupportedError)):
        return WRONG_USAGE
    return NO_ENGINE if isinstance(error, MemoryStoreBackendError) else WRONG_DATA


def _explain(error: MemoryStoreError, context: typer.Context) -> str:
    """Return the error's message with the next step, as a command to run."""
    session = error.details.get("session")
    name = str(session) if session else "SESSION"
    if isinstance(error, OutcomeUnknownError):
        return f"{_to_sentence(error)} {_suggest_retry(error, context)}"
    if isinstance(error, ConflictError) and error.details.get("reason") == "hidden":
        return (
            f"Was there already, at position {error.position}, and was hidden since: nothing was"
            f" written. A new --key adds it again; `{suggest_command('show', name)}` shows what"
            " hid it."
        )
    if isinstance(error, SnapshotNotFoundError):
        snapshot = error.details.get("snapshot")
        return (
            f"Session {session!r} has no snapshot {snapshot!r}: nothing was done."
            f" `{suggest_command('snapshots', name)}` lists those that it has."
        )
    if isinstance(error, CorruptEntryError):
        position = error.details.get("position")
        reason = error.details.get("reason", "its bytes are wrong")
        return (
            f"Entry {position} of session {session!r} cannot be read: {reason}."
            f" Its bytes were left as they are: `{suggest_command('show', name)}` shows the rest,"
            f" `{suggest_command('repair', name)}` sets it aside."
        )
    return " ".join([_to_sentence(error), *_suggest_next_step(error)])


def _suggest_next_step(error: MemoryStoreError) -> list[str]:
    if isinstance(error, SessionNotFoundError):
        return [f"Nothing was done; `{suggest_command('sessions')}` lists those that are there."]
    if isinstance(error, UsageError) and "nothing" not in error.message.lower():
        return ["Nothing was changed."]
    if error.details.get("imported") and "line" in error.details:
        return [f"{format_count(error.imported, 'session')} before it were imported, and stay."]
    steps: list[str] = []
    if error.details.get("copied"):
        copied = format_count(error.copied, "session")
        steps += [f"{copied} were copied before that, and stay: run it again to continue."]
    if isinstance(error, BusyError):
        steps += ["Try again, or wait longer with --busy-timeout SECONDS."]
    return steps


def _suggest_retry(error: OutcomeUnknownError, context: typer.Context) -> str:
    command = str(context.info_name)
    # Only `--` may be typed before the command.
    rest = sys.argv[sys.argv.index(command, 1) + 1 :]
    key = error.details.get("key")
    takes_key = any("--key" in each.opts for each in context.command.params)
    if key is None or not takes_key:
        again = shlex.join(["indelible", command, *map(redact_url, rest)])
        return f"See what is there with `{suggest_command('sessions')}`, then run it again: {again}"
    if not any(each == "--key" or each.startswith("--key=") for each in rest):
        # Inserted first: after a `--` it would be taken for text.
        rest = ["--key", str(key), *rest]
    again = shlex.join(["indelible", command, *rest])
    if redact(again) != again or any(map(has_password, rest)):
        # Do not repeat a command line that contains a password.
        return f"Its key is {key}. Run the same again with `--key {key}`: it lands exactly once."
    return f"Its key is {key}. This lands it exactly once: {again}"


def _to_sentence(error: MemoryStoreError) -> str:
    """Turn a message into a sentence: library messages start in lower case and have no full stop.

    A message that starts with a file name, a URL or the user's input keeps its first letter.
    """
    message = error.message
    first = message.partition(" ")[0]
    typed = (error.details.get("file"), error.details.get("value"))
    named = first in typed or any(mark in first.rstrip(".:,;") for mark in "./\\:[")
    text = message if named else message[:1].upper() + message[1:]
    return text if text.endswith((".", "!", "?")) else text + "."
