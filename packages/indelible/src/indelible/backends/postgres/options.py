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
from indelible.core.clock import Clock
from indelible.core.deadline import Deadline
from indelible.errors import UsageError
from indelible.model import Durability

# How often a server that is up must refuse before that is an error: it may have come up between the
# attempt and the ping that follows it.
CONNECT_ATTEMPTS: Final = 2


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
    # Called around every statement; for tests.
    seam: Any = None

    def context(self) -> PostgresContext:
        """What its plans share."""
        return PostgresContext(self.namespace.encode(), self.clock)

    def conninfo(self) -> tuple[str, int]:
        """The connection string, and how many servers it names."""
        return parse_url(self.target, shown=self.shown)


def parse_url(url: str, *, shown: str) -> tuple[str, int]:
    """The connection string for the server that can be written to, and how many there are."""
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
    """How long to try each of several servers: a silent one must not take all the time."""
    return max(1, math.ceil(deadline.left_s() / servers))


def lacks_password(error: psycopg.Error) -> bool:
    """Whether the server asked for a password and the client had none."""
    return error.pgconn is not None and error.pgconn.needs_password


def is_up(conninfo: str, timeout_s: int) -> bool:
    """Whether the only server accepts connections at all.

    A failed connection carries no code. But libpq knows the code, and tells by it whether a server
    that answered is only starting or ending.
    """
    asked = make_conninfo(conninfo, connect_timeout=timeout_s).encode()
    return psycopg.pq.PGconn.ping(asked) == psycopg.pq.Ping.OK


async def is_up_async(conninfo: str, timeout_s: int) -> bool:
    """The same, in a thread."""
    return await asyncio.to_thread(is_up, conninfo, timeout_s)
