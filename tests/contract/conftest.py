"""Where each engine is, for tests that send it through the kit."""

import pytest

from tests.support import postgres_server, redis_cluster, redis_server

SERVERS = ["redis", "cluster", "postgres"]


@pytest.fixture
def cluster():
    """The cluster of this test process."""
    return redis_cluster.running()


def _place(engine, request):
    match engine:
        case "redis":
            return redis_server.emptied()
        case "cluster":
            return redis_cluster.emptied()
        case "postgres":
            return postgres_server.emptied_database()
        case "sqlite":
            return f"sqlite:///{request.getfixturevalue('tmp_path')}/agent.db"
        case _:
            return "memory:"


@pytest.fixture(params=["memory", "sqlite", *SERVERS])
def url(request):
    """Where an engine is; what has no server is a file in a folder of its own."""
    return _place(request.param, request)


@pytest.fixture(params=SERVERS)
def server_url(request):
    """Where a server is."""
    return _place(request.param, request)
