"""The fault proxy as a command: for a person who wants to see what an application does."""

from __future__ import annotations

import socket
import sys
import threading
from argparse import Namespace
from collections.abc import Sequence
from typing import Final

from memory_contract.checker.verdict import format_count
from memory_contract.cli.parser import Commands, add_command
from memory_contract.errors import UnavailableError, UsageError
from memory_contract.faults.proxy import (
    Proxy,
    ProxyError,
    ProxyFault,
    ProxyFaultError,
    ProxyFaultEvent,
)
from memory_contract.faults.proxy.fault_queue import What
from memory_contract.printable import escape_unseen
from memory_contract.redaction import redact_url

# How often it is looked whether a fault came about.
LOOK_AGAIN_S = 0.1
# A server that is there answers a connection at once.
CONNECT_S_MAX = 5.0

# Each option makes one kind of fault; all take NAME:N, counted from 1.
_FAULTS: Final[dict[What, tuple[str, str]]] = {
    "cut before": ("NAME:N", "Cut; the server never hears of it."),
    "cut after": ("NAME:N", "Let the server do it, and lose the reply."),
    "cut midway": ("NAME:N", "Cut after half of the reply."),
    "slice": ("NAME:N", "Give the reply in pieces of a few bytes."),
    "delay": ("NAME:N=SECONDS", "Give the reply so much later."),
    "freeze": ("NAME:N", "From then on, answer nobody."),
    "answer": (
        "NAME:N=REPLY",
        "Refuse it in the server's place: OOM, READONLY, MOVED or any error of Redis; an SQLSTATE.",
    ),
}


def add_commands(commands: Commands) -> None:
    """Add `proxy`."""
    parser = add_command(
        commands,
        "proxy",
        proxy,
        "proxy redis://localhost:6379 --cut-after EVALSHA:3",
        "proxy postgresql://localhost/agent --answer COMMIT:1=40001 --listen 127.0.0.1:6432",
    )
    parser.add_argument(
        "server",
        metavar="SERVER",
        help="redis://host:port or postgresql://host:port/database: one server, without TLS.",
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="Where to listen; port 0 is any free one.",
    )
    for kind, (metavar, about) in _FAULTS.items():
        option = f"--{kind.replace(' ', '-')}"
        parser.add_argument(
            option, dest=kind, action="append", default=[], metavar=metavar, help=about
        )


def proxy(arguments: Namespace) -> int:
    """Stand between an application and its server, and make faults. Ctrl-C ends it.

    Give the application the URL that is printed. NAME is a command of Redis, the first word of an
    SQL statement, CONNECT, STARTUP, or * for any request; N counts them, from 1.
    """
    server: str = arguments.server
    try:
        faults = [
            ProxyFault.parse(kind, words) for kind in _FAULTS for words in getattr(arguments, kind)
        ]
        host, port = _place(arguments.listen)
        standing = Proxy(server, host=host, port=port)
    except (ProxyFaultError, ProxyError) as error:
        raise UsageError(f"{error}. Nothing was done.") from error
    with standing:
        _reach(standing, server)
        _stand(standing, server, faults)
    return 0


def _place(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--listen takes HOST:PORT, not {listen!r}. Nothing was done.")
    return host.strip("[]"), int(port)


def _reach(standing: Proxy, server: str) -> None:
    """Warn at once if no server answers, not only when an application connects."""
    try:
        socket.create_connection(standing.leads_to, CONNECT_S_MAX).close()
    except OSError as error:
        raise UnavailableError(
            f"{redact_url(server)} cannot be reached: {error.strerror}"
        ) from error


def _stand(standing: Proxy, server: str, faults: Sequence[ProxyFault]) -> None:
    standing.arm(*faults)
    told = 0
    try:
        # Inside the try, since Ctrl-C may come as soon as this is read.
        print(
            f"{redact_url(standing.url)} leads to {redact_url(server)}. Ctrl-C ends it.",
            flush=True,
        )
        while True:
            threading.Event().wait(LOOK_AGAIN_S)
            told = _tell(standing.struck, told)
    except KeyboardInterrupt:
        told = _tell(standing.struck, told)
    left = len(faults) - len({struck.fault for struck in standing.struck})
    said = (
        f"{format_count(standing.passed, 'request')} passed, {format_count(told, 'fault')} struck"
    )
    print(f"{said}{f', {left} did not' if left else ''}.", file=sys.stderr)


def _tell(struck: Sequence[ProxyFaultEvent], told: int) -> int:
    for each in struck[told:]:
        print(
            f"{each.fault.what}: {escape_unseen(each.name)} (number {each.fault.nth})", flush=True
        )
    return len(struck)
