"""The Valkey server of this test process: started when it is first needed, ended with it."""

from functools import cache

from memory_contract.faults.servers.managed import start_until_exit
from memory_contract.faults.servers.valkey import ValkeyServer


@cache
def running():
    """The server. Its file is not synced: no test here pulls the plug."""
    return start_until_exit("valkey", lambda folder: ValkeyServer(folder, {"appendfsync": "no"}))


@cache
def client():
    """A client that stays connected: to connect takes longer than to empty the server."""
    return running().client()


def emptied():
    """The server's URL, with nothing on it."""
    client().flushall()
    return running().url
