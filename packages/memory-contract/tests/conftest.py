import sys
from pathlib import Path

import pytest

import goldfish_stores  # noqa: F401 -- registers them
import under_test
from memory_contract.runner import StoreUnderTest


@pytest.fixture(autouse=True)
def _stores_can_be_named(monkeypatch):
    """Stores under test are named `under_test:Name`, by the kit and by its worker processes."""
    folder = str(Path(__file__).parent)
    if folder not in sys.path:
        monkeypatch.syspath_prepend(folder)


@pytest.fixture
def subject():
    """The smallest store that there is, under test."""
    ours = StoreUnderTest(under_test.smallest)
    yield ours
    ours.close()
