"""Loopback ports for servers that are killed and started again on the same port."""

from __future__ import annotations

import fcntl
import os
import random
import socket
from functools import cache
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
# Below the ports that the kernel gives to outgoing connections: otherwise a client could be given
# the port of a server that was just killed, and the server could not start again.
_PORTS: Final = range(10_000, 32_000)
# The state of a listening socket in /proc/net/tcp.
_LISTEN: Final = "0A"
_reserved: set[int] = set()


class NoPortError(RuntimeError):
    """Every port is reserved or in use."""


def reserve_port() -> int:
    """Return a free port that no other process of this user reserves while this one lives.

    A reservation is a lock on the byte of that number in one file; the kernel releases the locks
    of a process that ends.
    """
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if port not in _reserved and _lock(port) and _is_free(port):
            _reserved.add(port)
            return port
    raise NoPortError(f"no port is free between {_PORTS.start} and {_PORTS.stop}")


def _lock(port: int) -> bool:
    try:
        fcntl.lockf(_open_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _open_locks() -> int:
    """Open the file of locks. It stays open: closing it would release them all."""
    # Not in TMPDIR, which may differ between processes that must not take the same port.
    path = f"/tmp/memory-contract-ports-{os.getuid()}"  # noqa: S108
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port whose connections are only waiting for their end is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def is_listening(pid: int, port: int) -> bool:
    """Whether the process listens on a port; True where the system does not say."""
    try:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
        opened = {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()}
    except FileNotFoundError:
        # A file was closed meanwhile, or the process ended; or the system is not Linux.
        return not Path("/proc/net/tcp").exists()
    except PermissionError:
        return True
    return any(
        int(local.partition(":")[2], 16) == port and f"socket:[{inode}]" in opened
        for _, local, _, state, *_, inode in (row[:10] for row in rows)
        if state == _LISTEN
    )
