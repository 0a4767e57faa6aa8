"""From a URL to a backend: the only room that knows which backends exist."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from indelible.core.limits import LABEL_BYTES_MAX
from indelible.core.settings import checked_text
from indelible.core.sources import Clock
from indelible.core.waist import AsyncBackend, Backend
from indelible.errors import UnsupportedError, UsageError
from indelible.model import Durability

T = TypeVar("T")
Target = str | os.PathLike[str]

KNOWN = "memory:, a file name such as agent.db, or sqlite:///agent.db"


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """How a store is to be opened."""

    target: Target
    namespace: str
    durability: Durability | str | None
    busy_timeout_s: float
    clock: Clock


def connect(demand: Demand) -> Backend:
    """A blocking backend."""
    return _choose(demand)[0]()


def connect_async(demand: Demand) -> AsyncBackend:
    """An async backend. Opening a file blocks for some milliseconds: call it from a thread."""
    return _choose(demand)[1]()


def _choose(demand: Demand) -> tuple[Callable[[], Backend], Callable[[], AsyncBackend]]:
    if demand.namespace:
        checked_text(demand.namespace, what="a namespace", bytes_max=LABEL_BYTES_MAX)
    if not isinstance(demand.busy_timeout_s, (int, float)) or not demand.busy_timeout_s >= 0:
        raise UsageError(
            f"busy_timeout_s is a number of seconds from 0 up, not {demand.busy_timeout_s!r}"
        )
    target = os.fspath(demand.target) if isinstance(demand.target, os.PathLike) else demand.target
    if not isinstance(target, str) or not target:
        raise UsageError(f"cannot open {demand.target!r}; name {KNOWN}", value=demand.target)
    if target == "memory:":
        return _memory(demand)
    return _sqlite(demand, _path_of(target))


def _path_of(target: str) -> Path:
    scheme, separator, rest = target.partition("://")
    if separator and scheme == "sqlite":
        if not rest.startswith("/") or rest == "/":
            raise UsageError(
                f"write sqlite:///name.db, or sqlite:////full/path/name.db: {target!r}",
                value=target,
            )
        return Path(rest[1:])
    if separator or target in (":memory:", "memory"):
        raise UsageError(f"cannot open {target!r}; name {KNOWN}", value=target)
    return Path(target)


def _memory(demand: Demand) -> tuple[Callable[[], Backend], Callable[[], AsyncBackend]]:
    # A backend is imported when it is asked for: an engine that is not installed costs nothing.
    from indelible.backends.memory import AsyncMemoryBackend, MemoryBackend  # noqa: PLC0415

    _durability(demand, default=Durability.NONE, best=Durability.NONE)
    return (
        lambda: MemoryBackend(clock=demand.clock),
        lambda: AsyncMemoryBackend(clock=demand.clock),
    )


def _sqlite(demand: Demand, path: Path) -> tuple[Callable[[], Backend], Callable[[], AsyncBackend]]:
    from indelible.backends.sqlite import AsyncSqliteBackend, SqliteBackend, SqliteOptions  # noqa: PLC0415

    durability = _durability(demand, default=Durability.POWER, best=Durability.POWER)
    options = SqliteOptions(
        path=path.expanduser().absolute(),
        namespace=demand.namespace,
        durability=max(durability, Durability.PROCESS, key=list(Durability).index),
        busy_timeout_s=demand.busy_timeout_s,
        clock=demand.clock,
    )
    return lambda: SqliteBackend(options), lambda: AsyncSqliteBackend(options)


def _durability(demand: Demand, *, default: Durability, best: Durability) -> Durability:
    """The level asked for, which the engine must be able to keep."""
    if demand.durability is None:
        return default
    try:
        level = Durability(demand.durability)
    except ValueError:
        known = ", ".join(Durability)
        raise UsageError(
            f"durability is one of {known}, not {demand.durability!r}", value=demand.durability
        ) from None
    if not best.covers(level):
        raise UnsupportedError(
            f"{demand.target} cannot promise durability {level!s}; the most it can is {best!s}"
        )
    return level
