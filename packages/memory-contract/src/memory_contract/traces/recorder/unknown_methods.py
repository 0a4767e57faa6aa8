"""Methods that no table of the recorder lists: whether they may change a session, and which one.

A call of such a method makes its session undecided for `explain`, and every session if it names
none. Only methods whose names say that they read are taken to change nothing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from typing import Any, Final

from memory_contract.traces.format import CALL
from memory_contract.traces.recorder.call_records import CallRecord
from memory_contract.traces.recorder.methods import MethodSpec

_READS: Final = frozenset(
    {
        *("get", "list", "load", "read", "search", "count", "find", "has", "is", "exists", "fetch"),
        *("peek", "show", "describe", "export", "iter", "len", "query", "stats", "ping"),
    }
)
# Words after the first that say otherwise: get_or_create, read_and_clear.
_CHANGES: Final = frozenset(
    {
        *("or", "and", "then", "add", "append", "clear", "clean", "compact", "create", "delete"),
        *("drop", "expire", "init", "merge", "pop", "prune", "put", "remove", "replace", "reset"),
        *("restore", "save", "set", "store", "trim", "update", "write"),
    }
)
# Methods that frameworks give to every object.
_HARMLESS: Final = frozenset({"model_dump", "model_dump_json", "dict", "json"})
# Names of a parameter that holds a session.
_SESSION: Final = ("session_id", "session")
# Parameters by which a call may be about a second session.
_SECOND: Final = frozenset(
    {"source", "src", "target", "dest", "destination", "dst", "into", "other", "to", "from_"}
)


def can_change(name: str, found: Any, read_only: Collection[str]) -> bool:
    """Return whether calling an attribute may change a session, as far as its name tells."""
    if name in read_only or name in _HARMLESS or (name.startswith("__") and name.endswith("__")):
        return False
    if not (inspect.ismethod(found) or inspect.isfunction(found) or inspect.isbuiltin(found)):
        return False
    first, *rest = [word for word in re.split(r"_+", name.lower()) if word] or [""]
    # `aget` is the awaited `get`.
    reads = first in _READS or (first.startswith("a") and first[1:] in _READS)
    return not reads or not _CHANGES.isdisjoint(rest)


def build_unknown_method(
    method: Callable[..., Any], session: str | None, known: Collection[str]
) -> MethodSpec:
    """Describe a method that may change a session.

    `session` is the one that the whole object stands for, if it does; `known` are the names of the
    parameter with which the store's other methods take a session.
    """
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        signature = None
    names = list(signature.parameters) if signature is not None else []
    ours = [name for name in names if name in known or name in _SESSION]
    seconds = [name for name in names if name in _SECOND or "session" in name.lower()]
    second = bool({*ours, *seconds} - set(ours[:1]))

    def describe(*arguments: Any, **options: Any) -> CallRecord:
        found = session
        if found is None and len(ours) == 1 and not second and signature is not None:
            try:
                found = signature.bind(*arguments, **options).arguments.get(ours[0])
            except TypeError:
                found = None
        if isinstance(found, str):
            return CallRecord(CALL, found, changes=True)
        return CallRecord(CALL, "", every=True, changes=True)

    return MethodSpec(describe)


def find_session_parameters(store: Any) -> frozenset[str]:
    """Return the names that the known methods of a store give to their session parameter."""
    found = set()
    for name in ("add_messages", "save_context", "append"):
        method = getattr(type(store), name, None)
        try:
            parameters = list(inspect.signature(method).parameters) if method else []
        except (TypeError, ValueError):
            continue
        found.update(parameters[1:2])
    return frozenset(found)
