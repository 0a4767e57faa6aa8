"""What the fuzzers share: one profile that always draws the same examples, and the engines."""

import pytest
from hypothesis import HealthCheck, settings

from tests.support.stores import ENGINES, Stores

# So many examples on each engine that a fuzzer takes seconds; a server takes longer for each.
EXAMPLES = {**dict.fromkeys(ENGINES, 150), "memory": 300, "redis": 60, "postgres": 40}


@pytest.fixture(params=EXAMPLES)
def stores(request, tmp_path):
    """Opens stores of one engine, on one place."""
    opened = Stores(f"{request.param}-blocking", tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def bounded(stores):
    """The settings of a fuzzer: the same examples in every run, and nothing kept between runs."""
    return settings(
        max_examples=EXAMPLES[stores.engine],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
