"""What the proxy sees of a protocol: requests, replies, and where a reply ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class ProtocolError(Exception):
    """One side said what the protocol does not allow, or what the proxy does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Something that a client sent. Those up to one that `ends` are a round, with one reply."""

    raw: bytes
    # What troubles know it by; empty for what asks for nothing by itself.
    name: str = ""
    # Whether it only says something about the client itself.
    chatter: bool = False
    ends: bool = False
    # What the proxy says itself to this, at once.
    answer: bytes = b""
    # What the client hears in place of the reply.
    hears: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A part of the reply to a round; one that `ends` is its last. What belongs to none is `aside`.

    One that `completes` says that a named request of the round was done, or that none will be.
    """

    raw: bytes
    ends: bool = False
    completes: bool = False
    fails: bool = False
    aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """How a request is refused in the server's place.

    `forward` is what the server hears instead, so that it knows as much of the refusal as a server
    that really refuses; None if nothing. `closes` says that the connection ends with it.
    """

    said: bytes
    forward: bytes | None = None
    closes: bool = False


class Wire(Protocol):
    """One connection, as its protocol has it."""

    def from_client(self, data: bytes) -> Iterator[Request]:
        """The requests that are complete with this."""

    def from_server(self, data: bytes) -> Iterator[Reply]:
        """The replies that are complete with this."""

    def refusal(self, request: Request, reply: str) -> Refusal:
        """How to refuse a request."""

    def rewritten(self, reply: Reply, said: bytes) -> bytes:
        """What a client hears of a reply in a round that was refused."""
