"""The server of the inspector: one socket on the loopback interface."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from indelible.errors import UnavailableError

LOOPBACK: Final = "127.0.0.1"
# For a request with its response: each connection takes one request. Slow clients are cut off.
CONNECTION_S_MAX: Final = 60.0
# The head of a request: the longest query and some headers.
HEAD_BYTES_MAX: Final = 16 * 1024


class LimitedConnection(H11Protocol):
    """A connection that is aborted after some time, whatever its client does.

    uvicorn has no such limit, and takes a class like this as `http=`. The import path of its base
    class is not documented; the test of slow clients fails if it changes.
    """

    seconds_max = CONNECTION_S_MAX

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit."""
        super().connection_made(transport)
        self._end = asyncio.get_running_loop().call_later(self.seconds_max, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        self._end.cancel()
        super().connection_lost(exc)


def bind(port: int) -> socket.socket:
    """Listen on the loopback interface; port 0 is any that is free."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UnavailableError(f"cannot listen on port {port}: {error.strerror}") from error
    return listener


def build_server(
    app: ASGIApp, *, protocol: type[LimitedConnection] = LimitedConnection
) -> uvicorn.Server:
    """Build the server; `serve(sockets=[…])` runs it until Ctrl-C."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_graceful_shutdown=1,
        )
    )
