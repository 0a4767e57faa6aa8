"""Claimed capabilities are there; others that the store offers are noted."""

from __future__ import annotations

import inspect
from typing import Any, Final

from memory_contract.adapter import CAPABILITIES, Capability
from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, CaseFailed, Client
from memory_contract.cases.case import case
from memory_contract.cases.contents import expect_there
from memory_contract.cases.programs import PROGRAMS, run_program
from memory_contract.cases.workload import LEADS
from memory_contract.entries import build_messages, parse_ids

# Where a handle offers the others: a method of another name, a parameter of a method, or nowhere.
METHODS: Final[dict[Capability, str]] = {
    "list": "sessions",
    "expected": "version",
    "pages": "page",
    "embedder": "fail_embedder",
}
PARAMETERS: Final[dict[Capability, tuple[str, str]]] = {
    "keys": ("append", "key"),
    "ttl": ("append", "ttl_s"),
    "limit": ("read", "limit"),
    "filter": ("search", "where"),
    "item_ttl": ("put_item", "ttl_s"),
}
PROMISES: Final = frozenset({"fields", "structure", "checksum"})


@case("sequential", catches="a claimed operation that is missing or does something else")
def capabilities_are_true(context: CaseContext) -> None:
    """Try every claimed capability; note those that are offered without being claimed."""
    adapter, store, session = context.adapter, context.open(), context.new_session()
    # Nothing else can be tried on a store that does not keep its messages.
    expect_there(store, session, build_messages(store.append(session)), "an entry")
    for name, does in CAPABILITIES.items():
        if context.claims(name):
            _expect_claim(store, name, does)
    for name, does in CAPABILITIES.items():
        is_known = name in adapter.capabilities or name in adapter.tried
        if not is_known and adapter.is_asked(name) and _is_offered(store.handle, name):
            _note_unclaimed(store, name, does)


def _expect_claim(store: Client, name: Capability, does: str) -> None:
    context, claim = store.context, f"{name} is claimed ({does}), and"
    # Whether a parameter is taken cannot be seen of every method: `**options` may take it.
    there = name in PROMISES or name in PARAMETERS or _is_offered(store.handle, name)
    context.expect(there, "untrue claim", f"{claim} there is no method {METHODS.get(name, name)}")
    if not context.claims(needed := find_need(name) or name):
        context.note(f"{name} is claimed without {needed}, so nothing about it can be tried")
        return
    try:
        works = try_capability(store, name)
    except Exception as error:  # noqa: BLE001 -- whatever it raises, it was claimed
        context.fail("untrue claim", f"{claim} raised {format_error(error)}")
    context.expect(works, "untrue claim", f"{claim} did something else")


def find_need(name: Capability) -> str | None:
    """The other capability without which this one is of no use."""
    return next(iter(LEADS.get(name, ())), None)


def try_capability(store: Client, name: Capability) -> bool:
    """Whether a capability, if it can be tried here, goes as the model says."""
    session = store.context.new_session()
    if name == "limit":
        ids = store.append(session) + store.append(session) + store.append(session)
        return parse_ids(store.get(session, limit=2)) == ids[-2:]
    if name == "list":
        store.append(session)
        return session in list(store.ask("sessions"))
    try:
        run_program(store, session, PROGRAMS.get(name, ()))
    except CaseFailed:
        return False
    return True


def _is_offered(handle: Any, name: Capability) -> bool:
    if name not in PARAMETERS:
        return name not in PROMISES and callable(getattr(handle, METHODS.get(name, name), None))
    method, parameter = PARAMETERS[name]
    try:
        return parameter in inspect.signature(getattr(handle, method)).parameters
    except (AttributeError, TypeError, ValueError):
        return False


def _note_unclaimed(store: Client, name: Capability, does: str) -> None:
    """Try what is not claimed, if there is a program for it, and note it; it is not judged."""
    before = len(store.context.history)
    try:
        works = try_capability(store, name)
    except Exception:  # noqa: BLE001 -- not claimed, not there
        return
    finally:
        del store.context.history[before:]
    how = "offered by the store"
    if name in PROGRAMS or name == "list":
        how = f"tried once, it {'works' if works else 'does something else, or half of it'}"
    store.context.note(f"not claimed: {name} ({does}); {how}")
