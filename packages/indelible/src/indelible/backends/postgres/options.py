"""Options of a store, the connection string, and what a refused connection means."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, PGconn, Ping

from indelible.core.backend import Address
from indelible.core.clock import Clock
from indelible.core.deadline import Deadline
from indelible.errors import UsageError
from indelible.model import Durability

# A server that is up must refuse this often before that is an error: it may have started between
# the attempt and the ping that follows it.
CONNECT_ATTEMPTS: Final = 2
# The ping stops every thread of the process, since the driver does not release the GIL. It follows
# a refusal, so a server that is up answers at once.
PING_S_MAX: Final = 1
DEFAULT_PORT: Final = b"5432"


@dataclass(frozen=True, kw_only=True, slots=True)
class PostgresOptions:
    """The options of a store."""

    # A URL, perhaps with a password, or the pool of an application.
    target: Any = field(repr=False)
    # The target without its password, for messages.
    shown: str
    namespace: str
    durability: Durability | None
    timeout_s: float
    # None for the server's clock.
    clock: Clock | None
    # Whether entries are indexed by their words.
    search: bool = True

    def build_conninfo(self) -> tuple[str, int]:
        """Build the connection string for a server that accepts writes, and count the servers."""
        given: dict[str, Any] | None = None
        # A percent sign may come before bytes that are not UTF-8.
        with suppress(psycopg.ProgrammingError, UnicodeDecodeError):
            given = conninfo_to_dict(self.target)
        if given is None:
            # Raised outside of a handler: the driver's error shows the URL with its password.
            raise UsageError(f"not a URL of a PostgreSQL server: {self.shown}")
        servers = str(given.get("host") or given.get("hostaddr") or "").count(",") + 1
        if servers > 1:
            given.setdefault("target_session_attrs", "read-write")
        given.setdefault("application_name", "indelible")
        return make_conninfo("", **given), servers

    def find_addresses(self) -> list[Address]:
        """Find where the servers of a URL listen; none for the default socket or a pool."""
        if not isinstance(self.target, str):
            return []
        # Variables such as PGHOST are defaults of libpq.
        conninfo, _ = self.build_conninfo()
        parsed = (*Conninfo.get_defaults(), *Conninfo.parse(conninfo.encode()))
        values = {each.keyword: each.val for each in parsed if each.val}
        hosts = (values.get(b"hostaddr") or values.get(b"host") or b"").decode().split(",")
        ports = values.get(b"port", DEFAULT_PORT).decode().split(",")
        # A single port is that of every server.
        ports = ports * len(hosts) if len(ports) == 1 else ports
        if wrong := [port for port in ports if port and not port.isdecimal()]:
            raise UsageError(f"the port of a PostgreSQL server is a number, not {wrong[0]!r}")
        return [
            _build_address(host, int(port or DEFAULT_PORT))
            for host, port in zip(hosts, ports, strict=False)
            if host
        ]


def _build_address(host: str, port: int) -> Address:
    # libpq takes a folder for the one that holds the socket of a server.
    return f"{host}/.s.PGSQL.{port}" if host.startswith(("/", "@")) else (host, port)


def choose_connect_timeout(deadline: Deadline, servers: int) -> int:
    """Divide the time between several servers, so that a silent one does not use all of it."""
    return max(1, math.ceil(deadline.left_s() / servers))


def lacks_password(error: psycopg.Error) -> bool:
    """Return whether the server asked for a password and the client had none."""
    return error.pgconn is not None and error.pgconn.needs_password


def ping(conninfo: str) -> Ping:
    """Ask a server whether it accepts connections at all.

    The error of a failed connection has no SQLSTATE. But libpq knows it, and tells by it whether a
    server that answered is only starting or stopping (`REJECT`).
    """
    bounded = make_conninfo(conninfo, connect_timeout=PING_S_MAX)
    return Ping(PGconn.ping(bounded.encode()))
