"""Servers that the kit starts on demand, one of each kind, and that end with this process."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

from memory_contract.faults.servers import postgres, valkey
from memory_contract.faults.servers.postgres import PostgresServer
from memory_contract.faults.servers.process import ServerError
from memory_contract.faults.servers.valkey import ValkeyServer

Server = TypeVar("Server", ValkeyServer, PostgresServer)

# The schemes of servers that the kit can start.
REDIS: Final = "redis://"
POSTGRES: Final = ("postgresql://", "postgres://")
KINDS: Final = (REDIS, *POSTGRES)
# Every write is with the system before it is answered: that survives a kill.
_UNSYNCED: Final = {"appendfsync": "no"}
# After a kill, PostgreSQL would otherwise sync each of its files, one by one.
_QUICK: Final = {"recovery_init_sync_method": "syncfs"}
STARTS_MAX: Final = 5
_started: list[tuple[ValkeyServer | PostgresServer, Path]] = []


class ServerMissing(Exception):  # noqa: N818 -- names what happened
    """This machine has no such server."""


def start_until_exit(name: str, build: Callable[[Path], Server]) -> Server:
    """Start a server in a folder of its own; both are gone when this process ends.

    Another process may take its port before the server does; then the next one is built.
    """
    if not _started:
        atexit.register(end_started)
    for attempt in range(1, STARTS_MAX + 1):
        folder = create_folder(name)
        server = build(folder)
        _started.append((server, folder))
        try:
            if isinstance(server, PostgresServer):
                server.create()
            server.start()
        except ServerError:
            if attempt == STARTS_MAX:
                raise
        else:
            return server
    raise AssertionError("unreachable")


def create_folder(name: str) -> Path:
    """Create a folder that another user may enter: PostgreSQL refuses to run as root."""
    folder = Path(tempfile.mkdtemp(prefix=f"indelible-{name}-"))
    folder.chmod(0o755)
    return folder


def end_started() -> None:
    """End all these servers. A test run calls it: its processes may be killed before they exit."""
    while _started:
        server, folder = _started.pop()
        server.thaw()
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def start_managed(url: str) -> ValkeyServer | PostgresServer:
    """A running server of the kind that a URL names, which a case may kill, freeze and empty."""
    return _start_redis() if url.startswith(REDIS) else _start_pg()


@cache
def _start_redis() -> ValkeyServer:
    _require(valkey.find_program)
    return start_until_exit("redis", lambda folder: ValkeyServer(folder, _UNSYNCED))


@cache
def _start_pg() -> PostgresServer:
    _require(postgres.find_programs)
    return start_until_exit("pg", lambda folder: PostgresServer(folder / "pg", settings=_QUICK))


def _require(find_program: Callable[[], object]) -> None:
    try:
        find_program()
    except ServerError as error:
        raise ServerMissing(f"there is no such server here: {error}") from error
