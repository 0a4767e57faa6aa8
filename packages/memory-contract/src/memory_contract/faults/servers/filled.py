"""Servers of the kit's own on disks that can be filled; what they wrote is gone when they end."""

from __future__ import annotations

import atexit
from functools import cache
from typing import Final

from memory_contract.faults.servers.managed import (
    KINDS,
    end,
    has_postgres,
    has_redis,
    own_folder,
)
from memory_contract.faults.servers.postgres import DATA, PostgresServer
from memory_contract.faults.servers.small_disk import SmallDisk
from memory_contract.faults.servers.valkey import ValkeyServer

# A PostgreSQL takes 40 MB, and 16 MB for each of some parts of its log.
REDIS_DISK_BYTES: Final = 4_000_000
POSTGRES_DISK_BYTES: Final = 96_000_000
# If it synced every write, it would end itself at the first that fails.
_LASTING: Final = {"appendfsync": "no"}
_SMALL: Final = {"min_wal_size": "32MB", "max_connections": "30"}


class Small:
    """A server on a small disk."""

    def __init__(self, server: ValkeyServer | PostgresServer, disk: SmallDisk) -> None:
        self._server = server
        self._disk = disk

    @property
    def url(self) -> str:
        """How clients reach it."""
        return self._server.url() if isinstance(self._server, PostgresServer) else self._server.url

    def fill(self) -> None:
        """Leave it no room."""
        if isinstance(self._server, PostgresServer):
            # The next part of its log is made before: without that it would end itself.
            self._server.sql("SELECT pg_switch_wal()")
            self._server.sql("CHECKPOINT")
        self._disk.fill(self._server.pid)

    def free(self) -> None:
        """Give the room back."""
        self._disk.free()


def start_on_small_disk(url: str) -> Small:
    """The server of the kind that a URL names, running on a small disk: one of each."""
    if url.startswith("redis://"):
        return _redis()
    assert url.startswith(KINDS)
    return _postgres()


@cache
def _redis() -> Small:
    has_redis()
    folder = own_folder("small-redis")
    disk = SmallDisk(folder / "disk", bytes_max=REDIS_DISK_BYTES)
    server = ValkeyServer(folder, _LASTING, disk=disk)
    atexit.register(end, server, folder)
    server.start()
    return Small(server, disk)


@cache
def _postgres() -> Small:
    has_postgres()
    folder = own_folder("small-postgres")
    disk = SmallDisk(folder / "disk", bytes_max=POSTGRES_DISK_BYTES, holds=folder / DATA)
    server = PostgresServer(folder, settings=_SMALL, disk=disk)
    atexit.register(end, server, folder)
    server.create()
    server.start()
    return Small(server, disk)
