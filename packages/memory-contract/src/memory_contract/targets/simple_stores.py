"""Stores of the two small styles: turns (`save_context`, `load_memory`) and messages.

The message style is `get_history` with `add_messages(session_id, messages)`,
`add_message(session_id, message)` or `add_message(session_id, role, content)`. Other methods are
used if they have a name that the kit knows and do what it says.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memory_contract.adapter import Capability, Message, Refused
from memory_contract.calls import format_error
from memory_contract.errors import TargetError
from memory_contract.targets.simple_messages import (
    ChatMessage,
    message_from_pop,
    messages_from_list,
    messages_from_turns,
    session_from_listed,
)
from memory_contract.targets.vocabulary import StoreHandle, Vocabulary

# The methods that may offer a capability, the likeliest first.
METHOD_NAMES: Final[dict[Capability, tuple[str, ...]]] = {
    "pop": ("pop", "pop_message", "pop_item"),
    "trim": ("trim", "trim_history"),
    "clear": ("clear", "clear_session", "clear_history", "delete_session"),
    "snapshot": ("save_snapshot",),
    "rollback": ("rollback_to_snapshot",),
    "fork": ("fork",),
    "list": ("list_sessions", "sessions"),
}
# A second parameter of one of these names says how many messages to keep or to take.
_COUNT_NAMES: Final = frozenset(
    {"keep", "keep_last", "n", "last", "limit", "max_messages", "max_len", "size", "count"}
)


@dataclass(frozen=True, slots=True)
class Offer:
    """A method that offers a capability, and the parameter that it takes beside the session."""

    method: str
    parameter: str = ""


def find_offers(store: Any, capability: Capability) -> list[Offer]:
    """The methods of an instance that can be called for a capability."""
    found = []
    for name in METHOD_NAMES[capability]:
        # A property is not evaluated to see what it is.
        static = inspect.getattr_static(type(store), name, None)
        method = None if isinstance(static, property) else getattr(store, name, None)
        if callable(method) and not isinstance(method, type):
            offer = _read_offer(capability, name, method)
            found += [offer] if offer is not None else []
    return found


def _read_offer(capability: Capability, name: str, method: Callable[..., Any]) -> Offer | None:
    """The offer that a method makes, if it takes what the kit passes."""
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return None
    parameters = list(signature.parameters.values())
    if capability != "list" and any(map(_is_option, parameters[:1])):
        return None
    others = parameters[1:]
    count = next((each.name for each in others if each.name in _COUNT_NAMES), "")
    beside = {"trim": count, "pop": count, "snapshot": others[0].name if others else ""}
    arguments = {"list": (), "rollback": ("", ""), "fork": ("", "")}.get(capability, ("",))
    if capability != "trim" and _can_bind(signature, *arguments):
        return Offer(name)
    parameter = beside.get(capability, "")
    if parameter and _can_bind(signature, "", **{parameter: 1}):
        return Offer(name, parameter)
    return None


def _can_bind(signature: inspect.Signature, *arguments: Any, **options: Any) -> bool:
    try:
        signature.bind(*arguments, **options)
    except TypeError:
        return False
    return True


def _is_option(parameter: inspect.Parameter) -> bool:
    """Whether a first parameter cannot be a session: it is a number or a switch."""
    return isinstance(parameter.default, int | float) or parameter.annotation in (bool, "bool")


class SimpleHandle(StoreHandle):
    """What both styles share: further methods by known names."""

    def __init__(
        self, store: Any, *, awaited: bool, offers: Mapping[str, Offer] | None = None
    ) -> None:
        super().__init__(store, awaited=awaited)
        self._offers = offers or {}
        self.exchanged: Any = None

    def _exchange(self, value: Any) -> Any:
        self.exchanged = value
        return value

    async def _call(self, capability: str, *arguments: Any, beside: Any = None) -> Any:
        if capability not in self._offers:
            raise NotImplementedError(f"it does not offer {capability}")
        offer = self._offers[capability]
        options = {offer.parameter: beside} if offer.parameter else {}
        return await self.settle(getattr(self.store, offer.method)(*arguments, **options))

    async def pop(self, session: str) -> Any:
        try:
            return message_from_pop(await self._call("pop", session, beside=1))
        except LookupError:
            # As `list.pop` does, many stores raise if there is nothing to take.
            return None

    async def trim(self, session: str, keep: int) -> None:
        await self._change("trim", session, beside=keep)

    async def clear(self, session: str) -> None:
        await self._change("clear", session)

    async def _change(self, capability: str, session: str, *, beside: Any = None) -> None:
        try:
            await self._call(capability, session, beside=beside)
        except LookupError as error:
            raise Refused(format_error(error)) from error

    async def snapshot(self, session: str) -> Any:
        """Take a snapshot; its id, or the name that it was given."""
        name = uuid.uuid4().hex
        answer = await self._call("snapshot", session, beside=name)
        return name if self._offers["snapshot"].parameter else getattr(answer, "id", answer)

    async def rollback(self, session: str, snapshot: Any) -> None:
        await self._call("rollback", session, snapshot)

    async def fork(self, session: str, target: str) -> None:
        await self._call("fork", session, target)

    async def sessions(self) -> list[Any]:
        return [session_from_listed(item) for item in await self._call("list")]


class MessagesHandle(SimpleHandle):
    """A store of messages. `form` says how one is passed: as an object, a dict or two texts."""

    def __init__(self, store: Any, *, form: str = "object", **options: Any) -> None:
        super().__init__(store, **options)
        self._form = form
        if form == "texts":
            _expect_texts(store.add_message)

    async def append(self, session: str, messages: list[Message]) -> None:
        """Add messages, as one batch if the store takes batches."""
        if callable(add_messages := getattr(self.store, "add_messages", None)):
            batch = self._exchange([self._to_form(message) for message in messages])
            await self.settle(add_messages(session, batch))
            return
        for message in messages:
            if self._form == "texts":
                arguments = [message["role"], message["content"]]
            else:
                arguments = [self._exchange(self._to_form(message))]
            await self.settle(self.store.add_message(session, *arguments))

    def _to_form(self, message: Message) -> Any:
        return ChatMessage(**message) if self._form == "object" else dict(message)

    async def read(self, session: str) -> list[Any]:
        found = await self.settle(self.store.get_history(session))
        _refuse_text(found, "get_history", "a list of messages")
        return messages_from_list(self._exchange(found))


def _refuse_text(found: object, method: str, wanted: str) -> None:
    """Raise if a store returns one text: its characters are no messages."""
    if isinstance(found, str):
        raise TargetError(f"{method} returned one text, {found!r:.60}; the kit needs {wanted}")


def _expect_texts(add_message: Callable[..., Any]) -> None:
    """Raise `TypeError` unless the method takes a role and a content beside the session."""
    parameters = list(inspect.signature(add_message).parameters.values())[1:3]
    required = [each for each in parameters if each.default is each.empty]
    if len(required) < 2 and parameters[:1] and parameters[0].name != "role":
        raise TypeError("it takes no role and content")


class TurnsHandle(SimpleHandle):
    """A store of turns: what the user said and what the model answered."""

    async def append(self, session: str, messages: list[Message]) -> None:
        """Save turns, one call each."""
        save = self._method("save_context")
        for user, assistant in zip(messages[::2], messages[1::2], strict=True):
            await self.settle(save(session, user["content"], assistant["content"]))

    async def read(self, session: str) -> list[Any]:
        """The turns, as messages."""
        found = await self.settle(self._method("load_memory")(session))
        _refuse_text(found, "load_memory", "a list of turns, such as pairs (human, ai)")
        return messages_from_turns(self._exchange(found))

    def _method(self, name: str) -> Any:
        own = getattr(self.store, f"a{name}", None) if self.awaited else None
        return own or getattr(self.store, name)


VOCABULARIES: Final = (
    Vocabulary(
        described="a store with add_messages and get_history",
        methods=("add_messages", "get_history"),
        handle=MessagesHandle,
        variants=({"form": "object"}, {"form": "dict"}),
    ),
    Vocabulary(
        described="a store with add_message and get_history",
        methods=("add_message", "get_history"),
        handle=MessagesHandle,
        variants=({"form": "texts"}, {"form": "dict"}, {"form": "object"}),
        claims={"batches": False},
    ),
    Vocabulary(
        described="a store with save_context and load_memory",
        methods=("save_context", "load_memory"),
        handle=TurnsHandle,
        claims={"pairs": True},
    ),
)
