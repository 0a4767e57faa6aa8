"""The cluster of this test process: started when it is first needed, ended with it."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from memory_contract.faults.servers.managed import STARTS_MAX
from memory_contract.faults.servers.process import ServerError
from tests.support.valkey_cluster import PRIMARIES, ValkeyCluster


@cache
def running():
    """Six servers. Their files are not synced: no test here pulls the plug."""
    atexit.register(end)
    for attempt in range(1, STARTS_MAX + 1):
        folder = Path(tempfile.mkdtemp(prefix="indelible-cluster-"))
        cluster = ValkeyCluster(folder, {"appendfsync": "no"})
        try:
            cluster.start()
            cluster.calm()
        except ServerError:
            # Another process may have taken one of its twelve ports first.
            cluster.stop()
            shutil.rmtree(folder, ignore_errors=True)
            if attempt == STARTS_MAX:
                raise
        else:
            return cluster
    raise AssertionError("unreachable")


@cache
def primaries():
    """A client of each primary, which stays connected. None of them is ever replaced."""
    return [node.client() for node in running().nodes[:PRIMARIES]]


def end():
    """End the cluster, if there is one."""
    if running.cache_info().currsize:
        running().stop()
        shutil.rmtree(running().nodes[0].folder.parent, ignore_errors=True)


def emptied():
    """The cluster's URL, with nothing on any of its servers."""
    for client in primaries():
        client.flushall()
    return running().url
