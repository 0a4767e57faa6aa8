"""A server does not prevent the oldest sin, and the kit sees it across processes."""

import pytest

from memory_contract.goldfish import examine
from tests.support import postgres_server, redis_server
from tests.support.server_goldfish import written_back_on_postgres, written_back_on_redis


@pytest.mark.parametrize("seed", [1, 2])
def test_a_list_that_is_written_back_on_redis_is_caught(seed):
    found = examine(written_back_on_redis(redis_server.emptied()), seed)
    assert "processes" in found.modes
    assert found.anomaly == "lost append"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_list_that_is_written_back_on_postgres_is_caught(seed):
    found = examine(written_back_on_postgres(postgres_server.fresh_database()), seed)
    assert "processes" in found.modes
    assert found.anomaly == "lost append"
