"""Factories: what a callable takes, how it is called, and the one to write where that is unclear.

A factory takes a workspace folder, or a session id and a workspace folder; it may take a server as
well, with the URL of its own as the default. A class whose constructor takes one path is a factory.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from memory_contract.adapter import import_object
from memory_contract.errors import TargetError
from memory_contract.handles import dismiss
from memory_contract.targets.vocabulary import (
    SESSION_NAMES,
    IsAwaited,
    OpenedStore,
    Sessions,
    Vocabulary,
    close_all,
    close_all_blocking,
    run_blocking,
)

_FILE: Final = "store.db"
_STARS: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
Takes = Literal["session", "folder", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factory:
    """A callable by name, so that other processes can import it, and what it is called with."""

    name: str
    takes: tuple[Takes, ...] = ("folder",)
    # The parameter of a workspace that has no position.
    keyword: str = ""
    as_text: bool = False
    # The parameter that takes a server, and the server that the factory names as its default.
    server_parameter: str = ""
    server: str | None = field(default=None, repr=False)
    # Whether that server is passed even if no other one takes its place.
    passes_server: bool = False

    @property
    def is_told_workspace(self) -> bool:
        """Whether the store knows its workspace."""
        return bool({"folder", "file"} & set(self.takes))

    @property
    def is_told_nothing(self) -> bool:
        """Whether the store decides by itself where its data goes."""
        return not self.is_told_workspace and self.server is None

    def make(self, workspace: Path, *, session: str = "", server: str | None = None) -> Any:
        """Call it."""
        places: dict[Takes, Any] = {"folder": workspace, "file": workspace / _FILE}
        if self.as_text:
            places = {form: str(place) for form, place in places.items()}
        values = [{**places, "session": session}[each] for each in self.takes]
        options: dict[str, Any] = {self.keyword: values.pop()} if self.keyword else {}
        server = server or (self.server if self.passes_server else None)
        if server is not None:
            options[self.server_parameter] = server
        return import_object(self.name)(*values, **options)

    def variants(self) -> Iterator[Factory]:
        """The ways to pass one path: as a folder or a file, as a `Path` or text."""
        if self.takes != ("folder",):
            yield self
            return
        forms: tuple[Takes, ...] = ("folder", "file")
        for as_text, form in itertools.product((False, True), forms):
            if as_text >= self.as_text:
                yield replace(self, takes=(form,), as_text=as_text)


def bind(found: Callable[..., Any], name: str, *, server: str | None = None) -> Factory:
    """Decide what a callable is called with; a `TargetError` shows the factory to write instead.

    `server` is passed in place of the one that the callable names as its default.
    """
    try:
        every = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return Factory(name=name)
    parameters = [each for each in every if each.kind not in _STARS]
    taker = next((each for each in parameters if _is_server(each)), None)
    factory = Factory(name=name)
    if taker is not None:
        if taker.default is taker.empty and server is None:
            raise TargetError(
                f"{name} takes a server and names none: give `{taker.name}` a default, the URL of"
                " its own"
            )
        factory = replace(
            factory,
            server_parameter=taker.name,
            server=server or (str(taker.default) if taker.default else None),
            passes_server=server is not None,
        )
    parameters = [each for each in parameters if each is not taker]
    required = [each for each in parameters if each.default is each.empty]
    if not parameters:
        return replace(factory, takes=())
    if len(required) == 2 and required[0].name in SESSION_NAMES:
        return _take(factory, required, ("session", "folder"))
    place = required or [each for each in parameters if each.name == "workspace"] or parameters
    if len(place) != 1 or place[0].name in SESSION_NAMES or not _can_be_path(place[0]):
        raise TargetError(
            f"{name} takes {', '.join(each.name for each in place)}, and the kit does not know what"
            " to pass",
            hint=write_factory(found, name),
        )
    return _take(factory, place, ("folder",), beside=parameters[0] is not place[0])


def _take(
    factory: Factory,
    parameters: list[inspect.Parameter],
    takes: tuple[Takes, ...],
    *,
    beside: bool = False,
) -> Factory:
    last = parameters[-1]
    by_name = beside or last.kind is last.KEYWORD_ONLY
    return replace(
        factory,
        takes=takes,
        keyword=last.name if by_name else "",
        as_text=last.annotation in (str, "str"),
    )


def _is_server(parameter: inspect.Parameter) -> bool:
    default = parameter.default
    is_url = isinstance(default, str) and "://" in default
    return parameter.name == "server" or (is_url and not default.startswith(("sqlite", "file")))


def _can_be_path(parameter: inspect.Parameter) -> bool:
    """Whether a path can be passed: not to a number, a switch, or the URL of a file."""
    default, annotation = parameter.default, parameter.annotation
    if isinstance(default, str) and "://" in default:
        return False
    return not isinstance(default, int | float) and annotation not in (int, float, bool)


def write_factory(found: Callable[..., Any], name: str, *, per_session: bool | None = None) -> str:
    """The source of a factory to fill in; it takes a session if the callable does, or as said."""
    module, _, path = name.partition(":")
    if per_session is None:
        parameters = inspect.signature(found).parameters.values()
        required = (each.name for each in parameters if each.default is each.empty)
        per_session = not SESSION_NAMES.isdisjoint(required)
    takes = "session_id, workspace" if per_session else "workspace"
    told = "with its data in the folder `workspace`"
    if per_session:
        told = f"for this session, {told}"
    return (
        f"from {module} import {path.partition('.')[0]}\n\n\n"
        f"def make_store({takes}):\n"
        f"    return {path}(...)  # {told}\n"
    )


# Opening


@dataclass(frozen=True, slots=True)
class OpenStore:
    """Opens a store of a vocabulary; the adapter's `open` or `open_async`."""

    factory: Factory
    vocabulary: Vocabulary
    awaited: bool = False
    # Whether what the factory made is left open: it is shared, or holds all the data.
    keep: bool = False
    # Further arguments of the handle.
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The factory that other processes import."""
        return self.factory.name

    def __call__(self, workspace: Path, *, server: str | None = None) -> Any:
        """A handle, or an awaitable of it."""
        opening = self._open(workspace, server)
        return opening if self.awaited else run_blocking(opening)

    async def _open(self, workspace: Path, server: str | None) -> OpenedStore:
        close_made = close_all if self.awaited else close_all_blocking
        if self.vocabulary.per_session:
            sessions = Sessions(
                lambda session: self.factory.make(workspace, session=session, server=server),
                keep=self.keep,
            )
            handle = self.vocabulary.handle(sessions, awaited=self.awaited)
            return OpenedStore(handle, lambda: close_made(sessions.take_all()))
        made = self.factory.make(workspace, server=server)
        store, leave = await enter(made, self.vocabulary.is_spoken_by, awaited=self.awaited)
        if not self.vocabulary.is_spoken_by(store):
            raise TargetError(
                f"the factory {self.factory.name} gave {type(store).__name__}: expected"
                f" {self.vocabulary.described}, or a context manager that gives one"
            )
        handle = self.vocabulary.handle(store, awaited=self.awaited, **self.options)
        # Without a workspace, a server is shared by all cases.
        is_shared = self.factory.server is not None and not self.factory.is_told_workspace
        return OpenedStore(
            handle,
            leave or partial(close_made, [] if self.keep else [store]),
            prefix=f"{workspace.name}/" if is_shared else "",
        )


async def enter(
    found: Any, is_store: Callable[[Any], bool], *, awaited: bool = True
) -> tuple[Any, Callable[[], Any] | None]:
    """Await what a factory returned and enter its context; the store, and how to leave it."""

    async def settle(answer: Any) -> Any:
        if not inspect.isawaitable(answer):
            return answer
        if not awaited:
            dismiss(answer)
            raise IsAwaited("it is opened by awaiting")
        return await answer

    if not is_store(found):
        found = await settle(found)
    for enter_name, leave_name in (("__aenter__", "__aexit__"), ("__enter__", "__exit__")):
        if hasattr(found, enter_name) and not is_store(found):
            store = await settle(getattr(found, enter_name)())
            return store, partial(getattr(found, leave_name), None, None, None)
    return found, None
