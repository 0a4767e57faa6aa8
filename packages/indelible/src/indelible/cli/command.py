"""What commands share: the store that they work on, their output, and their common options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Concatenate, ParamSpec

import typer

import indelible
from indelible.cli import exit_codes, suggestions
from indelible.cli.location import Location
from indelible.cli.options import AsJson, BusyTimeout, Namespace, Timeout, Url
from indelible.cli.output import Output
from indelible.core.limits import BUSY_TIMEOUT_S, TIMEOUT_S
from indelible.core.rules import require_active
from indelible.errors import MemoryStoreError, UnsupportedError, UsageError

P = ParamSpec("P")


class CommandContext:
    """The store and the output of one command."""

    def __init__(self, place: Location, out: Output, *, creates: bool) -> None:
        self.place = place
        self.out = out
        self._creates = creates
        self._store: indelible.MemoryStore | None = None

    @property
    def store(self) -> indelible.MemoryStore:
        """The store, opened on first use, so that no file is created before input is checked."""
        if self._store is None:
            self._store = self.place.open(creates=self._creates)
        return self._store

    def close(self) -> None:
        """Close the store, if it was opened."""
        if self._store is not None:
            self._store.close()

    def require_session(self, session: str) -> None:
        """Raise `SessionNotFoundError` if a session is not active.

        To the store, an unknown id is a new session; on a command line it is a typing error.
        """
        require_active(session, self.store.session(session).status)


@contextmanager
def import_extra() -> Iterator[None]:
    """Import optional packages inside; if they are missing, say which extra to install."""
    try:
        yield
    except ImportError as error:
        raise UnsupportedError(str(error)) from error


def on_store(
    *examples: str, creates: bool = False
) -> Callable[[Callable[Concatenate[CommandContext, P], None]], Callable[..., None]]:
    """Decorate a command: pass it a `CommandContext`, and add the options that name the store.

    The examples are what one types after `indelible`. `creates` says that it may create a store.
    """

    def decorate(command: Callable[Concatenate[CommandContext, P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(
            *args: Any,
            context: typer.Context,
            url: str,
            namespace: str,
            busy_timeout: float,
            timeout: float,
            as_json: bool,
            **given: Any,
        ) -> None:
            argument = None
            try:
                # Some commands take the URL as an argument.
                if given.get("store_url") is not None:
                    url = given["store_url"]
                    argument = _refuse_second_url(context)
                suggestions.remember_store(context, url)
                place = Location(
                    url=url,
                    namespace=namespace,
                    busy_timeout_s=busy_timeout,
                    timeout_s=timeout,
                    argument=argument,
                )
                place.check(creates=creates)
                out = Output(as_json=as_json)
                with closing(CommandContext(place, out, creates=creates)) as call:
                    command(call, *args, **given)
            except MemoryStoreError as error:
                raise typer.Exit(exit_codes.report_error(error, context)) from error

        vars(run)["examples"] = examples
        return _add_shared_options(run, command)

    return decorate


def _refuse_second_url(context: typer.Context) -> str:
    """Return the name of the argument that names the store; raise if --url was given, too."""
    (argument,) = (each for each in context.command.params if each.name == "store_url")
    name = str(argument.metavar)
    source = context.get_parameter_source("url")
    if source is not None and source.name == "COMMANDLINE":
        raise UsageError(f"{name} and --url both name a store; give one of them")
    return name


def _declare_shared_options(
    context: typer.Context,
    *,
    url: Url = "",
    namespace: Namespace = "",
    busy_timeout: BusyTimeout = BUSY_TIMEOUT_S,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Declare the parameters that every command on a store has."""


def _add_shared_options(
    run: Callable[..., None], command: Callable[..., None]
) -> Callable[..., None]:
    """Give a command its own parameters and the shared ones, for typer to inspect."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    shared = inspect.signature(_declare_shared_options, eval_str=True).parameters.values()
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared)]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run
