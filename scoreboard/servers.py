"""python -m scoreboard.servers COMMAND ...: run a command beside a Valkey and a PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from memory_contract.faults.servers.postgres import PostgresServer
from memory_contract.faults.servers.valkey import ValkeyServer
from scoreboard.factories.places import DATABASES

REDIS: Final = "redis"
POSTGRES: Final = "postgres"
BOTH: Final = frozenset({REDIS, POSTGRES})


@contextlib.contextmanager
def start_servers(kinds: Collection[str]) -> Iterator[dict[str, str]]:
    """Servers of these kinds; what the environment of whoever uses them says of them."""
    folder = Path(tempfile.mkdtemp(prefix="indelible-scoreboard-"))
    # Servers that are not root must be able to enter.
    folder.chmod(0o755)
    told = {}
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        if REDIS in kinds:
            valkey = ValkeyServer(folder / REDIS, {"databases": str(DATABASES)})
            ending.callback(valkey.kill)
            valkey.start()
            told["SCOREBOARD_REDIS"] = valkey.url
        if POSTGRES in kinds:
            # Many workers, each with a connection or more of its own.
            postgres = PostgresServer(folder / POSTGRES, settings={"max_connections": "500"})
            ending.callback(postgres.kill)
            postgres.create()
            postgres.start()
            told["SCOREBOARD_POSTGRES"] = postgres.url()
        yield told


def main() -> int:
    """Run the command to its end."""
    command = sys.argv[1:]
    if not command or command[0] in {"-h", "--help"}:
        sys.stdout.write(f"{__doc__}\n\nFor example: python -m scoreboard.servers redis-cli ping\n")
        return 0 if command else 2
    # The servers end, however this does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with start_servers(BOTH) as told:
        return subprocess.run(command, env={**os.environ, **told}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
