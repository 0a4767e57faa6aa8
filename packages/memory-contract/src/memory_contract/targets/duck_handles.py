"""Handles on stores of two small interfaces: what the kit asks, in the words of their classes."""

from __future__ import annotations

import contextlib
import inspect
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from memory_contract.adapter import Capability, Message, Refused, imported
from memory_contract.calls import format_error
from memory_contract.handles import Loop
from memory_contract.targets.duck_messages import (
    chat_message,
    messages_of_list,
    messages_of_turns,
    popped_message,
    session_name,
)
from memory_contract.targets.placing import Placing

# What the kit calls it, and the names under which classes may offer it.
OFFERED: Final[dict[Capability, tuple[str, ...]]] = {
    "pop": ("pop", "pop_message", "pop_item"),
    "trim": ("trim", "trim_history"),
    "clear": ("clear", "clear_session", "clear_history", "delete_session"),
    "snapshot": ("save_snapshot",),
    "rollback": ("rollback_to_snapshot",),
    "fork": ("fork",),
    "list": ("list_sessions", "sessions"),
}
# Of a second parameter called so, a trim keeps that many messages and a pop takes that many.
# Another may mean anything.
KEPT: Final = frozenset(
    {"keep", "keep_last", "n", "last", "limit", "max_messages", "max_len", "size", "count"}
)


class IsAwaited(TypeError):  # noqa: N818 -- names what happened
    """A store that is called blocking gave something to await."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A method that offers a capability, and the parameter that it takes beside the session."""

    method: str
    parameter: str = ""


def offers_of(store: Any, what: Capability) -> list[Offer]:
    """The methods of an instance that can be called for a capability."""
    found = []
    for name in OFFERED[what]:
        try:
            # A property is not run to see what it is.
            static = inspect.getattr_static(type(store), name)
            method = getattr(store, name) if not isinstance(static, property) else None
        except AttributeError:
            continue
        if callable(method) and not isinstance(method, type):
            found += _offered(what, name, method)
    return found


def _offered(what: Capability, name: str, method: Callable[..., Any]) -> list[Offer]:
    """The offer that a method makes, if it takes what the kit passes."""
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return []
    parameters = list(signature.parameters.values())
    if what != "list" and any(map(_is_switch, parameters[:1])):
        return []
    others = parameters[1:]
    counted = next((p.name for p in others if p.name in KEPT), "")
    # How many to keep or to take, or how the snapshot is to be called, if it must be said.
    named = {"trim": counted, "pop": counted, "snapshot": others[0].name if others else ""}
    passed = {"list": (), "rollback": ("", ""), "fork": ("", "")}.get(what, ("",))
    if what != "trim" and _binds(signature, *passed):
        return [Offer(name)]
    beside = named.get(what, "")
    return [Offer(name, beside)] if beside and _binds(signature, "", **{beside: 1}) else []


def _binds(signature: inspect.Signature, *arguments: Any, **options: Any) -> bool:
    try:
        signature.bind(*arguments, **options)
    except TypeError:
        return False
    return True


def _is_switch(parameter: inspect.Parameter) -> bool:
    """Whether a first parameter is surely no session: a number or a switch."""
    return isinstance(parameter.default, int | float) or parameter.annotation in (bool, "bool")


@dataclass(frozen=True, slots=True)
class OpenDuck:
    """Makes an instance, by name, so that other processes can."""

    name: str
    pairs: bool
    placing: Placing
    awaited: bool = False
    offers: dict[str, Offer] = field(default_factory=dict)

    def __call__(self, workspace: Path) -> DuckHandle:
        """A handle on a new instance."""
        store = self.placing.make(imported(self.name), workspace)
        kind = TurnsHandle if self.pairs else ListHandle
        return kind(store, awaited=self.awaited, offers=self.offers)


def _itself(answer: Any) -> Any:
    return answer


def _nothing(_: Any) -> None:
    return None


class DuckHandle:
    """What both interfaces share: methods by the names that the kit knows."""

    def __init__(self, store: Any, *, awaited: bool, offers: dict[str, Offer]) -> None:
        self.store = store
        self._awaited = awaited
        self._offers = offers
        # Whether any answer was to be awaited.
        self.gave_way = False
        # What was last handed in or out, itself: whoever keeps it shares memory with the caller.
        self.exchanged: Any = None

    def _passed_on(self, answer: Any) -> Any:
        self.exchanged = answer
        return answer

    def _call(
        self,
        method: Callable[[], Any],
        convert: Callable[[Any], Any] = _nothing,
        unknown: Callable[[LookupError], Any] | None = None,
    ) -> Any:
        """Call the store; awaited, on the loop that runs. `unknown` says what a KeyError means."""
        if self._awaited:
            return self._called_awaiting(method, convert, unknown)
        try:
            answer = method()
            if _is_awaited(answer):
                _let_go(answer)
                raise IsAwaited("what it returns is to be awaited")
            return convert(answer)
        except LookupError as error:
            if unknown is None:
                raise
            return unknown(error)

    async def _called_awaiting(
        self,
        method: Callable[[], Any],
        convert: Callable[[Any], Any],
        unknown: Callable[[LookupError], Any] | None,
    ) -> Any:
        try:
            answer = method()
            self.gave_way = self.gave_way or _is_awaited(answer)
            if inspect.isawaitable(answer):
                answer = await answer
            if hasattr(answer, "__aiter__"):
                answer = [item async for item in answer]
            return convert(answer)
        except LookupError as error:
            if unknown is None:
                raise
            return unknown(error)

    def _offer(self, what: str) -> tuple[Any, str]:
        """The method that offers a capability, and its parameter beside the session."""
        if what not in self._offers:
            raise NotImplementedError(f"it does not offer {what}")
        offer = self._offers[what]
        return getattr(self.store, offer.method), offer.parameter

    def pop(self, session: str) -> Any:
        """Take the newest away."""
        method, parameter = self._offer("pop")
        options = {parameter: 1} if parameter else {}
        # As a list's own `pop` does, many raise where there is nothing to take.
        return self._call(lambda: method(session, **options), popped_message, _nothing)

    def trim(self, session: str, keep: int) -> Any:
        """Keep the newest."""
        method, parameter = self._offer("trim")
        return self._call(lambda: method(session, **{parameter: keep}), unknown=_refuse)

    def clear(self, session: str) -> Any:
        """Show nothing."""
        method, _ = self._offer("clear")
        return self._call(lambda: method(session), unknown=_refuse)

    def snapshot(self, session: str) -> Any:
        """The id of a new snapshot."""
        method, parameter = self._offer("snapshot")
        if not parameter:
            return self._call(lambda: method(session), lambda answer: getattr(answer, "id", answer))
        name = uuid.uuid4().hex
        return self._call(lambda: method(session, **{parameter: name}), lambda _: name)

    def rollback(self, session: str, snapshot: Any) -> Any:
        """Show what it showed."""
        method, _ = self._offer("rollback")
        return self._call(lambda: method(session, snapshot))

    def fork(self, session: str, target: str) -> Any:
        """Copy into a new session."""
        method, _ = self._offer("fork")
        return self._call(lambda: method(session, target))

    def sessions(self) -> Any:
        """The sessions that there are."""
        method, _ = self._offer("list")
        return self._call(method, lambda listed: [session_name(item) for item in listed])

    def close(self) -> Any:
        """Close it, if it can be."""
        for name in ("aclose", "close") if self._awaited else ("close",):
            if callable(method := getattr(self.store, name, None)):
                return self._call(method, _itself) if self._awaited else _closed(method())
        return None


class ListHandle(DuckHandle):
    """A store of messages."""

    def append(self, session: str, messages: list[Message]) -> Any:
        """Add messages."""
        batch = [chat_message(message) for message in messages]
        return self._call(lambda: self.store.add_messages(session, self._passed_on(batch)))

    def read(self, session: str) -> Any:
        """The messages."""
        return self._call(
            lambda: self.store.get_history(session),
            lambda found: messages_of_list(self._passed_on(found)),
        )


class TurnsHandle(DuckHandle):
    """A store of turns: what the user said and what was answered."""

    def append(self, session: str, messages: list[Message]) -> Any:
        """Add turns, one call each."""
        save = self._method("save_context")
        calls = [
            partial(save, session, user["content"], assistant["content"])
            for user, assistant in zip(messages[::2], messages[1::2], strict=True)
        ]
        if self._awaited:
            return self._each_awaited(calls)
        for call in calls:
            self._call(call)
        return None

    async def _each_awaited(self, calls: Sequence[Callable[[], Any]]) -> None:
        for call in calls:
            await self._call(call)

    def read(self, session: str) -> Any:
        """The turns, as messages."""
        load = self._method("load_memory")
        return self._call(
            lambda: load(session), lambda found: messages_of_turns(self._passed_on(found))
        )

    def _method(self, name: str) -> Any:
        awaited = getattr(self.store, f"a{name}", None) if self._awaited else None
        return awaited or getattr(self.store, name)


def _is_awaited(answer: Any) -> bool:
    return inspect.isawaitable(answer) or inspect.isasyncgen(answer)


def _let_go(answer: Any) -> None:
    """Await it never, and let nobody complain of that."""
    for name in ("close", "cancel"):
        if callable(end := getattr(answer, name, None)):
            with contextlib.suppress(Exception):
                end()
            return


def _closed(answer: Any) -> None:
    """Whoever is called blocking may have an end that is awaited."""
    if inspect.isawaitable(answer):
        loop = Loop()
        try:
            loop.settle(answer)
        finally:
            loop.close()


def _refuse(error: LookupError) -> None:
    raise Refused(format_error(error)) from error
