"""Claimed capabilities work; others that the store offers are noted."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from memory_contract.adapter import CAPABILITIES, Capability
from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, CaseFailed, Client
from memory_contract.cases.case import case
from memory_contract.cases.contents import complete_turn, expect_there, is_same
from memory_contract.cases.programs import run_program
from memory_contract.entries import ids_of, messages_of
from memory_contract.history import OpName

# Long enough not to expire during the case.
TTL_S: Final = 3600.0
METADATA: Final = {"mood": "curious", "tags": ["a", {"b": None}]}
Trial = Callable[[Client, str], bool]


def _run(*program: OpName) -> Trial:
    """A trial that makes these calls, and compares every answer with the model."""

    def trial(store: Client, session: str) -> bool:
        try:
            run_program(store, session, program)
        except CaseFailed:
            return False
        return True

    return trial


def _ttl(store: Client, session: str) -> bool:
    return store.append(session, ttl_s=TTL_S) == store.read(session)


def _snapshot(store: Client, session: str) -> bool:
    ids = store.append(session)
    name = store.snapshot(session)
    return store.context.names[name] is not None and store.read(session) == ids


def _keys(store: Client, session: str) -> bool:
    ids = store.append(session, key="k")
    store.append(session, ids=ids, key="k")
    return store.read(session) == ids


def _expected(store: Client, session: str) -> bool:
    ids = store.append(session)
    ids += store.append(session, expected=store.ask("version", session))
    return store.read(session) == store.context.keep_newest(ids)


def _list(store: Client, session: str) -> bool:
    store.append(session)
    return session in list(store.ask("sessions"))


def _limit(store: Client, session: str) -> bool:
    store.append(session, 2)
    last = store.append(session)
    return store.read(session, limit=len(last)) == last


def _fields(store: Client, session: str) -> bool:
    message = {"role": "user", "content": "fields", "metadata": METADATA, "an_unknown_field": 7}
    store.put(session, *complete_turn(store.context, message))
    kept = store.get(session)[0]
    return is_same({name: kept.get(name) for name in message}, message)


def _structure(store: Client, session: str) -> bool:
    system = {"role": "system", "content": "You never forget."}
    messages = [system, *({"role": "user", "content": str(n)} for n in range(4))]
    if store.context.adapter.pairs or len(store.context.keep_newest(messages)) < len(messages):
        return True
    store.put(session, *messages)
    store.ask("trim", session, 2)
    return any(message.get("role") == "system" for message in store.get(session))


def _pages(store: Client, session: str) -> bool:
    ids = store.append(session) + store.append(session)
    first, cursor = store.ask("page", session, 1)
    found = ids_of(first)
    while cursor is not None:
        page, cursor = store.ask("page", session, 1, cursor)
        found += ids_of(page)
    return found == store.context.keep_newest(ids)


def _export(store: Client, session: str) -> bool:
    ids = store.append(session)
    text = store.ask("export", session)
    again = store.context.new_session()
    store.ask("import_session", text.replace(session, again))
    return store.look(again) == ids


def _search(store: Client, session: str) -> bool:
    store.ask("put_item", session, "item", "a zebra")
    hits = store.ask("search", session, "zebra", 5)
    found = [(hit["id"], hit["text"]) for hit in hits]
    return found == [("item", "a zebra")] and store.ask("get_item", session, "item") == "a zebra"


def _filter(store: Client, session: str) -> bool:
    for name in ("one", "two"):
        store.ask("put_item", session, name, "a zebra", fields={"name": name})
    hits = store.ask("search", session, "zebra", 5, where={"name": "two"})
    return [hit["id"] for hit in hits] == ["two"]


def _retract(store: Client, session: str) -> bool:
    store.ask("put_item", session, "item", "a zebra")
    store.ask("retract", session, "item")
    return store.ask("get_item", session, "item") is None


def _item_ttl(store: Client, session: str) -> bool:
    store.ask("put_item", session, "item", "a zebra", ttl_s=TTL_S)
    return bool(store.ask("get_item", session, "item") == "a zebra")


def _forget(store: Client, session: str) -> bool:
    store.put(session, *complete_turn(store.context, {"role": "user", "content": "forget me"}))
    store.ask("forget", session)
    return store.get(session) == []


def _embedder(store: Client, _: str) -> bool:
    store.ask("fail_embedder", True)
    store.ask("fail_embedder", False)
    return True


TRIALS: Final[dict[Capability, Trial]] = {
    "pop": _run("append", "append", "pop"),
    "trim": _run("append", "append", "append", "trim"),
    "clear": _run("append", "clear"),
    "ttl": _ttl,
    "snapshot": _snapshot,
    "rollback": _run("append", "snapshot", "append", "rollback"),
    "fork": _run("append", "fork"),
    "undo": _run("append", "clear", "undo"),
    "keys": _keys,
    "expected": _expected,
    "list": _list,
    "limit": _limit,
    "fields": _fields,
    "structure": _structure,
    # Nothing is damaged here: `damaged_file_is_loud` holds a store to this.
    "checksum": lambda *_: True,
    "pages": _pages,
    "export": _export,
    "search": _search,
    "filter": _filter,
    "retract": _retract,
    "item_ttl": _item_ttl,
    "forget": _forget,
    "embedder": _embedder,
}
# Capabilities that a trial needs beside its own.
ALSO: Final[dict[str, tuple[Capability, ...]]] = {
    "rollback": ("snapshot",),
    "undo": ("clear",),
    "structure": ("trim",),
    "filter": ("search",),
    "retract": ("search",),
    "item_ttl": ("search",),
}
# Where a handle offers it: a method, or a parameter of one.
METHODS: Final[dict[str, str]] = {
    "list": "sessions",
    "expected": "version",
    "pages": "page",
    "embedder": "fail_embedder",
}
PARAMETERS: Final[dict[str, tuple[str, str]]] = {
    "keys": ("append", "key"),
    "ttl": ("append", "ttl_s"),
    "limit": ("read", "limit"),
    "filter": ("search", "where"),
    "item_ttl": ("put_item", "ttl_s"),
}


@case("sequential", catches="a claimed operation that is missing or does something else")
def capabilities_are_true(context: CaseContext) -> None:
    """Try everything that is claimed once, and tell what is offered without being claimed."""
    store, session = context.open(), context.new_session()
    # Nothing else can be tried on a store that does not keep its messages.
    expect_there(store, session, messages_of(store.append(session)), "an entry")
    for name, does in CAPABILITIES.items():
        if context.claims(name):
            _expect_claim(store, name, does)
    for name, does in CAPABILITIES.items():
        if not context.claims(name) and _is_offered(store.handle, name):
            _note_unclaimed(store, name, does)


def _expect_claim(store: Client, name: Capability, does: str) -> None:
    context, claim = store.context, f"{name} is claimed ({does}), and"
    if lacking := [other for other in ALSO.get(name, ()) if not context.claims(other)]:
        context.note(f"{name} is claimed without {lacking[0]}, so nothing about it can be tried")
        return
    try:
        works = TRIALS[name](store, context.new_session())
    except Exception as error:  # noqa: BLE001 -- whatever it raises, it was claimed
        context.fail("untrue claim", f"{claim} raised {format_error(error)}")
    context.expect(works, "untrue claim", f"{claim} did something else")


def _is_offered(handle: Any, name: Capability) -> bool:
    if name in PARAMETERS:
        method, parameter = PARAMETERS[name]
        try:
            found = getattr(handle, method, None)
            return callable(found) and parameter in inspect.signature(found).parameters
        except (TypeError, ValueError):
            return False
    if name in ("fields", "structure", "checksum"):
        return name == "fields"
    return callable(getattr(handle, METHODS.get(name, name), None))


def _note_unclaimed(store: Client, name: Capability, does: str) -> None:
    """Try what is not claimed, and note the result; it is not judged."""
    before = len(store.context.history)
    try:
        works = TRIALS[name](store, store.context.new_session())
    except Exception:  # noqa: BLE001 -- not claimed, not there
        return
    finally:
        del store.context.history[before:]
    if works or name != "fields":
        how = "works" if works else "does something else, or half of it"
        store.context.note(f"not claimed: {name} ({does}); tried once, it {how}")
