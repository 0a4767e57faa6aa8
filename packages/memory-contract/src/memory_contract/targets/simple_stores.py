"""Stores of the two small styles: turns (`save_context`, `load_memory`) and messages.

The message style is `get_history` with `add_messages(session_id, messages)`,
`add_message(session_id, message)` or `add_message(session_id, role, content)`. Parameters that have
these names may stand in any order. Other methods are used if they are called as in `METHODS` and do
what their names say. If the store takes no other message, the kit makes one of the class that the
parameter is annotated with.
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, get_args, get_type_hints

from memory_contract.adapter import Capability, Message, NotFound, Refused
from memory_contract.calls import format_error, is_missing_key
from memory_contract.errors import TargetError
from memory_contract.targets.simple_messages import (
    ChatMessage,
    get_messages,
    message_from_pop,
    messages_from_list,
    messages_from_turns,
    session_from_listed,
)
from memory_contract.targets.vocabulary import SESSION_NAMES, StoreHandle, Vocabulary

# The method that offers a capability, and what it is called with.
METHODS: Final[dict[Capability, tuple[str, ...]]] = {
    "pop": ("pop", "session"),
    "trim": ("trim", "session", "keep"),
    "clear": ("clear", "session"),
    "snapshot": ("save_snapshot", "session"),
    "rollback": ("rollback_to_snapshot", "session", "snapshot"),
    "fork": ("fork", "session", "target"),
    "list": ("list_sessions",),
}

# What the second parameter of `save_snapshot` is called if the caller names the snapshot.
_SNAPSHOT_NAMES: Final = ("name", "label", "tag", "snapshot", "snapshot_id", "snapshot_name")
# Parameters of a read that say how many messages come back. If one has a number for a default, the
# kit asks for all.
_LIMITS: Final = ("limit", "last_n", "max_messages", "page_size", "n", "k")
_NO_LIMIT: Final = 1_000_000
# The methods that read; their first parameter is the session, unless another one is called so.
_READERS: Final = ("get_history", "load_memory", "aload_memory")
# A store may refuse or reduce larger limits.
_LIMIT_MAX: Final = 100


def find_method(store: Any, capability: Capability) -> Callable[..., Any] | None:
    """The method of an instance that is named after a capability."""
    name = METHODS[capability][0]
    # A property is not evaluated to see what it is.
    static = inspect.getattr_static(type(store), name, None)
    method = None if isinstance(static, property) else getattr(store, name, None)
    return method if callable(method) and not isinstance(method, type) else None


def takes_arguments(method: Callable[..., Any], capability: Capability) -> bool:
    """Whether a method can be called as the kit calls it."""
    arguments = METHODS[capability][1:]
    try:
        signature = inspect.signature(method)
        signature.bind(*arguments)
    except (TypeError, ValueError):
        return capability == "snapshot" and takes_name(method)
    # What may be left out is a switch, and no session: `clear(everything=False)`.
    required = [each.default is each.empty for each in signature.parameters.values()]
    return all(required[: len(arguments)])


def list_parameters(method: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a method; none if Python cannot tell them."""
    try:
        return list(inspect.signature(method).parameters.values())
    except (TypeError, ValueError):
        return []


def takes_name(save_snapshot: Callable[..., Any]) -> bool:
    """Whether a snapshot is given its name by the caller: `save_snapshot(session_id, name)`."""
    parameters = list_parameters(save_snapshot)
    names = [each.name for each in parameters if each.default is each.empty]
    return len(names) == 2 and names[0].startswith("session") and names[1] in _SNAPSHOT_NAMES


def sort_parameters(store: Any, method: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a method, the one that takes the session first.

    That is the first with such a name, or with the name that the store's read begins with, or else
    the first of all. The recorder goes by this, too.
    """
    parameters = list_parameters(method)
    names = [each.name for each in parameters]
    readers = (getattr(store, name, None) for name in _READERS)
    theirs = [each.name for reader in readers if reader for each in list_parameters(reader)[:1]]
    known = [name for name in names if name in SESSION_NAMES]
    session = next((name for name in (*known, *theirs, *names) if name in names), "")
    return sorted(parameters, key=lambda each: each.name != session)


def takes_session_first(store: Any, method: Callable[..., Any]) -> bool:
    """Whether the session is the first argument; else it is passed by its name."""
    session, first = sort_parameters(store, method)[:1], list_parameters(method)[:1]
    return session == first and all(each.kind is not each.KEYWORD_ONLY for each in first)


def find_snapshot_id(answer: Any, name: Any) -> Any:
    """What a snapshot is found by that was given a name: the store's own id, if it returns one."""
    found = getattr(answer, "id", answer)
    return found if hasattr(answer, "id") or isinstance(found, str) else name


def must_work(handle: SimpleHandle, capability: Capability) -> bool:
    """Whether names leave no doubt about what a store means to do, so that it is held to it."""
    if capability == "limit":
        return handle.limit == "last_n"
    return capability == "rollback" and _must_restore(handle.store)


def _must_restore(store: Any) -> bool:
    """Whether the names leave no doubt about what is passed to and from a rollback."""
    names = [each.name for each in list_parameters(store.rollback_to_snapshot)]
    session, snapshot, *_ = *names, "", ""
    is_clear = session.startswith("session") and snapshot.startswith("snapshot")
    return is_clear and not takes_name(store.save_snapshot)


class SimpleHandle(StoreHandle):
    """What both styles share: the further methods of `METHODS`.

    With `unlimited`, a read asks for all if it returns only so many by default.
    """

    def __init__(self, store: Any, *, awaited: bool, unlimited: bool = True) -> None:
        super().__init__(store, awaited=awaited)
        self.exchanged: Any = None
        reader = self._find_reader()
        limits = find_limits(reader) if unlimited else ()
        self.no_limit = dict.fromkeys(limits, _NO_LIMIT)
        # The parameter that says how many of the newest messages are read, if the store has one.
        self.limit = find_limit(reader) if unlimited else ""

    def _find_reader(self) -> Callable[..., Any]:
        """The method of the store that reads."""
        raise NotImplementedError

    async def _ask(
        self, method: Callable[..., Any], session: str, *arguments: Any, **options: Any
    ) -> Any:
        """Call a method that appends or reads; the session goes where the method takes it."""
        if takes_session_first(self.store, method):
            return await self.settle(method(session, *arguments, **options))
        taker = sort_parameters(self.store, method)[0]
        return await self.settle(method(*arguments, **{taker.name: session}, **options))

    async def _read(self, session: str, method: str, wanted: str, **options: int) -> Any:
        """What the store returns for a session; `TargetError` if that is no list."""
        found = get_messages(await self._ask(self._find_reader(), session, **options))
        if isinstance(found, str | Mapping) or not isinstance(found, Iterable | None):
            what = "one text" if isinstance(found, str) else f"a {type(found).__name__}"
            raise TargetError(f"{method} returned {what}, {found!r:.60}; the kit needs {wanted}")
        self.exchanged = found
        return found

    async def _call(self, capability: Capability, *arguments: Any) -> Any:
        return await self.settle(getattr(self.store, METHODS[capability][0])(*arguments))

    async def _change(self, capability: Capability, *arguments: Any) -> None:
        try:
            await self._call(capability, *arguments)
        except LookupError as error:
            raise Refused(format_error(error)) from error

    async def pop(self, session: str) -> Any:
        try:
            return message_from_pop(await self._call("pop", session))
        except LookupError:
            # As `list.pop` does, many stores raise if there is nothing to take.
            return None

    async def trim(self, session: str, keep: int) -> None:
        await self._change("trim", session, keep)

    async def clear(self, session: str) -> None:
        await self._change("clear", session)

    async def snapshot(self, session: str) -> Any:
        if takes_name(self.store.save_snapshot):
            name = f"snapshot-{secrets.token_hex(4)}"
            return find_snapshot_id(await self._call("snapshot", session, name), name)
        answer = await self._call("snapshot", session)
        return getattr(answer, "id", answer)

    async def rollback(self, session: str, snapshot: Any) -> None:
        try:
            await self._call("rollback", session, snapshot)
        except LookupError as error:
            if is_missing_key(error, snapshot):
                raise NotFound(format_error(error)) from error
            raise

    async def fork(self, session: str, target: str) -> None:
        await self._call("fork", session, target)

    async def sessions(self) -> list[Any]:
        return [session_from_listed(item) for item in await self._call("list")]


def find_limit(read: Callable[..., Any]) -> str:
    """The parameter of a read that says how many messages come back, if there is one."""
    names = {each.name for each in list_parameters(read)}
    return next((name for name in _LIMITS if name in names), "")


def find_limits(read: Callable[..., Any]) -> list[str]:
    """The parameters that make a read return only so many by default."""
    found = [each for each in list_parameters(read) if each.name in _LIMITS]
    # Zero and less mean all.
    return [each.name for each in found if type(each.default) is int and each.default > 0]


class MessagesHandle(SimpleHandle):
    """A store of messages.

    `form` says how one is passed: as an object, a dict, two texts, or the class that is annotated.
    """

    def __init__(self, store: Any, *, form: str = "object", **options: Any) -> None:
        super().__init__(store, **options)
        self._form = form
        self._by_name = form == "texts" and takes_role_and_content(store)
        self._build_message: Callable[..., Any] = ChatMessage if form == "object" else dict
        if form == "texts" and not self._by_name:
            _expect_texts(store)
        elif form == "class":
            self._build_message = _find_message_class(store)

    async def append(self, session: str, messages: list[Message]) -> None:
        """Add messages, as one batch if the store takes batches."""
        if callable(add_messages := getattr(self.store, "add_messages", None)):
            self.exchanged = [self._build_message(**message) for message in messages]
            await self._ask(add_messages, session, self.exchanged)
            return
        for message in messages:
            arguments, options = [], {}
            texts = {name: message[name] for name in ("role", "content")}
            if self._by_name:
                options = texts
            elif self._form == "texts":
                arguments = list(texts.values())
            else:
                self.exchanged = self._build_message(**message)
                arguments = [self.exchanged]
            await self._ask(self.store.add_message, session, *arguments, **options)

    def _find_reader(self) -> Callable[..., Any]:
        reader: Callable[..., Any] = self.store.get_history
        return reader

    async def read(self, session: str, *, limit: int | None = None) -> list[Any]:
        """The messages, oldest first; with a limit, the newest of them."""
        if limit is not None and not 0 < limit <= _LIMIT_MAX:
            raise Refused(f"the kit asks such a store for 1 to {_LIMIT_MAX}: 0 may mean all")
        options = self.no_limit if limit is None else {self.limit: limit}
        return messages_from_list(
            await self._read(session, "get_history", "a list of messages", **options)
        )


def takes_role_and_content(store: Any) -> bool:
    """Whether names of parameters say which text of a message is the role, which the content."""
    parameters = sort_parameters(store, store.add_message)[1:]
    names = {each.name for each in parameters if each.kind is not each.POSITIONAL_ONLY}
    return names >= {"role", "content"}


def _expect_texts(store: Any) -> None:
    """Raise `TypeError` unless a message is a role and a content beside the session."""
    parameters = sort_parameters(store, store.add_message)[1:3]
    required = [each for each in parameters if each.default is each.empty]
    if len(required) < 2 and parameters[:1] and parameters[0].name != "role":
        raise TypeError("it takes no role and content")


def _find_message_class(store: Any) -> Callable[..., Any]:
    """The class that the messages' parameter, or what it is a list of, is annotated with.

    Raises `TypeError` if it names none.
    """
    method = getattr(store, "add_messages", None) or store.add_message
    name = next((each.name for each in sort_parameters(store, method)[1:]), "messages")
    try:
        annotation = get_type_hints(method).get(name)
    except Exception as error:
        raise TypeError(f"the annotation of {name} cannot be read") from error
    found = next(iter(get_args(annotation)), annotation)
    if not isinstance(found, type) or issubclass(found, str):
        raise TypeError(f"{name} is not annotated with a class")
    return found


class TurnsHandle(SimpleHandle):
    """A store of turns: what the user said and what the model answered."""

    async def append(self, session: str, messages: list[Message]) -> None:
        """Save turns, one call each."""
        save = self._method("save_context")
        for user, assistant in zip(messages[::2], messages[1::2], strict=True):
            await self._ask(save, session, user["content"], assistant["content"])

    async def read(self, session: str) -> list[Any]:
        """The turns, as messages."""
        wanted = "a list of turns, such as pairs (human, ai)"
        return messages_from_turns(
            await self._read(session, "load_memory", wanted, **self.no_limit)
        )

    def _find_reader(self) -> Callable[..., Any]:
        reader: Callable[..., Any] = self._method("load_memory")
        return reader

    def _method(self, name: str) -> Any:
        own = getattr(self.store, f"a{name}", None) if self.awaited else None
        return own or getattr(self.store, name)


VOCABULARIES: Final = (
    Vocabulary(
        described="a store with add_messages and get_history",
        methods=("add_messages", "get_history"),
        handle=MessagesHandle,
        variants=({"form": "object"}, {"form": "dict"}, {"form": "class"}),
    ),
    Vocabulary(
        described="a store with add_message and get_history",
        methods=("add_message", "get_history"),
        handle=MessagesHandle,
        variants=({"form": "texts"}, {"form": "dict"}, {"form": "object"}, {"form": "class"}),
        claims={"batches": False},
    ),
    Vocabulary(
        described="a store with save_context and load_memory",
        methods=("save_context", "load_memory"),
        handle=TurnsHandle,
        claims={"pairs": True},
    ),
    Vocabulary(
        described="a store with asave_context and aload_memory",
        methods=("asave_context", "aload_memory"),
        handle=TurnsHandle,
        flavours=("async",),
        claims={"pairs": True},
    ),
)
