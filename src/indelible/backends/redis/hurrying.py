"""Connections that are made for a call which has only so much time left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Left(threading.local):
    """The time that the call of this thread has."""

    seconds: float | None = None


_left = _Left()


@contextmanager
def hurried(left_s: float) -> Iterator[None]:
    """Whoever connects in here waits for the server no longer than that, at each step."""
    _left.seconds = left_s
    try:
        yield
    finally:
        _left.seconds = None


class _Hurried:
    """Mixed into a connection: the pool that makes it takes no deadline."""

    socket_timeout: float | None
    socket_connect_timeout: float | None

    def _connect(self) -> Any:
        # What it was made with; the same connection is connected again and again.
        asked = vars(self).setdefault(
            "_asked_s", (self.socket_timeout, self.socket_connect_timeout)
        )
        if _left.seconds is not None:
            self.socket_timeout, self.socket_connect_timeout = (
                _left.seconds if each is None else min(each, _left.seconds) for each in asked
            )
        return super()._connect()  # type: ignore[misc]


def hurrying(kind: type) -> type:
    """A kind of blocking connection that minds `hurried`."""
    return type(kind.__name__, (_Hurried, kind), {})
