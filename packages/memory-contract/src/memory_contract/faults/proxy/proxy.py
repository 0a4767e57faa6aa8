"""The proxy: listens on a local port and forwards to a server, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine
from typing import Any, Final, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

from memory_contract.faults.proxy.connection import ProxiedConnection
from memory_contract.faults.proxy.fault_queue import FaultQueue, ProxyFault, ProxyFaultEvent
from memory_contract.faults.proxy.pgwire import PostgresWire
from memory_contract.faults.proxy.resp import RespWire

T = TypeVar("T")

LOOPBACK: Final = "127.0.0.1"
# Default ports.
_PORTS: Final = {"redis": 6379, "postgresql": 5432, "postgres": 5432}
# For calls that hang; nothing that the proxy's thread is asked to do waits.
_ANSWER_S_MAX: Final = 60.0


class ProxyError(ValueError):
    """There can be no proxy for this server."""


class Proxy:
    """Forwards to the server of a URL; `url` is the one to give to the store."""

    def __init__(self, server: str, *, host: str = LOOPBACK, port: int = 0) -> None:
        self._upstream = _parse_server(server)
        self._fault_queue = FaultQueue()
        # Keeps the port bound while nothing listens, so that connections are refused.
        self._held = _bind(host, port)
        self.host: str = host
        self.port: int = self._held.getsockname()[1]
        self._listening: asyncio.Server | None = None
        self._conversations: dict[asyncio.Task[None], ProxiedConnection] = {}
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="indelible-proxy", daemon=True
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The server's URL with the proxy's host and port."""
        parts = self._upstream
        user, at, _ = parts.netloc.rpartition("@")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return parts._replace(netloc=f"{user}{at}{host}:{self.port}").geturl()

    @property
    def leads_to(self) -> tuple[str, int]:
        """Host and port of the server."""
        return parse_address(self._upstream)

    @property
    def passed(self) -> int:
        """Return the number of requests that passed."""
        return self._fault_queue.passed

    @property
    def struck(self) -> list[ProxyFaultEvent]:
        """The faults that struck."""
        return self._fault_queue.struck

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        self.up()

    def close(self) -> None:
        """Close all connections, and end the thread."""
        if self._thread.is_alive():
            self._do(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_ANSWER_S_MAX)
        self._held.close()
        if not self._loop.is_running():
            self._loop.run_until_complete(_close_remaining())
            self._loop.close()

    # Faults

    def arm(self, *faults: ProxyFault) -> None:
        """Arm faults; requests are counted from now on."""
        self._fault_queue.arm(*faults)

    def heal(self) -> None:
        """End all faults: nothing is armed or frozen, and connections are accepted."""
        self._fault_queue.disarm()
        self.thaw()
        self.up()

    def down(self) -> None:
        """Refuse new connections, and cut the open ones."""
        self._do(self._refuse())
        self.cut()

    def up(self) -> None:
        """Accept connections."""
        self._do(self._listen())

    def cut(self) -> None:
        """Cut every connection."""
        self._do(self._cut())

    def freeze(self) -> None:
        """Hold all traffic back, both ways; connections stay open, and new ones are accepted."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def thaw(self) -> None:
        """Pass on what was held back."""
        self._loop.call_soon_threadsafe(self._flowing.set)

    def lead_to(self, server: str) -> None:
        """Forward to another server from the next connection on."""
        self._upstream = _parse_server(server)

    # In the proxy's thread

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_S_MAX)

    async def _listen(self) -> None:
        if self._listening is None:
            listening = _bind(self.host, self.port)
            listening.listen(socket.SOMAXCONN)
            self._listening = await asyncio.start_server(self._serve, sock=listening)

    async def _refuse(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()

    async def _cut(self) -> None:
        # Only those of this moment; connections that come meanwhile are left alone.
        cut = dict(self._conversations)
        for task, conversation in cut.items():
            conversation.cut()
            task.cancel()
        if cut:
            await asyncio.wait(cut)

    async def _end(self) -> None:
        await self._refuse()
        while self._conversations:
            await self._cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        is_redis = self._upstream.scheme == "redis"
        conversation = ProxiedConnection(
            RespWire(f"{self.host}:{self.port}") if is_redis else PostgresWire(),
            self._fault_queue,
            flowing=self._flowing,
        )
        self._conversations[task] = conversation
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await conversation.run(
                    (reader, writer), lambda: asyncio.open_connection(*self.leads_to)
                )
        finally:
            del self._conversations[task]


async def _close_remaining() -> None:
    """End connections that came at the last moment, and let every socket close."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.wait(others)
    for _ in range(3):
        # Closed transports are released in the next rounds of the loop.
        await asyncio.sleep(0)


def _parse_server(server: str) -> SplitResult:
    if server.partition("://")[0] not in _PORTS:
        raise ProxyError(
            "there can be a proxy before redis://host:port and postgresql://host:port alone: one"
            " server, without TLS"
        )
    try:
        parts = urlsplit(server)
        several = "," in parts.netloc
        if not several:
            parse_address(parts)
    except ValueError as error:
        # The message may quote the URL around the port, and with it a password.
        form = "the server's URL is redis://host:port or postgresql://host:port"
        raise ProxyError(form) from error.__cause__
    if several:
        raise ProxyError("there can be a proxy before one server, not before several")
    return parts


def parse_address(parts: SplitResult) -> tuple[str, int]:
    """Host and port."""
    return parts.hostname or "localhost", parts.port or _PORTS.get(parts.scheme, 0)


def _bind(host: str, port: int) -> socket.socket:
    """A socket on a port that two sockets share: one listens, one keeps the port bound.

    No other process gets the port meanwhile.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol, asyncio does not know that it is TCP and does not set TCP_NODELAY.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise ProxyError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return made
