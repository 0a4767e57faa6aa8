"""Commands that messages suggest: they name the same store, and contain no password."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextvars import ContextVar

import typer

from indelible.core.redaction import HIDDEN, drop_password, has_password, is_keyword_dsn
from indelible.printable import escape_unseen

# Text that is a URL, not text that contains one.
_URL = re.compile(r"[a-z][a-z0-9+.-]*://")
_STORE_OPTIONS = ("url", "namespace")

# The store options of this command line. Those from the environment need not be repeated.
_given: ContextVar[tuple[str, ...]] = ContextVar("_given", default=())

FROM_ENVIRONMENT = "The password is left out of that command: put it into PGPASSWORD."
FILL_IN = f"The password is left out of that command: write it in place of {HIDDEN}."
# The note about a password that was removed, and the same note once a command was suggested.
_left_out: ContextVar[str] = ContextVar("_left_out", default="")
_told: ContextVar[str] = ContextVar("_told", default="")


def remember_store(context: typer.Context, url: str) -> None:
    """Remember the options that named the store, for later suggestions."""
    named = {**context.params, "url": url}
    words: list[str] = []
    for name in _STORE_OPTIONS:
        source = context.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if given or named[name] != context.params[name]:
            words += [f"--{name}", remove_secrets(str(named[name]))]
    _given.set(tuple(words))


def remember_location(url: str, namespace: str) -> None:
    """Remember a store that an argument named, for later suggestions."""
    _given.set(("--url", remove_secrets(url), *(("--namespace", namespace) if namespace else ())))


def remove_secrets(word: str) -> str:
    """Remove the password from a word of a command line."""
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    named = _URL.match(value) is not None or is_keyword_dsn(value)
    if not named or not has_password(value):
        return word
    bare = drop_password(value)
    _left_out.set(FROM_ENVIRONMENT if HIDDEN not in bare else FILL_IN)
    return option + equals + bare


def suggest_command(command: str, *arguments: str, options: Sequence[str] = ()) -> str:
    """Build a command on the same store, quoted for the shell."""
    _told.set(_left_out.get())
    if any(each.startswith("-") for each in arguments):
        # After a `--`, an id that looks like an option is an id.
        words = [command, *options, *_given.get(), "--", *arguments]
    else:
        words = [command, *arguments, *options, *_given.get()]
    # Quoting does not escape control characters.
    return escape_unseen(shlex.join(["indelible", *words]))


def get_password_note() -> str:
    """Return how to pass the password to the suggested command; empty if none was removed."""
    return _told.get()
