"""Commands that a message proposes: whoever pastes one must not touch another store."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextvars import ContextVar

import typer

from indelible.opening import shown

_STORE_OPTIONS = ("url", "namespace")

# What this command line said about its store. What the environment says needs no repeating.
_given: ContextVar[tuple[str, ...]] = ContextVar("_given", default=())


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
    if "://" in word and ("@" in word or "?" in word):
        return shown(word)
    return word


def hint(command: str, *arguments: str, options: Sequence[str] = ()) -> str:
    """A command to paste, quoted for the shell, on the same store as this one."""
    if any(each.startswith("-") for each in arguments):
        # Behind a -- an id that looks like an option is an id.
        words = [command, *options, *_given.get(), "--", *arguments]
    else:
        words = [command, *arguments, *options, *_given.get()]
    return shlex.join(["indelible", *words])
