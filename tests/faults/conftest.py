"""Servers for tests of bad days, started when they are first needed."""

import pytest

from tests.support import redis_cluster


@pytest.fixture(scope="session")
def cluster_url():
    """The cluster of this test process, with nothing on it."""
    return redis_cluster.emptied()
