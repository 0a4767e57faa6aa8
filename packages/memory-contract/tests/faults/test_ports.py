"""Ports of servers that are killed and started again."""

import subprocess
import sys
from pathlib import Path

from memory_contract.faults.servers.ports import LOOPBACK, reserve_port
from memory_contract.faults.servers.valkey import ValkeyServer

RESERVE_ONE = """
import sys
from memory_contract.faults.servers import ports

if len(sys.argv) > 1:
    ports._PORTS = range(int(sys.argv[1]), int(sys.argv[1]) + 1)
try:
    print(ports.reserve_port())
except ports.NoPortError:
    print("none")
"""


def reserve_elsewhere(*port):
    """Let another process reserve this port, or any; return what it got."""
    arguments = [sys.executable, "-c", RESERVE_ONE, *map(str, port)]
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip()


def test_a_reserved_port_is_given_to_no_other_process():
    assert reserve_elsewhere(reserve_port()) == "none"


def test_a_reservation_ends_with_its_process():
    port = reserve_elsewhere()
    assert reserve_elsewhere(port) == port


def test_no_client_is_given_a_port_that_can_be_reserved():
    # A client that gets the port of a killed server would keep it from starting again.
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(reserve_port() < first for _ in range(100))


def test_a_port_is_kept_while_its_server_is_down(tmp_path):
    server = ValkeyServer(tmp_path, {})
    server.start()
    server.kill()
    assert reserve_elsewhere(server.port) == "none"
    server.start()
    try:
        assert server.url == f"redis://{LOOPBACK}:{server.port}"
        assert server.running
    finally:
        server.kill()
