"""A primary, its replica, and a sentinel that lets the replica take over."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from memory_contract.faults.servers.ports import LOOPBACK, reserve_port
from memory_contract.faults.servers.process import (
    LOOK_AGAIN_S,
    READY_S_MAX,
    ServerError,
    ServerProcess,
)
from memory_contract.faults.servers.valkey import ValkeyServer

# What the sentinel calls the primary and whoever follows it.
NAME: Final = "main"
# Silence after which a primary is taken for dead.
DEAD_AFTER_MS: Final = 1000


class SentinelGroup:
    """Two servers and one sentinel, which is enough where nobody watches the sentinel."""

    def __init__(self, folder: Path) -> None:
        self.primary = ValkeyServer(folder / "primary")
        follows = {"replicaof": f"{LOOPBACK} {self.primary.port}"}
        self.replica = ValkeyServer(folder / "replica", follows)
        self.port = reserve_port()
        self._folder = folder
        self._sentinel: ServerProcess | None = None

    def start(self) -> None:
        """Start all three, and wait until the sentinel knows both servers."""
        self.primary.start()
        self.replica.start()
        # It keeps what it learns in its file.
        settings = self._folder / "sentinel.conf"
        settings.write_text(
            f"port {self.port}\nbind {LOOPBACK}\ndir {self._folder}\n"
            f"sentinel monitor {NAME} {LOOPBACK} {self.primary.port} 1\n"
            f"sentinel down-after-milliseconds {NAME} {DEAD_AFTER_MS}\n",
            "utf-8",
        )
        self._sentinel = ServerProcess(
            [self.primary.program, str(settings), "--sentinel"],
            port=self.port,
            log=self._folder / "sentinel.log",
            ready=self._answers,
        )
        self._sentinel.start()
        self._wait_for_replica()

    def stop(self) -> None:
        """End all three."""
        if self._sentinel is not None:
            self._sentinel.kill()
        self.replica.kill()
        self.primary.kill()

    def _client(self) -> Any:
        import redis

        return redis.Redis(host=LOOPBACK, port=self.port, socket_timeout=10, protocol=2)

    def _answers(self) -> bool:
        import redis

        with self._client() as client:
            try:
                return bool(client.ping())
            except redis.exceptions.ConnectionError:
                return False

    def _wait_for_replica(self) -> None:
        deadline = time.monotonic() + READY_S_MAX
        with self._client() as client:
            # A replica that is not known yet, or not connected, is not chosen.
            while [each["master-link-status"] for each in client.sentinel_slaves(NAME)] != ["ok"]:
                if time.monotonic() > deadline:
                    raise ServerError("the sentinel did not find the replica")
                time.sleep(LOOK_AGAIN_S)
