"""How a command ends when it cannot do its work: a sentence or two, and an exit code."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from indelible.cli.phrases import counted, safe
from indelible.cli.suggestions import hint, without_secrets
from indelible.core.redaction import redact
from indelible.core.verbs import VERBS
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

WRONG_DATA = 1
WRONG_USAGE = 2
NO_ENGINE = 4

# Commands that are named differently from the verb that they call.
VERB_NAMES = {"append": "add_message", "rollback": "rollback_to_snapshot", "import": "import_"}


def report(error: MemoryStoreError, arguments: Sequence[str]) -> int:
    """Say what happened to the data and what to do next; gives the exit code."""
    sys.stderr.write(f"Error: {safe(redact(explained(error, arguments)))}\n")
    return exit_code(error)


def exit_code(error: MemoryStoreError) -> int:
    """2 for the caller's mistake, 4 for the engine's, 1 for what is wrong with the data."""
    if isinstance(error, (UsageError, UnsupportedError)):
        return WRONG_USAGE
    return NO_ENGINE if isinstance(error, MemoryStoreBackendError) else WRONG_DATA


def explained(error: MemoryStoreError, arguments: Sequence[str]) -> str:
    """The error's own words, and the next step in the words of the command line."""
    session = error.details.get("session")
    if isinstance(error, OutcomeUnknownError):
        return f"{_sentence(error)} {_retry(error, arguments)}"
    if isinstance(error, ConflictError) and error.details.get("reason") == "hidden":
        return (
            f"Was there already, at position {error.position}, and was hidden since: nothing was"
            f" written. A new --key adds it again; `{hint('show', _named(session))}` shows what"
            " hid it."
        )
    if isinstance(error, SnapshotNotFoundError):
        snapshot = error.details.get("snapshot")
        return (
            f"Session {session!r} has no snapshot {snapshot!r}: nothing was done."
            f" `{hint('snapshots', _named(session))}` lists those that it has."
        )
    if isinstance(error, CorruptEntryError):
        name, position = _named(session), error.details.get("position")
        reason = error.details.get("reason", "its bytes are wrong")
        return (
            f"Entry {position} of session {session!r} cannot be read: {reason}."
            f" Its bytes were left as they are: `{hint('show', name)}` shows the rest,"
            f" `{hint('repair', name)}` sets it aside."
        )
    return " ".join([_sentence(error), *_next_step(error)])


def _next_step(error: MemoryStoreError) -> list[str]:
    if isinstance(error, SessionNotFoundError):
        return [f"Nothing was done; `{hint('sessions')}` lists those that are there."]
    if isinstance(error, UsageError) and "nothing" not in error.message.lower():
        return ["Nothing was changed."]
    if error.details.get("imported") and "line" in error.details:
        return [f"{counted(error.imported, 'session')} before it came in, and stay."]
    steps: list[str] = []
    if error.details.get("copied"):
        copied = counted(error.copied, "session")
        steps += [f"{copied} came over before that, and stay: run it again to go on."]
    if isinstance(error, BusyError):
        steps += ["Try again, or wait longer with --busy-timeout SECONDS."]
    return steps


def _retry(error: OutcomeUnknownError, arguments: Sequence[str]) -> str:
    key = error.details.get("key")
    arguments = [without_secrets(each) for each in arguments]
    command, *rest = arguments
    verb = VERBS.get(VERB_NAMES.get(command, command))
    if key is None or verb is None or not verb.keyed:
        again = shlex.join(["indelible", *arguments])
        return f"See what is there with `{hint('sessions')}`, then run it again: {again}"
    if not any(each == "--key" or each.startswith("--key=") for each in rest):
        # First, since behind a -- an option would be taken for text.
        rest = ["--key", str(key), *rest]
    again = shlex.join(["indelible", command, *rest])
    if redact(again) != again:
        # What was typed holds a password, and is not repeated.
        return f"Its key is {key}. Run the same again with `--key {key}`: it lands exactly once."
    return f"Its key is {key}. This lands it exactly once: {again}"


def _named(session: object) -> str:
    return str(session) if session else "SESSION"


def _sentence(error: MemoryStoreError) -> str:
    """Messages begin small and end open, since they are often part of a longer line.

    One that begins with the name of a file, URL or target, or with what was typed, begins as that
    does.
    """
    message = error.message
    first = message.partition(" ")[0]
    typed = (error.details.get("file"), error.details.get("value"))
    named = first in typed or any(mark in first.rstrip(".:,;") for mark in "./\\:")
    text = message if named else message[:1].upper() + message[1:]
    return text if text.endswith((".", "!", "?")) else text + "."
