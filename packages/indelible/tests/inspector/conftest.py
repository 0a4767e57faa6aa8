import pytest

import indelible
from tests.support.inspector import fill, running_inspector
from tests.support.stores import PERSISTENT, empty_url


@pytest.fixture(scope="module", params=PERSISTENT)
def filled_url(request, tmp_path_factory):
    """A store of each engine that has something for every page."""
    url = empty_url(request.param, tmp_path_factory.mktemp("inspected"))
    with indelible.open(url) as store:
        fill(store)
    return url


@pytest.fixture(scope="module")
def reader(filled_url):
    """An inspector that may only read."""
    with running_inspector(filled_url) as inspector:
        yield inspector


@pytest.fixture
def url(tmp_path):
    return str(tmp_path / "agent.db")


@pytest.fixture
def store(url):
    with indelible.open(url) as opened:
        yield opened


@pytest.fixture
def writer(store, url):
    """An inspector that may change the store, which the test changes, too."""
    store.add_message("s", "user", "one")
    with running_inspector(url, write=True) as inspector:
        yield inspector
