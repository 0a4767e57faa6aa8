"""The Valkey server of this test process: started when it is first needed, ended with it."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from memory_contract.faults.servers.valkey import ValkeyServer


@cache
def running():
    """The server. Its file is not synced: no test here pulls the plug."""
    folder = Path(tempfile.mkdtemp(prefix="indelible-valkey-"))
    server = ValkeyServer(folder, {"appendfsync": "no"})
    server.start()

    def end():
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return server


def emptied():
    """The server's URL, with nothing on it."""
    server = running()
    with server.client() as client:
        client.flushall()
    return server.url
