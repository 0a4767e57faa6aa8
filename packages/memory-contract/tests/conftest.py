import pytest

from memory_contract.runner import StoreUnderTest
from memory_contract.targets import probe
from tests.support.kit import (
    goldfish_stores,  # noqa: F401 -- registers them
    under_test,
)


@pytest.fixture(autouse=True)
def _a_busy_machine_has_time_to_probe(monkeypatch):
    """Another process imports the store's framework; what was not tried in time is not claimed."""
    monkeypatch.setattr(probe, "PROBE_S_MAX", 300.0)


@pytest.fixture
def subject():
    """The smallest store that there is, under test."""
    ours = StoreUnderTest(under_test.smallest)
    yield ours
    ours.close()
