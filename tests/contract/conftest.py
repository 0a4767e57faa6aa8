"""Where each engine is, for tests that send it through the kit."""

import pytest

from memory_contract.targets import probe
from tests.support import redis_cluster
from tests.support.stores import ENGINES, SERVERS, empty_url


@pytest.fixture(autouse=True)
def _a_busy_machine_has_time_to_probe(monkeypatch):
    """Another process imports the store's framework; what was not tried in time is not claimed."""
    monkeypatch.setattr(probe, "PROBE_S_MAX", 300.0)


@pytest.fixture
def cluster():
    """The cluster of this test process."""
    return redis_cluster.running()


@pytest.fixture(params=[*ENGINES, "cluster"])
def url(request, tmp_path):
    """Where an engine is; what has no server is a file in a folder of its own."""
    return empty_url(request.param, tmp_path)


@pytest.fixture(params=[*SERVERS, "cluster"])
def server_url(request, tmp_path):
    """Where a server is."""
    return empty_url(request.param, tmp_path)
