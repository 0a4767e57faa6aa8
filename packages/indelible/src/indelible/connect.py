"""From a URL or a client to a backend: the only room that knows which backends exist."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from indelible.core.backend import AsyncBackend, Backend
from indelible.core.limits import LABEL_BYTES_MAX, TIMEOUT_S_MAX
from indelible.core.operations import FindRisks
from indelible.core.redaction import is_keyword_dsn, redact_url
from indelible.core.settings import check_text
from indelible.core.sources import Clock, system_clock
from indelible.errors import UnsupportedError, UsageError
from indelible.model import Durability, Gravity, Risk

# A URL, a file name, or a client of a server that the application has already.
Target = str | os.PathLike[str] | object
Makers = tuple[Callable[[], Backend], Callable[[], AsyncBackend]]

KNOWN = (
    "memory:, a file name such as agent.db, sqlite:///agent.db, redis://host:6379, or"
    " postgresql://host/database"
)


class ClientKind(NamedTuple):
    """A kind of client: whose it is, and whether it must be awaited."""

    engine: str
    awaited: bool
    blocking_name: str
    awaited_name: str


_REDIS = ("redis.Redis", "redis.asyncio.Redis")
_CLUSTER = ("redis.RedisCluster", "redis.asyncio.RedisCluster")
_POOL = ("psycopg_pool.ConnectionPool", "psycopg_pool.AsyncConnectionPool")
# By the module and name of a class: to recognise a client, its library need not be imported.
_CLIENTS = {
    ("redis.client", "Redis"): ClientKind("redis", False, *_REDIS),
    ("redis.cluster", "RedisCluster"): ClientKind("redis", False, *_CLUSTER),
    ("redis.asyncio.client", "Redis"): ClientKind("redis", True, *_REDIS),
    ("redis.asyncio.cluster", "RedisCluster"): ClientKind("redis", True, *_CLUSTER),
    ("psycopg_pool.pool", "ConnectionPool"): ClientKind("postgres", False, *_POOL),
    ("psycopg_pool.pool_async", "AsyncConnectionPool"): ClientKind("postgres", True, *_POOL),
}
_SCHEMES = {
    "redis": "redis",
    "rediss": "redis",
    "unix": "redis",
    "redis+cluster": "redis",
    "rediss+cluster": "redis",
    "postgresql": "postgres",
    "postgres": "postgres",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenOptions:
    """How a store is to be opened."""

    # A URL may hold a password.
    target: Target = field(repr=False)
    namespace: str
    durability: Durability | str | None
    busy_timeout_s: float
    timeout_s: float
    strict: bool
    clock: Clock


def connect(demand: OpenOptions) -> Backend:
    """A blocking backend whose engine was reached."""
    client = _client_of(demand.target)
    if client is not None and client.awaited:
        raise UsageError(
            f"a {client.awaited_name} must be awaited: open it with indelible.open_async, or hand"
            f" in a {client.blocking_name}"
        )
    backend = _choose(demand, client)[0]()
    try:
        backend.prepare()
        _mind(demand, backend.perform(FindRisks()))
    except BaseException:
        backend.close()
        raise
    return backend


async def connect_async(demand: OpenOptions) -> AsyncBackend:
    """An async backend whose engine was reached."""
    client = _client_of(demand.target)
    if client is not None and not client.awaited:
        raise UsageError(
            f"a {client.blocking_name} blocks: open it with indelible.open, or hand in a"
            f" {client.awaited_name}"
        )
    # Another process may hold a file for a while; the event loop must not wait for that.
    backend = await asyncio.to_thread(_choose(demand, client)[1])
    try:
        await backend.prepare()
        _mind(demand, await backend.perform(FindRisks()))
    except BaseException:
        await backend.close()
        raise
    return backend


def _mind(demand: OpenOptions, risks: tuple[Risk, ...]) -> None:
    """Warn of dangers, or refuse to work with them."""
    for risk in risks:
        if risk.severity is not Gravity.DANGER:
            continue
        said = (
            f"{format_target(demand.target)}: {risk.subject}: {risk.risk}. To change that:"
            f" {risk.remedy}"
        )
        if demand.strict:
            raise UnsupportedError(f"{said}. It was not opened, since strict=True was asked for")
        warnings.warn(said, RuntimeWarning, stacklevel=4)


def format_target(target: Target) -> str:
    """A target as messages show it: a client by its kind, and a URL without its password."""
    if isinstance(target, os.PathLike):
        return redact_url(os.fspath(target))
    if not isinstance(target, str):
        return f"the given {type(target).__name__}"
    return redact_url(target)


def _client_of(target: Target) -> ClientKind | None:
    for kind in type(target).__mro__:
        client = _CLIENTS.get((kind.__module__, kind.__name__))
        if client is not None:
            return client
    return None


def _choose(demand: OpenOptions, client: ClientKind | None) -> Makers:
    _check(demand)
    if client is not None:
        return _server(demand, client.engine)
    target = os.fspath(demand.target) if isinstance(demand.target, os.PathLike) else demand.target
    if not isinstance(target, str) or not target:
        raise UsageError(f"cannot open {demand.target!r}; name {KNOWN}", value=demand.target)
    if target == "memory:":
        return _memory(demand)
    scheme, separator, _ = target.partition("://")
    if isinstance(demand.target, str):
        refuse_unclear(target)
    if separator and scheme in _SCHEMES:
        return _server(demand, _SCHEMES[scheme])
    return _sqlite(demand, _path_of(target))


# What begins like a URL of ours, and is none. A file of such a name is ./ and the name.
_SCHEME_OF_OURS = re.compile(
    r"(?i)(?:sqlite|memory|rediss?|unix|postgres(?:ql)?)(?:\+[a-z]+)?:(?!//)"
)


def refuse_unclear(target: str) -> None:
    """Refuse a target that would be taken for something else than what it is."""
    if is_keyword_dsn(target):
        raise UsageError(
            f"{format_target(target)!r} is a connection string of PostgreSQL, which is not taken;"
            " write postgresql://user@host/database, with the password in PGPASSWORD. (A file of"
            " this name is ./ and the name.) Nothing was opened"
        )
    scheme, _, rest = target.partition("://")
    # libpq ends the password at the first @ before a slash, others at the last before any of these.
    postgres = _SCHEMES.get(scheme) == "postgres"
    place, *after = re.split("/" if postgres else "[/?#]", rest, maxsplit=1)
    named, _, port = place.rpartition(":")
    ended_early = "@" not in place and "@" in "".join(after)
    unclear = ended_early and named and not named.startswith("[") and not port.isdigit()
    if unclear or (postgres and place.count("@") > 1):
        raise UsageError(
            f"the password in {format_target(target)!r} holds a character that ends it early: write"
            " %23 for #, %2F for /, %3F for ? and %40 for @. Nothing was opened"
        )


def _check(demand: OpenOptions) -> None:
    if demand.namespace:
        check_text(demand.namespace, what="a namespace", bytes_max=LABEL_BYTES_MAX)
    if not isinstance(demand.busy_timeout_s, (int, float)) or not demand.busy_timeout_s >= 0:
        raise UsageError(
            f"busy_timeout_s is a number of seconds from 0 up, not {demand.busy_timeout_s!r}"
        )
    timeout_s = demand.timeout_s
    if not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= TIMEOUT_S_MAX:
        raise UsageError(
            f"timeout_s is a number of seconds above 0 and up to {TIMEOUT_S_MAX:g}, not"
            f" {timeout_s!r}"
        )


def _path_of(target: str) -> Path:
    bare = target.removeprefix("sqlite:").lstrip("/").removeprefix("file:")
    if bare.startswith(":memory:") or target == "sqlite://":
        raise UsageError(
            f"a SQLite database in memory is not supported: {target!r}; nothing was opened. Write"
            " memory: for a store in memory, or name a file.",
            value=target,
        )
    if target.startswith(("file:", "sqlite:///file:")):
        name = target.removeprefix("sqlite:///").removeprefix("file:").partition("?")[0]
        name = "/" + name.lstrip("/") if name.startswith("/") else name
        raise UsageError(
            f"a file: URI is not supported: {target!r}; nothing was opened. Write the file's name:"
            f" {name!r} (or './file:…' for a name that begins like that).",
            value=target,
        )
    scheme, separator, rest = target.partition("://")
    if separator and scheme == "sqlite":
        if not rest.startswith("/") or rest == "/":
            raise UsageError(
                "write sqlite:///name.db, or sqlite:////full/path/name.db:"
                f" {format_target(target)!r}",
                value=format_target(target),
            )
        return Path(rest[1:])
    if separator or target == "memory" or _SCHEME_OF_OURS.match(target) or "\0" in target:
        raise UsageError(
            f"cannot open {format_target(target)!r}; name {KNOWN}", value=format_target(target)
        )
    return Path(target)


def _memory(demand: OpenOptions) -> Makers:
    # A backend is imported when it is asked for: an engine that is not installed costs nothing.
    from indelible.backends.memory import AsyncMemoryBackend, MemoryBackend  # noqa: PLC0415

    _durability(demand, default=Durability.NONE, best=Durability.NONE)
    return (
        lambda: MemoryBackend(clock=demand.clock),
        lambda: AsyncMemoryBackend(clock=demand.clock),
    )


def _sqlite(demand: OpenOptions, path: Path) -> Makers:
    from indelible.backends.sqlite import AsyncSqliteBackend, SqliteBackend, SqliteOptions  # noqa: PLC0415
    from indelible.backends.sqlite.files import refuse_side_file  # noqa: PLC0415

    refuse_side_file(path.expanduser())
    durability = _durability(demand, default=Durability.POWER, best=Durability.POWER)
    options = SqliteOptions(
        path=path.expanduser().absolute(),
        namespace=demand.namespace,
        durability=max(durability, Durability.PROCESS, key=list(Durability).index),
        busy_timeout_s=demand.busy_timeout_s,
        clock=demand.clock,
    )
    return lambda: SqliteBackend(options), lambda: AsyncSqliteBackend(options)


def _server(demand: OpenOptions, engine: str) -> Makers:
    """The engines behind extras: each has its branch here."""
    return _redis(demand) if engine == "redis" else _postgres(demand)


def _redis(demand: OpenOptions) -> Makers:
    _require(demand, "redis", "hiredis", extra="redis")
    from indelible.backends.redis import AsyncRedisBackend, RedisBackend, RedisOptions  # noqa: PLC0415

    options = RedisOptions(
        target=demand.target,
        shown=format_target(demand.target),
        namespace=demand.namespace,
        durability=_asked_durability(demand),
        timeout_s=demand.timeout_s,
        clock=_clock(demand),
    )
    return lambda: RedisBackend(options), lambda: AsyncRedisBackend(options)


def _postgres(demand: OpenOptions) -> Makers:
    _require(demand, "psycopg", "psycopg_pool", extra="postgres")
    from indelible.backends.postgres import (  # noqa: PLC0415
        AsyncPostgresBackend,
        PostgresBackend,
        PostgresOptions,
    )

    options = PostgresOptions(
        target=demand.target,
        shown=format_target(demand.target),
        namespace=demand.namespace,
        durability=_asked_durability(demand),
        timeout_s=demand.timeout_s,
        clock=_clock(demand),
    )
    return lambda: PostgresBackend(options), lambda: AsyncPostgresBackend(options)


def _clock(demand: OpenOptions) -> Clock | None:
    """A test's own clock; else None, since on a server sessions expire by the server's."""
    return None if demand.clock is system_clock else demand.clock


def _require(demand: OpenOptions, *modules: str, extra: str) -> None:
    """Raise, with what to install, if an engine's client library is not there."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"{format_target(demand.target)} needs the package {' and '.join(missing)}:"
            f" pip install 'indelible[{extra}]'"
        )


def _durability(demand: OpenOptions, *, default: Durability, best: Durability) -> Durability:
    """The level asked for, which the engine must be able to keep."""
    level = _asked_durability(demand)
    if level is None:
        return default
    if not best.covers(level):
        raise UnsupportedError(
            f"{format_target(demand.target)} cannot promise durability {level!s}; the most it"
            f" can is {best!s}"
        )
    return level


def _asked_durability(demand: OpenOptions) -> Durability | None:
    if demand.durability is None:
        return None
    try:
        return Durability(demand.durability)
    except ValueError:
        known = ", ".join(Durability)
        raise UsageError(
            f"durability is one of {known}, not {demand.durability!r}", value=demand.durability
        ) from None
