"""How a server is reached: options, the connection string, and what a refusal means."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from indelible.backends.postgres.statements import PostgresContext
from indelible.core.backend import Address
from indelible.core.clock import Clock
from indelible.core.deadline import Deadline
from indelible.errors import UsageError
from indelible.model import Durability

# How often a server that is up must refuse before that is an error: it may have come up between the
# attempt and the ping that follows it.
CONNECT_ATTEMPTS: Final = 2
# The ping holds up every thread of the process, since the driver keeps the interpreter's lock. It
# follows a refusal, so a server that is there answers at once.
PING_S_MAX: Final = 1
DEFAULT_PORT: Final = b"5432"


@dataclass(frozen=True, kw_only=True, slots=True)
class PostgresOptions:
    """How a store on a server is opened."""

    # A URL, perhaps with a password, or the pool of an application.
    target: Any = field(repr=False)
    # The target as messages show it: without its password.
    shown: str
    namespace: str
    durability: Durability | None
    timeout_s: float
    # None for the server's clock.
    clock: Clock | None
    # Whether entries are indexed by their words.
    search: bool = True
    # Called around every statement; for tests.
    seam: Any = None

    def build_context(self) -> PostgresContext:
        """Build the context of its plans."""
        return PostgresContext(self.namespace.encode(), self.clock, self.search)

    def build_conninfo(self) -> tuple[str, int]:
        """Build the connection string, and count the servers that it names."""
        return parse_url(self.target, shown=self.shown)

    def find_addresses(self) -> list[Address]:
        """Find where the servers of a URL listen; none for the default socket."""
        return _find_addresses(self.build_conninfo()[0]) if isinstance(self.target, str) else []


def parse_url(url: str, *, shown: str) -> tuple[str, int]:
    """Build the connection string for the server that can be written to; count the servers."""
    asked: dict[str, Any] | None = None
    # A percent sign may come before bytes that are not UTF-8.
    with suppress(psycopg.ProgrammingError, UnicodeDecodeError):
        asked = conninfo_to_dict(url)
    if asked is None:
        # Outside of a handler: the driver's error shows the URL with its password.
        raise UsageError(f"not a URL of a PostgreSQL server: {shown}")
    servers = str(asked.get("host") or asked.get("hostaddr") or "").count(",") + 1
    if servers > 1:
        asked.setdefault("target_session_attrs", "read-write")
    asked.setdefault("application_name", "indelible")
    return make_conninfo("", **asked), servers


def choose_connect_timeout(deadline: Deadline, servers: int) -> int:
    """Divide the time between several servers: a silent one must not take all of it."""
    return max(1, math.ceil(deadline.left_s() / servers))


def lacks_password(error: psycopg.Error) -> bool:
    """Return whether the server asked for a password and the client had none."""
    return error.pgconn is not None and error.pgconn.needs_password


def ping(conninfo: str) -> psycopg.pq.Ping:
    """Ask a server whether it accepts connections at all.

    A failed connection carries no code. But libpq knows the code, and tells by it whether a server
    that answered is only starting or ending (`REJECT`).
    """
    asked = make_conninfo(conninfo, connect_timeout=PING_S_MAX).encode()
    return psycopg.pq.Ping(psycopg.pq.PGconn.ping(asked))


async def ping_async(conninfo: str) -> psycopg.pq.Ping:
    """Ask it in a thread."""
    return await asyncio.to_thread(ping, conninfo)


def _find_addresses(conninfo: str) -> list[Address]:
    # Variables such as PGHOST are defaults of libpq.
    asked = {each.keyword: each.val for each in psycopg.pq.Conninfo.get_defaults() if each.val}
    given = psycopg.pq.Conninfo.parse(conninfo.encode())
    asked |= {each.keyword: each.val for each in given if each.val}
    hosts = (asked.get(b"hostaddr") or asked.get(b"host") or b"").decode().split(",")
    ports = asked.get(b"port", DEFAULT_PORT).decode().split(",")
    # One port is that of every server.
    ports = ports * len(hosts) if len(ports) == 1 else ports
    if wrong := [port for port in ports if port and not port.isdecimal()]:
        raise UsageError(f"the port of a PostgreSQL server is a number, not {wrong[0]!r}")
    return [
        _build_address(host, int(port or DEFAULT_PORT))
        for host, port in zip(hosts, ports, strict=False)
        if host
    ]


def _build_address(host: str, port: int) -> Address:
    # libpq takes a folder for the one in which a server has its socket.
    return f"{host}/.s.PGSQL.{port}" if host.startswith(("/", "@")) else (host, port)
