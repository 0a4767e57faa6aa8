"""One call of a command: the open store, and where words and data go."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import closing
from typing import Any, Concatenate, ParamSpec

import typer

import indelible
from indelible.cli import suggestions
from indelible.cli.location import Location
from indelible.cli.options import AsJson, BusyTimeout, Namespace, Timeout, Url
from indelible.cli.output import Output
from indelible.core.limits import BUSY_TIMEOUT_S, TIMEOUT_S
from indelible.errors import SessionNotFoundError
from indelible.model import SessionInfo, Status

P = ParamSpec("P")

NAMED_STORE = "store_url"
# An option with which a command asks for something that is not about a store.
NO_STORE = "faults"


class CommandContext:
    """What every command works with."""

    def __init__(self, place: Location, out: Output, *, creates: bool) -> None:
        self.place = place
        self.out = out
        self._creates = creates
        self._store: indelible.MemoryStore | None = None

    @property
    def store(self) -> indelible.MemoryStore:
        """The store, opened when it is first used: no file is made before the input is checked."""
        if self._store is None:
            self._store = self.place.opened(creates=self._creates)
        return self._store

    def close(self) -> None:
        """Let go of the store, if it was opened."""
        if self._store is not None:
            self._store.close()

    def existing(self, session: str) -> SessionInfo:
        """A session that is there. On a command line an unknown id is a typing error, not a wish.

        The store itself would take it as the name of a new and empty session.
        """
        info = self.store.session(session)
        if info.status is not Status.ACTIVE:
            expired = ": it expired" if info.status is Status.EXPIRED else ""
            raise SessionNotFoundError(f"there is no session {session!r}{expired}", session=session)
        return info


def on_store(
    *, creates: bool = False
) -> Callable[[Callable[Concatenate[CommandContext, P], None]], Callable[..., None]]:
    """Give a command an open store, and the options that name it."""

    def offering(command: Callable[Concatenate[CommandContext, P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(
            *args: Any,
            context: typer.Context,
            url: str,
            namespace: str,
            busy_timeout: float,
            timeout: float,
            as_json: bool,
            **given: Any,
        ) -> None:
            # A command that is about the store itself takes its URL as an argument, too.
            url = given.pop(NAMED_STORE, None) or url
            suggestions.remember_store(context, url)
            place = Location(
                url=url, namespace=namespace, busy_timeout_s=busy_timeout, timeout_s=timeout
            )
            if not given.get(NO_STORE):
                place.check(creates=creates)
            with closing(CommandContext(place, Output(as_json=as_json), creates=creates)) as call:
                command(call, *args, **given)

        return _with_shared_options(called, command)

    return offering


def _shared(
    context: typer.Context,
    *,
    url: Url = "",
    namespace: Namespace = "",
    busy_timeout: BusyTimeout = BUSY_TIMEOUT_S,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Its parameters are added to those of every command that works on a store."""


def shared_names() -> frozenset[str]:
    """The names of the parameters that every command on a store has."""
    return frozenset(inspect.signature(_shared).parameters)


def _with_shared_options(
    called: Callable[..., None], command: Callable[..., None]
) -> Callable[..., None]:
    """Show the command's parameters and the shared ones to whoever inspects it: that is typer."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    shared = inspect.signature(_shared, eval_str=True).parameters.values()
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared)]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called
