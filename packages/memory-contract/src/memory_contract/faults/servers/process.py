"""One server process, from its start to its end."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from memory_contract.faults.servers.ports import is_listening

# For servers that hang: a busy machine must not fail a start.
READY_S_MAX: Final = 60.0
ENDED_S_MAX: Final = 60.0
# Between two looks at a server that is not ready yet.
LOOK_AGAIN_S: Final = 0.01
# Of its log, what an error shows.
_LAST_LINES: Final = 5


class ServerError(RuntimeError):
    """A server did not start, or ended unexpectedly."""


def find_unprivileged_user() -> int | None:
    """The user to run a server as that refuses to be root."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


class ServerProcess:
    """A program that serves until it is ended. Its output goes to `log`."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        port: int,
        log: Path,
        ready: Callable[[], bool],
        user: int | None = None,
        ending: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.port = port
        self._arguments = list(arguments)
        self._log = log
        self._ready = ready
        self._user = user
        # The signal that asks it to shut down.
        self._ending = ending
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process that serves."""
        if self._process is None:
            raise ServerError("the server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 -- our own arguments, no shell
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                # Ctrl-C must not reach it before the kit ends it.
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_S_MAX
        # Another server on this port may answer as well, while ours has not found it taken yet.
        while not (self.running and is_listening(self.pid, self.port) and self._ready()):
            if not self.running or time.monotonic() > deadline:
                self.kill()
                raise ServerError(f"{self._arguments[0]} did not start: {self.read_log_tail()}")
            time.sleep(LOOK_AGAIN_S)

    def read_log_tail(self) -> str:
        """The end of its log."""
        said = self._log.read_text("utf-8", errors="replace").splitlines()
        return " / ".join(said[-_LAST_LINES:])

    def stop(self) -> None:
        """Shut it down; kill it if it does not end."""
        self._signal(signal.SIGCONT)
        self._signal(self._ending)
        try:
            self._wait(ENDED_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill it."""
        self._signal(signal.SIGKILL)
        self._wait(ENDED_S_MAX)

    def freeze(self) -> None:
        """Stop it: connections stay open, and nobody is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            os.kill(self.pid, number)

    def _wait(self, seconds: float) -> None:
        if self._process is not None:
            self._process.wait(seconds)
