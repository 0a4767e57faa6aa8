"""Where connections come from: a URL, or a client that the application has already."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.connection import parse_url

from indelible.backends.redis.cluster import Address
from indelible.backends.redis.options import RedisOptions
from indelible.errors import UsageError

# One lane writes, since those who write at once share its round trips; the others read.
WRITE_LANES = 1
READ_LANES = 8
# To connect is one round trip; whoever does not answer it will not answer the call either.
CONNECT_S_MAX = 5.0
DEFAULT_PORT = 6379

# What a cluster's client keeps beside what a connection takes.
_NOT_OF_A_CONNECTION = frozenset(
    {"host", "port", "path", "db", "connection_class", "connection_pool", "retry", "startup_nodes"}
    | {"max_connections", "timeout", "response_callbacks", "ssl", "cache", "cache_config"}
    | {"maint_notifications_config", "oss_cluster_maint_notifications_handler"}
    | {"event_dispatcher", "himport_cleanup", "redis_connect_func"}
)


# When the call that opens a connection has to be done with it.
_ends_at: ContextVar[float | None] = ContextVar("_ends_at", default=None)
# A socket without time left does not wait at all; that is another error than a timeout.
TIMEOUT_S_MIN = 0.001


@contextmanager
def connecting_within(seconds: float) -> Iterator[None]:
    """Connections of our own that are made in here take no longer than this."""
    token = _ends_at.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends_at.reset(token)


class _InTime:
    """A connection that is made in the time that its caller has left. Pools take no such thing."""

    socket_connect_timeout: float | None
    socket_timeout: float | None

    def _connect(self) -> Any:
        given = self.socket_connect_timeout, self.socket_timeout
        ends_at = _ends_at.get()
        if ends_at is None:
            return super()._connect()  # type: ignore[misc]
        left_s = max(ends_at - time.monotonic(), TIMEOUT_S_MIN)
        self.socket_connect_timeout = min(given[0] or left_s, left_s)
        self.socket_timeout = min(given[1] or left_s, left_s)
        try:
            connected = super()._connect()  # type: ignore[misc]
        finally:
            self.socket_connect_timeout, self.socket_timeout = given
        # What else is asked on a new connection is waited for as long, and not as long again.
        connected.settimeout(max(ends_at - time.monotonic(), TIMEOUT_S_MIN))
        return connected


@dataclass(frozen=True, slots=True)
class ConnectionSource:
    """Makes the pool of each server."""

    # A pool for a server, or for the only one there is.
    pool: Callable[[Address | None], Any]
    # Whether the pool is ours to close.
    owned: bool
    simulated: bool = False
    # The servers of a cluster that are asked first; none for a single server.
    seeds: tuple[Address, ...] = ()

    def keeps(self, pool: Any) -> bool:
        """Whether a lane may keep its connection: it is ours, or the application has many."""
        return self.owned or pool.max_connections >= 2 * (WRITE_LANES + READ_LANES)


def origin_of(options: RedisOptions, *, awaited: bool) -> ConnectionSource:
    """Where the connections of a store come from."""
    target = options.target
    if isinstance(target, str):
        scheme = target.partition("://")[0]
        if scheme.endswith("+cluster"):
            return _of_cluster_url(target, options, awaited=awaited)
        return _of_url(target, options, awaited=awaited)
    if isinstance(target, (redis.RedisCluster, redis.asyncio.RedisCluster)):
        return _of_cluster(target, options, awaited=awaited)
    pool = target.connection_pool
    simulated = any(
        kind.__module__.partition(".")[0] == "fakeredis"
        for kind in (*type(target).__mro__, *pool.connection_class.__mro__)
    )
    return ConnectionSource(lambda _: pool, owned=False, simulated=simulated)


def _parsed(url: str) -> dict[str, Any]:
    try:
        return dict(parse_url(url))  # type: ignore[no-untyped-call]
    except ValueError as error:
        # Its own words may quote the URL, and with it the password.
        raise UsageError(
            "a Redis URL is redis://[user:password@]host[:port][/db], rediss://… or"
            " unix://[user:password@]/path; a cluster's is redis+cluster://host:port,host:port"
        ) from error.__cause__


def _of_url(url: str, options: RedisOptions, *, awaited: bool) -> ConnectionSource:
    given = _parsed(url)
    module: Any = redis.asyncio if awaited else redis
    kind = module.Connection
    if url.startswith("rediss://"):
        kind = module.SSLConnection
    elif url.startswith("unix://"):
        kind = module.UnixDomainSocketConnection
    given.pop("connection_class", None)
    return ConnectionSource(lambda _: _pool(given, kind, options, awaited=awaited), owned=True)


def _of_cluster_url(url: str, options: RedisOptions, *, awaited: bool) -> ConnectionSource:
    parts = urlsplit(url.replace("+cluster", "", 1))
    user, at, places = parts.netloc.rpartition("@")
    first, *_ = hosts = places.split(",")
    given = _parsed(urlunsplit(parts._replace(netloc=f"{user}{at}{first}")))
    seeds = tuple(_address(host) for host in hosts if host)
    if not seeds:
        raise UsageError("a cluster's URL names at least one server: redis+cluster://host:port")
    given.pop("connection_class", None)
    return _cluster(given, seeds, options, tls=parts.scheme == "rediss", awaited=awaited)


def _address(text: str) -> Address:
    try:
        parts = urlsplit(f"//{text}")
        return Address(parts.hostname or "localhost", parts.port or DEFAULT_PORT)
    except ValueError:
        raise UsageError(f"not a host and a port: {text!r}") from None


def _of_cluster(client: Any, options: RedisOptions, *, awaited: bool) -> ConnectionSource:
    manager = client.nodes_manager
    given = dict(client.connection_kwargs if awaited else manager.connection_kwargs)
    nodes = (*manager.startup_nodes.values(), *manager.nodes_cache.values())
    seeds = tuple(dict.fromkeys(Address(node.host, int(node.port)) for node in nodes))
    kind = given.get("connection_class")
    tls = bool(given.get("ssl")) or (
        isinstance(kind, type)
        and issubclass(kind, (redis.SSLConnection, redis.asyncio.SSLConnection))
    )
    return _cluster(given, seeds, options, tls=tls, awaited=awaited)


def _cluster(
    given: dict[str, Any],
    seeds: tuple[Address, ...],
    options: RedisOptions,
    *,
    tls: bool,
    awaited: bool,
) -> ConnectionSource:
    """Pools of our own, one for each server.

    A cluster's client has no bound on waiting for a connection, and its own retries resend after
    a lost reply. So only its settings are used.
    """
    module: Any = redis.asyncio if awaited else redis
    kind = module.SSLConnection if tls else module.Connection
    kept = {name: value for name, value in given.items() if name not in _NOT_OF_A_CONNECTION}

    def pool(address: Address | None) -> Any:
        assert address is not None
        at = {**kept, "host": address.host, "port": address.port}
        return _pool(at, kind, options, awaited=awaited)

    return ConnectionSource(pool, owned=True, seeds=seeds)


def _pool(given: dict[str, Any], kind: Any, options: RedisOptions, *, awaited: bool) -> Any:
    module: Any = redis.asyncio if awaited else redis
    retry: Any = (redis.asyncio.retry.Retry if awaited else redis.retry.Retry)(NoBackoff(), 0)
    settings = {
        "socket_connect_timeout": min(options.timeout_s, CONNECT_S_MAX),
        # Every call has a deadline of its own; this one is for what connecting asks.
        "socket_timeout": None if awaited else options.timeout_s,
        "protocol": 2,
        **given,
        # Our own retries know whether a write may have landed; theirs do not.
        "retry": retry,
        "retry_on_error": [],
        "decode_responses": False,
    }
    # The lanes are the bound. The pool's is wider: a connection that was interrupted while it was
    # given back may stay on its books.
    if not awaited:
        kind = type(kind.__name__, (_InTime, kind), {})
    return module.ConnectionPool(
        connection_class=kind, max_connections=2 * (WRITE_LANES + READ_LANES), **settings
    )
