"""The engines of a soak: servers of our own, and the faults that strike them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, Protocol

from indelible import connect
from indelible.connect import Storage
from memory_contract.faults.servers.postgres import PostgresServer
from memory_contract.faults.servers.valkey import ValkeyServer
from tests.support.valkey_cluster import PRIMARIES, ValkeyCluster

FREEZE_S_MAX: Final = 0.8


class Server(Protocol):
    """A server of our own."""

    def start(self) -> None:
        """Start it."""

    def kill(self) -> None:
        """Kill it."""

    def freeze(self) -> None:
        """Stop its process without ending it."""

    def thaw(self) -> None:
        """Let its process continue."""


class Engine:
    """An engine, and the number of its writers."""

    name = ""
    writers = 1
    # Whether the data outlives the process of a writer.
    shared = True
    # The pause of a task after each call.
    rest_s = 0.0

    def open(self, chunk: int) -> str:
        """Prepare an empty store; return its URL."""
        raise NotImplementedError

    def discard(self) -> None:
        """Delete the data of the chunk."""

    def servers(self) -> list[Server]:
        """Return the servers that can be frozen and killed."""
        return []

    def end(self) -> None:
        """End the servers."""


class Memory(Engine):
    """A dict in the writer's own process."""

    name = "memory"
    shared = False
    rest_s = 0.02

    def open(self, chunk: int) -> str:  # noqa: ARG002 -- always the same
        """Return the URL of a store in memory."""
        return "memory:"


class File(Engine):
    """One file for each chunk, synced at each commit."""

    writers = 2

    def __init__(self, folder: Path, *, name: str) -> None:
        self.name = name
        self._folder = folder

    def open(self, chunk: int) -> str:
        """Create a folder; return the URL of a file in it."""
        self._files = self._folder / f"chunk-{chunk}"
        self._files.mkdir(parents=True)
        return f"{self.name}:///{self._files}/agent.db"

    def discard(self) -> None:
        """Remove the file."""
        shutil.rmtree(self._files)


class Redis(Engine):
    """One Valkey that syncs every write."""

    name = "redis"
    writers = 2

    def __init__(self, folder: Path) -> None:
        self._server = ValkeyServer(folder)
        self._server.start()

    def open(self, chunk: int) -> str:  # noqa: ARG002 -- emptied after each
        """Return the URL of the server."""
        return self._server.url

    def discard(self) -> None:
        """Empty it."""
        _empty(self._server)

    def servers(self) -> list[Server]:
        """Return the server."""
        return [self._server]

    def end(self) -> None:
        """End it."""
        self._server.kill()


class Cluster(Engine):
    """Three primaries with a replica each, which do not take over.

    A failover may lose what was acknowledged, by design of the engine; a primary that comes back
    with its file may not.
    """

    name = "cluster"

    def __init__(self, folder: Path) -> None:
        self._cluster = ValkeyCluster(folder, {"cluster-replica-no-failover": "yes"})
        self._cluster.start()

    def open(self, chunk: int) -> str:  # noqa: ARG002 -- emptied after each
        """Wait until the cluster is whole; return its URL."""
        self._cluster.until_whole()
        return self._cluster.url

    def discard(self) -> None:
        """Empty it."""
        for node in self._cluster.nodes[:PRIMARIES]:
            _empty(node)

    def servers(self) -> list[Server]:
        """Return the primaries."""
        return [*self._cluster.nodes[:PRIMARIES]]

    def end(self) -> None:
        """End all of it."""
        self._cluster.stop()


class Postgres(Engine):
    """One server, and a database for each chunk."""

    name = "postgres"
    writers = 2

    def __init__(self, folder: Path) -> None:
        self._server = PostgresServer(folder / "postgres")
        self._server.create()
        self._server.start()

    def open(self, chunk: int) -> str:
        """Create a database; return its URL."""
        self._database = f"chunk_{chunk}"
        self._server.sql(f"CREATE DATABASE {self._database}")
        return self._server.url(self._database)

    def discard(self) -> None:
        """Drop it."""
        self._server.sql(f"DROP DATABASE {self._database} WITH (FORCE)")

    def servers(self) -> list[Server]:
        """Return the server."""
        return [self._server]

    def end(self) -> None:
        """End it, and remove what it wrote."""
        self._server.remove()


def _empty(server: ValkeyServer) -> None:
    with server.client() as client:
        client.flushall()


ENGINES: Final[dict[str, Callable[[Path], Engine]]] = {
    "memory": lambda _: Memory(),
    **{
        engine.name: partial(File, name=engine.name)
        for engine in connect.ENGINES
        if engine.storage is Storage.FILE
    },
    "redis": Redis,
    "cluster": Cluster,
    "postgres": Postgres,
}


def restart(server: Server, _: Random) -> None:
    """Kill a server and start it again on what it wrote."""
    server.kill()
    server.start()


def freeze(server: Server, chance: Random) -> None:
    """Let a server stand still for a moment."""
    server.freeze()
    time.sleep(chance.uniform(0.05, FREEZE_S_MAX))
    server.thaw()
