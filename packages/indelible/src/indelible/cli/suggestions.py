"""Commands that a message proposes: whoever pastes one must not touch another store."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextvars import ContextVar

import typer

from indelible.core.redaction import HIDDEN, drop_password, has_password, is_keyword_dsn
from indelible.printable import escape_unseen

# A whole URL, and not a text in which there is one.
_URL = re.compile(r"[a-z][a-z0-9+.-]*://")
_STORE_OPTIONS = ("url", "namespace")

# What this command line said about its store. What the environment says needs no repeating.
_given: ContextVar[tuple[str, ...]] = ContextVar("_given", default=())

FROM_ENVIRONMENT = "The password is left out of that command: put it into PGPASSWORD."
FILL_IN = f"The password is left out of that command: write it in place of {HIDDEN}."
# How a password comes back into a proposed command, if one was left out; and of one that was said.
_left_out: ContextVar[str] = ContextVar("_left_out", default="")
_told: ContextVar[str] = ContextVar("_told", default="")


def remember_store(context: typer.Context, url: str) -> None:
    """Keep the options that named the store, for every hint that follows."""
    named = {**context.params, "url": url}
    words: list[str] = []
    for name in _STORE_OPTIONS:
        source = context.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if given or named[name] != context.params[name]:
            words += [f"--{name}", without_secrets(str(named[name]))]
    _given.set(tuple(words))


def remember_place(url: str, namespace: str) -> None:
    """Keep a store that was named by an argument, for every hint that follows."""
    _given.set(("--url", without_secrets(url), *(("--namespace", namespace) if namespace else ())))


def without_secrets(word: str) -> str:
    """A word of a command line that may be printed: a URL without its password."""
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    named = _URL.match(value) is not None or is_keyword_dsn(value)
    if not named or not has_password(value):
        return word
    bare = drop_password(value)
    _left_out.set(FROM_ENVIRONMENT if HIDDEN not in bare else FILL_IN)
    return option + equals + bare


def hint(command: str, *arguments: str, options: Sequence[str] = ()) -> str:
    """A command to paste, quoted for the shell, on the same store as this one."""
    _told.set(_left_out.get())
    if any(each.startswith("-") for each in arguments):
        # Behind a -- an id that looks like an option is an id.
        words = [command, *options, *_given.get(), "--", *arguments]
    else:
        words = [command, *arguments, *options, *_given.get()]
    # Behind quotes, too, an id must not act on the terminal.
    return escape_unseen(shlex.join(["indelible", *words]))


def password_note() -> str:
    """How a command that was proposed gets its password; nothing if none was left out."""
    return _told.get()
