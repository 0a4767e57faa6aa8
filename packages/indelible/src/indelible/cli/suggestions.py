"""Commands that messages suggest: they name the same store, with *** in place of a password."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextvars import ContextVar

import typer

from indelible.core.redaction import redact_url
from indelible.printable import escape_unseen

_STORE_OPTIONS = ("url", "namespace")

# The store options of this command line. Those from the environment need not be repeated.
_given: ContextVar[tuple[str, ...]] = ContextVar("_given", default=())


def remember_store(context: typer.Context, url: str) -> None:
    """Remember the options that named the store, for later suggestions."""
    named = {**context.params, "url": url}
    words: list[str] = []
    for name in _STORE_OPTIONS:
        source = context.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if given or named[name] != context.params[name]:
            words += [f"--{name}", redact_url(str(named[name]))]
    _given.set(tuple(words))


def remember_location(url: str, namespace: str) -> None:
    """Remember a store that an argument named, for later suggestions."""
    _given.set(("--url", redact_url(url), *(("--namespace", namespace) if namespace else ())))


def suggest_command(command: str, *arguments: str, options: Sequence[str] = ()) -> str:
    """Build a command on the same store, quoted for the shell."""
    if any(each.startswith("-") for each in arguments):
        # After a `--`, an id that looks like an option is an id.
        words = [command, *options, *_given.get(), "--", *arguments]
    else:
        words = [command, *arguments, *options, *_given.get()]
    # Quoting does not escape control characters.
    return escape_unseen(shlex.join(["indelible", *words]))
