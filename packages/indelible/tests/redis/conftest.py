"""Real servers, on loopback ports of their own, ended with the test or the run."""

import pytest

from memory_contract.faults.servers.managed import start_until_exit
from memory_contract.faults.servers.valkey import ValkeyServer
from tests.support import redis_cluster


@pytest.fixture(scope="session")
def running():
    """A server for all tests here that leave it as it is: some count its commands."""
    return start_until_exit("valkey", lambda folder: ValkeyServer(folder, {"appendfsync": "no"}))


@pytest.fixture
def server(running):
    """The shared server, with nothing on it."""
    with running.client() as client:
        client.flushall()
        client.config_resetstat()
    return running


@pytest.fixture
def url(server):
    return server.url


@pytest.fixture
def client(server):
    """A look at the server from outside."""
    with server.client() as opened:
        yield opened


@pytest.fixture
def start(tmp_path):
    """Starts servers of a test's own, to be killed, frozen or filled."""
    started = []

    def begin(**options):
        words = {name.replace("_", "-"): value for name, value in options.items()}
        server = ValkeyServer(tmp_path / f"server-{len(started)}", words)
        started.append(server)
        server.start()
        return server

    yield begin
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def shared_cluster():
    """Six servers, for tests that kill none of them."""
    return redis_cluster.running()
