"""One connection through the proxy: passes requests and replies on, and applies faults."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from memory_contract.faults.proxy.fault_queue import CONNECT, FaultQueue, ProxyFault
from memory_contract.faults.proxy.frames import ProtocolError, Reply, Request, Wire

_READ_BYTES: Final = 65536
# The pieces of a sliced reply: small enough to split every length and every number.
SLICE_BYTES: Final = 3


class _Cut(Exception):  # noqa: N818 -- names what happened
    """A fault cuts the connection."""


@dataclass(slots=True)
class _Round:
    """A round of requests, and the fault that strikes its reply."""

    fault: ProxyFault | None = None
    name: str = ""
    began_ns: int = 0
    # What the client receives instead of the server's reply.
    forged: bytes = b""
    # Whether the server gets the requests, and whether the connection ends with the reply.
    asked: bool = True
    closes: bool = False
    # Which of the round's requests was struck, counted from 1.
    place: int = 0
    held: bytearray = field(default_factory=bytearray)
    over: bool = False


class ProxiedConnection:
    """Passes requests and replies on, round by round."""

    def __init__(
        self,
        wire: Wire,
        fault_queue: FaultQueue,
        *,
        flowing: asyncio.Event,
    ) -> None:
        self._wire = wire
        self._fault_queue = fault_queue
        self._flowing = flowing
        self._rounds: dict[int, _Round] = {}
        # The rounds that the client sends and that the server answers; named requests sent in the
        # first, and completed in the second.
        self._asking = 0
        self._asked = 0
        self._answering = 0
        self._done = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def run(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]],
    ) -> None:
        """Run until one side closes, or a fault cuts the connection."""
        self._writers.append(client[1])
        try:
            fault = self._fault_queue.match(CONNECT, chatter=True)
            if fault is not None:
                await self._apply_fault(fault, Request(raw=b"", name=CONNECT))
            server = await connect()
            self._writers.append(server[1])
            tasks = [
                asyncio.ensure_future(self._pass_requests(client[0], server[1], client[1])),
                asyncio.ensure_future(self._pass_replies(server[0], client[1])),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except (_Cut, OSError):
            return
        finally:
            self.cut()

    def cut(self) -> None:
        """Cut both connections."""
        for writer in self._writers:
            writer.transport.abort()

    # From the client to the server

    async def _pass_requests(
        self,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
    ) -> None:
        while data := await reader.read(_READ_BYTES):
            try:
                for request in self._wire.from_client(data):
                    await self._pass_request(request, server, client)
            except ProtocolError:
                return
            await server.drain()

    async def _pass_request(
        self, request: Request, server: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        await self._flowing.wait()
        if request.answer:
            _write(client, request.answer)
        raw: bytes | None = request.raw
        if request.forged:
            self._round().forged = request.forged
        if request.name:
            self._asked += 1
            fault = self._fault_queue.match(request.name, chatter=request.chatter)
            raw = request.raw if fault is None else await self._apply_fault(fault, request)
            self._fault_queue.passed += 1
        if raw is not None:
            _write(server, raw)
        if request.ends:
            self._asking += 1
            self._asked = 0
            await self._send_forged_replies(client)

    def _round(self) -> _Round:
        return self._rounds.setdefault(self._asking, _Round())

    async def _apply_fault(self, fault: ProxyFault, request: Request) -> bytes | None:
        """Apply a fault to a request: what the server receives of it, None for nothing."""
        began_ns = time.monotonic_ns()
        if fault.what == "cut before":
            self._fault_queue.strike(fault, request.name, began_ns)
            raise _Cut
        if fault.what == "freeze":
            self._flowing.clear()
            self._fault_queue.strike(fault, request.name, began_ns, lasting=True)
            await self._flowing.wait()
            return request.raw
        here = self._round()
        here.fault, here.name, here.began_ns = fault, request.name, began_ns
        here.place = self._asked
        if fault.what != "answer":
            return request.raw
        refusal = self._wire.build_refusal(request, fault.reply)
        here.forged, here.closes = refusal.error, refusal.closes
        here.asked = refusal.forward is not None
        return refusal.forward

    # From the server to the client

    async def _pass_replies(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(_READ_BYTES):
            await self._flowing.wait()
            try:
                for reply in self._wire.from_server(data):
                    await self._pass_reply(reply, client)
            except ProtocolError:
                return
            await client.drain()

    async def _pass_reply(self, reply: Reply, client: asyncio.StreamWriter) -> None:
        here = self._rounds.get(self._answering)
        self._done += reply.completes
        if reply.aside or here is None or here.over:
            _write(client, reply.raw)
        else:
            here.held += self._wire.rewrite_reply(reply, here.forged) if here.forged else reply.raw
            # A client that did not end the round waits for what is completed so far. One that did
            # learns only at its end that everything is committed.
            waits = self._asking == self._answering
            done = reply.fails or (self._done >= here.place and here.place > 0)
            if reply.ends or (waits and done):
                here.over = True
                await self._deliver(here, client)
        if reply.ends:
            self._rounds.pop(self._answering, None)
            self._answering += 1
            self._done = 0
            await self._send_forged_replies(client)

    async def _send_forged_replies(self, client: asyncio.StreamWriter) -> None:
        """Send forged replies to requests that the server did not get, when it is their turn."""
        while self._answering < self._asking:
            here = self._rounds.get(self._answering)
            if here is None or here.asked:
                return
            del self._rounds[self._answering]
            self._answering += 1
            here.held += here.forged
            await self._deliver(here, client)

    async def _deliver(self, here: _Round, client: asyncio.StreamWriter) -> None:
        """Deliver the reply to a round, as its fault says."""
        what = here.fault.what if here.fault is not None else ""
        if what == "delay":
            assert here.fault is not None
            await asyncio.sleep(here.fault.seconds)
        if here.fault is not None:
            # Recorded before the client can see it, so that it is there when the call returns.
            self._fault_queue.strike(here.fault, here.name, here.began_ns)
        held = bytes(here.held)
        if what == "cut midway":
            _write(client, held[: len(held) // 2])
        elif what == "slice":
            for at in range(0, len(held), SLICE_BYTES):
                _write(client, held[at : at + SLICE_BYTES])
                await client.drain()
                # Let the next piece be another packet.
                await asyncio.sleep(0)
        elif what != "cut after":
            _write(client, held)
        if what in ("cut after", "cut midway") or here.closes:
            # The data is in the socket's buffer, and arrives before the connection ends.
            raise _Cut


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write, unless the side is closed."""
    if not writer.is_closing():
        writer.write(data)
