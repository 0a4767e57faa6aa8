"""Where peers keep their data: files in a folder, databases on servers of our own, each new."""

from __future__ import annotations

import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw

from benchmarks.peers.roster import POSTGRES, REDIS, SQLITE, Entry
from memory_contract.faults.servers.postgres import PostgresServer
from memory_contract.faults.servers.valkey import ValkeyServer

# The framework whose store is a folder of files.
IN_A_FOLDER = "strands"
# A server may hold back what it has to write while the disk is busy.
WRITTEN_S_MAX = 30.0
LOOK_AGAIN_S = 0.01
# A database for each place; and a file that only grows, so that its growth can be told.
SHARED = {"databases": "5000", "auto-aof-rewrite-percentage": "0"}
# Connections of 64 threads for each peer; and no upkeep of its own while something is measured.
UNDISTURBED = {
    "max_connections": "1000",
    "checkpoint_timeout": "1h",
    "max_wal_size": "16GB",
    "autovacuum_naptime": "1h",
}


class Databases(ABC):
    """Places on one engine, its durability in words, and how many bytes a place has on disk."""

    durability: str

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    @abstractmethod
    def start(self) -> None:
        """Start the server, if there is one; `close` ends it, however far it came."""

    @abstractmethod
    def fresh(self, entry: Entry) -> str:
        """A place where nothing is yet."""

    def settle(self, places: Iterable[str]) -> None:  # noqa: ARG002
        """Do the upkeep of what was prepared now, so that it is not done in between."""
        self.calm()

    def calm(self) -> None:
        """Write what the disk still owes to somebody: nobody pays for another."""
        os.sync()

    @abstractmethod
    def size(self, place: str) -> int:
        """Its bytes on disk."""

    @abstractmethod
    def version(self) -> str:
        """The engine and its version."""

    @abstractmethod
    def close(self) -> None:
        """End what was started."""


class Files(Databases):
    """SQLite files, and folders of those who keep plain files."""

    durability = "`synchronous=FULL`; WAL where the store chooses it; plain files are not synced"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def start(self) -> None:
        """There is no server."""

    def fresh(self, entry: Entry) -> str:
        path = self._folder / f"{next(self._numbers)}.db"
        if entry.environment == IN_A_FOLDER:
            path.mkdir()
        return str(path)

    def size(self, place: str) -> int:
        path = Path(place)
        if path.is_dir():
            # A small file takes a block.
            return sum(each.stat().st_blocks * 512 for each in path.rglob("*"))
        connection = apsw.Connection(place)
        connection.set_busy_timeout(10_000)
        # Those in the log are counted too, once; a log that is cut off would have to grow again.
        pages: int = connection.execute("PRAGMA page_count").get
        page_bytes: int = connection.execute("PRAGMA page_size").get
        connection.close()
        return pages * page_bytes

    def version(self) -> str:
        import sqlite3  # noqa: PLC0415 (only to name it)

        return (
            f"SQLite {apsw.sqlite_lib_version()} (indelible, bare driver), "
            f"{sqlite3.sqlite_version} (all others)"
        )

    def close(self) -> None:
        """Nothing runs."""


class OnRedis(Databases):
    """Numbered databases of one Valkey."""

    def __init__(self, folder: Path, *, appendfsync: str) -> None:
        super().__init__()
        self.durability = f"append-only file, `appendfsync {appendfsync}`"
        self._server = ValkeyServer(folder, {"appendfsync": appendfsync, **SHARED})

    def start(self) -> None:
        self._server.start()

    def fresh(self, entry: Entry) -> str:  # noqa: ARG002
        return f"{self._server.url}/{next(self._numbers)}"

    def size(self, place: str) -> int:  # noqa: ARG002 (others do not write meanwhile)
        with self._server.client() as client:
            deadline = time.monotonic() + WRITTEN_S_MAX
            while (told := client.info("persistence"))["aof_buffer_length"]:
                if time.monotonic() > deadline:
                    raise TimeoutError("the server does not write its file")
                time.sleep(LOOK_AGAIN_S)
            return int(told["aof_current_size"])

    def version(self) -> str:
        with self._server.client() as client:
            told: dict[str, Any] = client.info("server")
        return f"Valkey {told.get('valkey_version', told['redis_version'])}"

    def close(self) -> None:
        self._server.kill()


class OnPostgres(Databases):
    """Databases of one PostgreSQL."""

    durability = "`synchronous_commit=on`, `fsync=on`"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        # The server may run as somebody who cannot enter a private folder.
        for each in (folder.parent, folder.parent.parent):
            each.chmod(0o755)
        self._server = PostgresServer(folder, settings=UNDISTURBED)

    def start(self) -> None:
        self._server.create()
        self._server.start()

    def fresh(self, entry: Entry) -> str:  # noqa: ARG002
        name = f"place{next(self._numbers)}"
        # Copying files would be a checkpoint of the whole server.
        self._server.sql(f"CREATE DATABASE {name} STRATEGY wal_log")
        return self._server.url(name)

    def settle(self, places: Iterable[str]) -> None:
        for place in places:
            self._server.sql("VACUUM ANALYZE", _database(place))
        self._server.sql("CHECKPOINT")
        super().settle(places)

    def size(self, place: str) -> int:
        return int(self._server.sql(f"SELECT pg_database_size('{_database(place)}')"))

    def version(self) -> str:
        return "PostgreSQL " + self._server.sql("SHOW server_version").strip()

    def close(self) -> None:
        self._server.kill()


def _database(place: str) -> str:
    return place.rpartition("/")[2]


def choose_databases(engine: str, folder: Path, *, appendfsync: str) -> Databases:
    """The places of an engine, in a folder that may be thrown away; to be started."""
    folder.mkdir()
    if engine == SQLITE:
        return Files(folder)
    if engine == REDIS:
        return OnRedis(folder / "server", appendfsync=appendfsync)
    assert engine == POSTGRES
    return OnPostgres(folder / "server")
