"""Where each engine is, for tests that send it through the kit."""

import pytest

import postgres_here
import redis_here
from indelible.contract.faults.servers.cluster import ValkeyCluster

ENGINES = ["memory", "sqlite", "redis", "cluster", "postgres"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A cluster of six, for whoever asks first."""
    started = ValkeyCluster(tmp_path_factory.mktemp("cluster"))
    started.start()
    yield started
    started.stop()


@pytest.fixture(params=ENGINES)
def url(request, tmp_path):
    """Where an engine is; what has no server is a file in a folder of its own."""
    match request.param:
        case "memory":
            return "memory:"
        case "sqlite":
            return f"sqlite:///{tmp_path}/agent.db"
        case "redis":
            return redis_here.emptied()
        case "cluster":
            return request.getfixturevalue("cluster").url
        case _:
            return postgres_here.emptied_database()
