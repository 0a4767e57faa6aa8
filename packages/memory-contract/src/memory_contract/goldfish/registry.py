"""The registry of goldfish: what each does wrong, and which case must catch it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from memory_contract.adapter import Adapter

Made = TypeVar("Made", bound=type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goldfish:
    """A store that is broken in one way."""

    name: str
    # What it does wrong, in one sentence.
    sin: str
    # Where that happened.
    incident: str
    # The case that must catch it.
    caught_by: str
    adapter: Adapter


GOLDFISH: Final[dict[str, Goldfish]] = {}
# Correct stores.
RIGHT: Final[dict[str, Adapter]] = {}


def build_adapter(store: Any, name: str, **options: Any) -> Adapter:
    """The adapter of a store class, which says itself what it claims."""
    where = f"{store.__module__}:{store.__qualname__}"
    awaited = not hasattr(store, "_load")
    return Adapter(
        open=None if awaited else where,
        open_async=where if awaited else None,
        name=f"goldfish:{name}",
        **{
            "capabilities": store.capabilities,
            "reach": store.reach,
            "thread_safe": store.thread_safe,
            "ttl_refreshed_by": getattr(store, "ttl_refreshed_by", "append"),
            "ttl_s_late": 0.1,
            "patience_s": getattr(store, "patience_s", None),
            "keeps_last": getattr(store, "keeps_last", None),
            "discard": getattr(store, "discard", None),
            **options,
        },
    )


def right(store: Made) -> Made:
    """Register a correct store."""
    name = _snake(store.__name__)
    RIGHT[name] = build_adapter(store, name)
    return store


def goldfish(incident: str, *, caught_by: str, **options: Any) -> Callable[[Made], Made]:
    """Register a broken store; the first line of its docstring says what it does wrong."""

    def enter(store: Made) -> Made:
        name = _snake(store.__name__)
        assert name not in GOLDFISH, f"two goldfish are called {name}"
        GOLDFISH[name] = Goldfish(
            name=name,
            sin=(store.__doc__ or "").strip().splitlines()[0],
            incident=incident,
            caught_by=caught_by,
            adapter=build_adapter(store, name, **options),
        )
        return store

    return enter


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
