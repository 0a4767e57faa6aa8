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


def build_unknown_method(method: Callable[..., Any], session: str | None) -> MethodSpec:
    """Describe a method that may change a session.

    `session` is the one that the whole object stands for, if it does.
    """

    def describe(*arguments: Any, **options: Any) -> CallRecord:
        found = session if session is not None else _find_session(method, arguments, options)
        if found is None:
            return CallRecord(CALL, "", every=True, changes=True)
        return CallRecord(CALL, found, changes=True)

    return MethodSpec(describe)


def _find_session(
    method: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> str | None:
    """Find the only session that a call can be about; None if it may be about others too."""
    try:
        given = inspect.signature(method).bind(*arguments, **options).arguments
    except (TypeError, ValueError):
        return None
    named = [value for name, value in given.items() if "session" in name.lower()]
    # Anything but numbers and flags may name another session: `merge(session_id, into)`.
    others = [value for name, value in given.items() if "session" not in name.lower()]
    alone = all(value is None or isinstance(value, int | float) for value in others)
    return named[0] if len(named) == 1 and isinstance(named[0], str) and alone else None
