"""Options of a store, and clients of redis-py that are made from a URL.

redis-py finds the servers of a cluster, opens connections and parses replies. Its retries are
switched off: after a lost reply they send a command again, which would append twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.retry
import redis.cluster
import redis.retry
from redis.backoff import NoBackoff
from redis.connection import parse_url

from indelible.core.backend import Address
from indelible.core.clock import Clock
from indelible.errors import UsageError
from indelible.model import Durability

# One connection is enough for writes, since concurrent writes share its round trips.
WRITE_CONNECTIONS = 1
READ_CONNECTIONS = 8
# Connecting takes one round trip; a server that does not answer it will not answer the call either.
CONNECT_S_MAX = 5.0
# One server after the other is asked for the map of slots; each may take a fourth of the time.
CLUSTER_SHARE = 4
# A socket with a timeout of zero does not block, and raises another error than a timeout.
TIMEOUT_S_MIN = 0.001
DEFAULT_PORT = 6379
CLUSTER_SLOTS = 16384

_PARAMETERS = frozenset(
    {"db", "username", "password", "protocol", "client_name", "socket_timeout"}
    | {"socket_connect_timeout", "socket_keepalive", "health_check_interval"}
)
_TLS_PARAMETERS = frozenset(
    {"ssl_ca_certs", "ssl_ca_path", "ssl_ca_data", "ssl_cert_reqs", "ssl_certfile", "ssl_keyfile"}
    | {"ssl_password", "ssl_check_hostname", "ssl_min_version", "ssl_ciphers"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisOptions:
    """The options of a store."""

    # A URL, perhaps with a password, or a client of the application.
    target: Any = field(repr=False)
    # The target without its password, for messages.
    shown: str
    namespace: str
    # The demanded level; None if any level is accepted.
    durability: Durability | None
    timeout_s: float
    # None for the server's clock; a caller's clock is for tests.
    clock: Clock | None = None

    def find_addresses(self) -> list[Address]:
        """Find where the servers of a URL listen; none for a client of the application."""
        if not isinstance(self.target, str):
            return []
        _, hosts, settings = _parse_url(self.target)
        if "path" in settings:
            return [str(settings["path"])]
        return [*hosts] or [(settings.get("host", "localhost"), settings.get("port", DEFAULT_PORT))]


def is_cluster(target: Any) -> bool:
    """Return whether a URL or a client is that of a cluster."""
    if isinstance(target, str):
        return target.partition("://")[0].endswith("+cluster")
    return isinstance(target, (redis.RedisCluster, redis.asyncio.RedisCluster))


def is_simulated(target: Any) -> bool:
    """Return whether a client is one of fakeredis, which has no server."""
    if isinstance(target, str) or is_cluster(target):
        return False
    kinds = (*type(target).__mro__, *target.connection_pool.connection_class.__mro__)
    return any(kind.__module__.partition(".")[0] == "fakeredis" for kind in kinds)


def build_client(options: RedisOptions, *, awaited: bool) -> Any:
    """Create the client of a single server. It connects when it is first used."""
    # Refuses what redis-py would silently accept.
    _parse_url(options.target)
    module: Any = redis.asyncio if awaited else redis
    return module.Redis.from_url(
        options.target, **_build_settings(options.timeout_s, awaited=awaited)
    )


def build_cluster_client(options: RedisOptions, *, awaited: bool) -> Any:
    """Create the client of a cluster. The blocking one connects at once, the other when awaited."""
    scheme, hosts, settings = _parse_url(options.target)
    module: Any = redis.asyncio.cluster if awaited else redis.cluster
    settings.pop("db", None)
    defaults = _build_settings(options.timeout_s / CLUSTER_SHARE, awaited=awaited)
    return module.RedisCluster(
        startup_nodes=[module.ClusterNode(host, port) for host, port in hosts],
        ssl=scheme == "rediss",
        # A slot without a server must not make the others unreachable.
        require_full_coverage=False,
        **(defaults | settings),
    )


def _build_settings(timeout_s: float, *, awaited: bool) -> dict[str, Any]:
    """Build the default settings of connections; those in a URL override them."""
    module: Any = redis.asyncio.retry if awaited else redis.retry
    return {
        "socket_connect_timeout": min(timeout_s, CONNECT_S_MAX),
        # For the replies to AUTH and SELECT; every call has a deadline of its own.
        "socket_timeout": timeout_s,
        "protocol": 2,
        # Only our own retries know whether a write may have landed.
        "retry": module.Retry(NoBackoff(), 0),
        "decode_responses": False,
    }


def _parse_url(url: str) -> tuple[str, list[tuple[str, int]], dict[str, Any]]:
    """Return the scheme without `+cluster`, the servers, and the settings of a connection."""
    hosts: list[tuple[str, int]] = []
    parts = urlsplit(url)
    if is_cluster(url):
        names, at, places = parts.netloc.rpartition("@")
        hosts = [_parse_host(host) for host in places.split(",") if host]
        if not hosts:
            raise UsageError("a cluster's URL names at least one server: redis+cluster://host:port")
        parts = parts._replace(
            scheme=parts.scheme.removesuffix("+cluster"),
            netloc=f"{names}{at}{places.partition(',')[0]}",
        )
        url = urlunsplit(parts)
    _refuse_unknown_parameters(parts.scheme, parts.query)
    database = parts.path.removeprefix("/")
    # redis-py would take database 0 in place of a name, and 1 in place of 0/1.
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise UsageError(f"a database of Redis is a number, not {database!r}", value=database)
    try:
        settings: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]
    except ValueError as error:
        # Its message may quote the URL, and with it the password.
        raise UsageError(
            "a Redis URL is redis://[user:password@]host[:port][/db], rediss://… or"
            " unix://[user:password@]/path; a cluster's is redis+cluster://host:port,host:port"
        ) from error.__cause__
    settings.pop("connection_class", None)
    if hosts:
        settings.pop("host", None)
        settings.pop("port", None)
    return parts.scheme, hosts, settings


def _refuse_unknown_parameters(scheme: str, query: str) -> None:
    allowed = _PARAMETERS | _TLS_PARAMETERS if scheme == "rediss" else _PARAMETERS
    for name, _ in parse_qsl(query, keep_blank_values=True):
        if name not in allowed:
            raise UsageError(
                f"a {scheme}:// URL has no parameter {name!r}; there are"
                f" {', '.join(sorted(allowed))}",
                value=name,
            )


def _parse_host(text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        return parts.hostname or "localhost", parts.port or DEFAULT_PORT
    except ValueError:
        raise UsageError(f"not a host and a port: {text!r}") from None
