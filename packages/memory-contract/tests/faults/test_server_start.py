"""A server whose port was taken meanwhile is built again, with another one."""

import socket

import pytest

from memory_contract.faults.servers.managed import STARTS_MAX, start_until_exit
from memory_contract.faults.servers.ports import LOOPBACK
from memory_contract.faults.servers.process import ServerError
from memory_contract.faults.servers.valkey import ValkeyServer
from tests.support import redis_cluster
from tests.support.valkey_cluster import ValkeyCluster


@pytest.fixture
def take():
    """Takes a port, as another process may."""
    taken = []

    def bind(port):
        taken.append(socket.socket())
        taken[-1].bind((LOOPBACK, port))

    yield bind
    for each in taken:
        each.close()


def test_a_server_is_built_again(take):
    built = []

    def build(folder):
        built.append(ValkeyServer(folder, {}))
        if len(built) == 1:
            take(built[0].port)
        return built[-1]

    server = start_until_exit("again", build)
    assert server is built[1]
    assert server.running
    assert not built[0].running


def test_a_server_that_never_starts_is_an_error(take):
    def build(folder):
        server = ValkeyServer(folder, {})
        take(server.port)
        return server

    with pytest.raises(ServerError):
        start_until_exit("never", build)
    assert STARTS_MAX > 1


def test_a_cluster_is_built_again(take, monkeypatch):
    built = []

    class Unlucky(ValkeyCluster):
        def __init__(self, *args):
            super().__init__(*args)
            built.append(self)
            if len(built) == 1:
                take(self.nodes[3].port)

    monkeypatch.setattr(redis_cluster, "ValkeyCluster", Unlucky)
    cluster = redis_cluster.running.__wrapped__()
    try:
        assert cluster is built[1]
        assert built[0].running == []
        assert len(cluster.running) == 6
    finally:
        cluster.stop()
