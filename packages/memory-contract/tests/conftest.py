import pytest

from memory_contract.runner import StoreUnderTest
from tests.support.kit import (
    goldfish_stores,  # noqa: F401 -- registers them
    under_test,
)


@pytest.fixture
def subject():
    """The smallest store that there is, under test."""
    ours = StoreUnderTest(under_test.smallest)
    yield ours
    ours.close()
