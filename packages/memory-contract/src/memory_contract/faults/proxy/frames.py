"""The protocol-independent form of traffic: requests, replies, and where a reply ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class ProtocolError(Exception):
    """Bytes that the protocol does not allow, or that the proxy does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A message of a client. Requests up to one that `ends` are a round, with one reply."""

    raw: bytes
    # The name that faults match; empty for messages that request nothing by themselves.
    name: str = ""
    # Whether the client only introduces itself.
    chatter: bool = False
    ends: bool = False
    # A reply that the proxy sends itself, at once.
    answer: bytes = b""
    # What the client receives instead of the reply.
    forged: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A part of the reply to a round; the last one `ends` it. Push messages are `aside`.

    One that `completes` says that a named request of the round was executed.
    """

    raw: bytes
    ends: bool = False
    completes: bool = False
    fails: bool = False
    aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """How the proxy refuses a request in the server's place.

    `forward` is what the server gets instead, so that its state is that of a server which really
    refused; None for nothing. `closes` says that the connection ends with it.
    """

    error: bytes
    forward: bytes | None = None
    closes: bool = False


class Wire(Protocol):
    """The protocol of one connection."""

    def from_client(self, data: bytes) -> Iterator[Request]:
        """Yield the requests that are complete with this data."""

    def from_server(self, data: bytes) -> Iterator[Reply]:
        """Yield the replies that are complete with this data."""

    def build_refusal(self, request: Request, reply: str) -> Refusal:
        """Build the refusal of a request."""

    def rewrite_reply(self, reply: Reply, error: bytes) -> bytes:
        """Return what the client receives of a reply in a round that was refused."""
