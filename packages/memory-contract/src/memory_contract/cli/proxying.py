"""The fault proxy as a command: for a person who wants to see what an application does."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from memory_contract.errors import UnavailableError, UsageError
from memory_contract.redaction import redact_url
from memory_contract.report.wording import counted, visible

if TYPE_CHECKING:
    from memory_contract.faults.proxy import Proxy, ProxyFault, ProxyFaultEvent

# How often it is looked whether a trouble came about.
LOOK_AGAIN_S = 0.1
# A server that is there answers a connection at once.
CONNECT_S_MAX = 5.0

_Words = list[str] | None
Server = Annotated[
    str,
    typer.Argument(
        metavar="SERVER",
        help="redis://host:port or postgresql://host:port/database: one server, without TLS.",
    ),
]
Listen = Annotated[
    str,
    typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 is any free one."),
]
CutBefore = Annotated[
    _Words,
    typer.Option("--cut-before", metavar="NAME:N", help="Cut; the server never hears of it."),
]
CutAfter = Annotated[
    _Words,
    typer.Option("--cut-after", metavar="NAME:N", help="Let the server do it, and lose the reply."),
]
CutMidway = Annotated[
    _Words,
    typer.Option("--cut-midway", metavar="NAME:N", help="Cut after half of the reply."),
]
Slice = Annotated[
    _Words,
    typer.Option("--slice", metavar="NAME:N", help="Give the reply in pieces of a few bytes."),
]
Delay = Annotated[
    _Words,
    typer.Option("--delay", metavar="NAME:N=SECONDS", help="Give the reply so much later."),
]
Freeze = Annotated[
    _Words,
    typer.Option("--freeze", metavar="NAME:N", help="From then on, answer nobody."),
]
Answer = Annotated[
    _Words,
    typer.Option(
        "--answer",
        metavar="NAME:N=REPLY",
        help="Refuse it in the server's place: OOM, READONLY, LOADING, MOVED, NOSCRIPT or any error"
        " of Redis; an SQLSTATE such as 40001, 57P01 or 53300.",
    ),
]


def proxy(
    server: Server,
    *,
    listen: Listen = "127.0.0.1:0",
    cut_before: CutBefore = None,
    cut_after: CutAfter = None,
    cut_midway: CutMidway = None,
    slice_: Slice = None,
    delay: Delay = None,
    freeze: Freeze = None,
    answer: Answer = None,
) -> None:
    """Stand between an application and its server, and make trouble. Ctrl-C ends it.

    Give the application the URL that is printed. NAME is a command of Redis, the first word of an
    SQL statement, CONNECT, STARTUP, or * for any request; N counts them, from 1.
    """
    # Whoever asks for help does not wait for it.
    from memory_contract.faults.proxy import Proxy, ProxyError, ProxyFault, ProxyFaultError  # noqa: PLC0415

    try:
        faults = [
            *(ProxyFault.parse("cut before", words) for words in cut_before or ()),
            *(ProxyFault.parse("cut after", words) for words in cut_after or ()),
            *(ProxyFault.parse("cut midway", words) for words in cut_midway or ()),
            *(ProxyFault.parse("slice", words) for words in slice_ or ()),
            *(ProxyFault.parse("delay", words) for words in delay or ()),
            *(ProxyFault.parse("freeze", words) for words in freeze or ()),
            *(ProxyFault.parse("answer", words) for words in answer or ()),
        ]
        host, port = _place(listen)
        standing = Proxy(server, host=host, port=port)
    except (ProxyFaultError, ProxyError) as error:
        raise UsageError(f"{error}. Nothing was done.") from error
    with standing:
        _reach(standing, server)
        _stand(standing, server, faults)


def _place(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--listen takes HOST:PORT, not {listen!r}. Nothing was done.")
    return host.strip("[]"), int(port)


def _reach(standing: Proxy, server: str) -> None:
    """Say now, and not when an application wonders, that nobody is there."""
    try:
        socket.create_connection(standing.leads_to, CONNECT_S_MAX).close()
    except OSError as error:
        raise UnavailableError(
            f"{redact_url(server)} cannot be reached: {error.strerror}"
        ) from error


def _stand(standing: Proxy, server: str, faults: Sequence[ProxyFault]) -> None:
    standing.arm(*faults)
    print(
        f"{redact_url(standing.url)} leads to {redact_url(server)}. Ctrl-C ends it.",
        flush=True,
    )
    told = 0
    try:
        while True:
            threading.Event().wait(LOOK_AGAIN_S)
            told = _tell(standing.struck, told)
    except KeyboardInterrupt:
        told = _tell(standing.struck, told)
    left = len(faults) - len({struck.fault for struck in standing.struck})
    said = f"{counted(standing.passed, 'request')} passed, {counted(told, 'fault')} struck"
    print(f"{said}{f', {left} did not' if left else ''}.", file=sys.stderr)


def _tell(struck: Sequence[ProxyFaultEvent], told: int) -> int:
    for each in struck[told:]:
        print(f"{each.fault.what}: {visible(each.name)} (number {each.fault.nth})", flush=True)
    return len(struck)
