"""Where each engine is, for tests that send it through the kit."""

import pytest

from tests.support import redis_cluster
from tests.support.stores import EMBEDDED, ENGINES, empty_url

SERVERS = [*(engine for engine in ENGINES if engine not in EMBEDDED), "cluster"]


@pytest.fixture
def cluster():
    """The cluster of this test process."""
    return redis_cluster.running()


def _url(engine, folder):
    url = empty_url(engine, folder)
    return f"sqlite:///{url}" if engine == "sqlite" else url


@pytest.fixture(params=[*EMBEDDED, *SERVERS])
def url(request, tmp_path):
    """Where an engine is; what has no server is a file in a folder of its own."""
    return _url(request.param, tmp_path)


@pytest.fixture(params=SERVERS)
def server_url(request, tmp_path):
    """Where a server is."""
    return _url(request.param, tmp_path)
