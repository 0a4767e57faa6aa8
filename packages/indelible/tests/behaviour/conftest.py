"""Every test here runs on every engine, blocking and async, from this one source."""

import pytest

from tests.support.stores import STORES, Stores


@pytest.fixture(params=STORES)
def stores(request, tmp_path):
    """Opens stores of one kind; all of them share one place."""
    opened = Stores(request.param, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def clock(stores):
    """The clock of every store that is not given its own."""
    return stores.clock


@pytest.fixture
def make_store(stores):
    """Opens a store with options."""
    return stores.open


@pytest.fixture
def store(stores):
    """A store with the default options, but for a clock that stands still."""
    return stores.open()


@pytest.fixture
def reopened(stores):
    """Closes a store and opens it again, as another process would."""
    return stores.reopen
