"""Stores on a workspace of the kit, for factories that other processes import."""

import os
import threading
from pathlib import Path

import indelible
from tests.support.stores import unsynced

# Where the server of this test run is; other processes have it from the environment.
REDIS = "INDELIBLE_TEST_REDIS"


_stores = {}
_lock = threading.Lock()


def opened(url, namespace=""):
    """One store for each place and process, as an application has it."""
    with _lock:
        place = (os.getpid(), url, namespace)
        if place not in _stores:
            _stores[place] = indelible.open(url, namespace=namespace, **unsynced(url))
        return _stores[place]


def sqlite(workspace):
    return opened(str(Path(workspace) / "agent.db"))


def memory(workspace):
    # Its own for each workspace: a store in memory is shared by those who hold it.
    return opened("memory:", namespace=str(workspace))


def redis(workspace):
    return opened(os.environ[REDIS], namespace=Path(workspace).name)


def close_all():
    """Close what this process opened: whoever forks later would have to let go of all of it."""
    with _lock:
        for store in _stores.values():
            store.close()
        _stores.clear()
