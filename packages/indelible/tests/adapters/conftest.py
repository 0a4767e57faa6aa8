"""Stores that adapters are tried on: both kinds, in memory and on a file."""

import os

import pytest

import indelible
from tests.support import redis_server
from tests.support.adapters import engines
from tests.support.stores import EMBEDDED, empty_url


@pytest.fixture(autouse=True)
def _no_store_is_left_open():
    yield
    engines.close_all()


@pytest.fixture(params=EMBEDDED)
def url(request, tmp_path):
    return empty_url(request.param, tmp_path)


@pytest.fixture
def store(url):
    with indelible.open(url) as opened:
        yield opened


@pytest.fixture(params=["blocking store", "async store"])
async def any_store(request, url):
    """What async code may hand in: either kind of store."""
    if request.param == "blocking store":
        with indelible.open(url) as opened:
            yield opened
    else:
        async with indelible.open_async(url) as opened:
            yield opened


@pytest.fixture
def redis_url(monkeypatch):
    """A server with nothing on it, which other processes find too."""
    monkeypatch.setitem(os.environ, engines.REDIS, redis_server.emptied())
    return os.environ[engines.REDIS]
