"""A server whose port was taken meanwhile is built again, with another one."""

import socket

import pytest

from memory_contract.faults.servers.managed import STARTS_MAX, start_until_exit
from memory_contract.faults.servers.ports import LOOPBACK
from memory_contract.faults.servers.process import ServerError, ServerProcess
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


def test_another_server_on_the_port_is_not_taken_for_ours(tmp_path):
    other = ValkeyServer(tmp_path / "other")
    other.start()
    ours = ValkeyServer(tmp_path / "ours", {"port": str(other.port)})
    ours.port = other.port
    try:
        with pytest.raises(ServerError, match="did not start"):
            ours.start()
        assert not ours.running
        assert other.client().ping()
    finally:
        other.kill()


@pytest.mark.parametrize("seconds", ["0", "1"])
def test_a_server_that_answers_is_not_ours_unless_ours_listens(tmp_path, seconds):
    other = ValkeyServer(tmp_path / "other")
    other.start()
    # It lives for a while and never listens, as a server does that is about to find its port taken.
    slow = ServerProcess(
        ["sleep", seconds], port=other.port, log=tmp_path / "log", ready=other.client().ping
    )
    try:
        with pytest.raises(ServerError, match="did not start"):
            slow.start()
    finally:
        other.kill()


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
