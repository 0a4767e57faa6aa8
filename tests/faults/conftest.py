"""Servers for tests of bad days, started when they are first needed."""

import pytest

from memory_contract.faults.servers.cluster import ValkeyCluster


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory):
    """A cluster of six, for whoever asks first."""
    started = ValkeyCluster(tmp_path_factory.mktemp("cluster"))
    started.start()
    yield started.url
    started.stop()
