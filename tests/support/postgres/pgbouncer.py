"""Debian's PgBouncer in transaction mode, as `make .venv/pgbouncer/.ready` unpacks it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import psycopg

from tests.support.wait import wait_until

UNPACKED = Path(sys.prefix) / "pgbouncer"
SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 200
"""


class PgBouncer:
    """Listens on a loopback port; each transaction gets any of a few connections."""

    def __init__(self, server_port, folder, *, connections=3):
        program = UNPACKED / "usr" / "sbin" / "pgbouncer"
        assert program.exists(), f"{program} is missing: make .venv/pgbouncer/.ready"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        settings = folder / "pgbouncer.ini"
        text = SETTINGS.format(server=server_port, port=self._port, connections=connections)
        settings.write_text(text)
        libraries = UNPACKED / "usr" / "lib" / "x86_64-linux-gnu"
        # It refuses to run as root.
        other_user = ["-u", "nobody"] if os.getuid() == 0 else []
        self._process = subprocess.Popen(
            [program, "--quiet", *other_user, settings],
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
        )
        wait_until(self._is_up)

    def url(self, database="postgres"):
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    def _is_up(self):
        assert self._process.poll() is None, "it ended"
        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return False
        return True

    def close(self):
        self._process.terminate()
        self._process.wait()
