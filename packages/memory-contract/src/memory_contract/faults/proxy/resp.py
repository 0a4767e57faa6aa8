"""The wire protocol of Redis, as far as a proxy must know it: RESP2 and RESP3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from memory_contract.faults.proxy.frames import ProtocolError, Refusal, Reply, Request

_LINE: Final = b"\r\n"
# One line: status, error, number, null, boolean, double, big number.
_LINES: Final = b"+-:_#,("
# A length, then so many bytes: text, long error, text with a format.
_BLOBS: Final = b"$!="
# A length, then so many values: list, set, push; and twice as many: map, attribute.
_LISTS: Final = b"*~>"
_MAPS: Final = b"%|"
# The errors of real servers.
REPLIES: Final = {
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "READONLY": "READONLY You can't write against a read only replica.",
    "LOADING": "LOADING Redis is loading the dataset in memory",
    "NOSCRIPT": "NOSCRIPT No matching script. Please use EVAL.",
    "MISCONF": "MISCONF Errors writing to the AOF file: No space left on device",
    "BUSY": "BUSY Redis is busy running a script.",
    "TRYAGAIN": "TRYAGAIN Multiple keys request during rehashing of slot",
    "CLUSTERDOWN": "CLUSTERDOWN The cluster is down",
    "MASTERDOWN": "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is no.",
}
# Commands with which clients introduce themselves; and MULTI, which no server refuses.
_CHATTER: Final = frozenset(
    {"HELLO", "AUTH", "CLIENT", "SELECT", "PING", "READONLY", "COMMAND", "MULTI"}
)
_DISCARD: Final = b"*1\r\n$7\r\nDISCARD\r\n"
_ABORTED: Final = "EXECABORT Transaction discarded because of previous errors."


class _Values:
    """Bytes as they arrive, and the values in them. What was parsed is not parsed again."""

    def __init__(self) -> None:
        self.data = bytearray()
        # Of the first value: the end of what was parsed, and how many of its parts are to come.
        self._at = 0
        self._left = 1

    def take_request(self) -> bytes | None:
        """Remove the first command; None if it is incomplete."""
        if not self.data or self.data.startswith(b"*"):
            return self.take()
        # A command as a person types it.
        self._at = self.data.find(b"\n") + 1
        return self._remove() if self._at else None

    def take(self) -> bytes | None:
        """Remove the first value; None if it is incomplete."""
        while self._left:
            line_end = self.data.find(_LINE, self._at)
            if line_end < 0:
                return None
            self._parse_line(bytes(self.data[self._at : line_end]), line_end + len(_LINE))
        return self._remove() if self._at <= len(self.data) else None

    def _parse_line(self, line: bytes, end: int) -> None:
        kind, word = line[:1], line[1:]
        self._at = end
        self._left -= 1
        if kind and kind in _LINES:
            return
        try:
            length = int(word)
        except ValueError:
            raise ProtocolError(f"this is no RESP: {line[:41]!r}") from None
        if kind in _BLOBS:
            self._at += length + len(_LINE) if length >= 0 else 0
        elif kind in _LISTS or kind in _MAPS:
            # An attribute is followed by the value that it describes.
            self._left += max(0, length) * (2 if kind in _MAPS else 1) + (kind == b"|")
        else:
            raise ProtocolError(f"this is no RESP: {line[:41]!r}")

    def _remove(self) -> bytes:
        raw = bytes(self.data[: self._at])
        del self.data[: self._at]
        self._at, self._left = 0, 1
        return raw


class RespWire:
    """One connection to Redis. `place` is where a cluster would send a client: to the proxy."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._client = _Values()
        self._server = _Values()
        self._in_multi = False
        # A command of the transaction was refused, so its EXEC must be, too.
        self._doomed = False

    def from_client(self, data: bytes) -> Iterator[Request]:
        """Commands, each a round of its own."""
        self._client.data += data
        while (raw := self._client.take_request()) is not None:
            words = _parse_words(raw)
            if words:
                yield self._parse_request(raw, words[0].decode("utf-8", "replace").upper())

    def _parse_request(self, raw: bytes, name: str) -> Request:
        if name in ("EXEC", "DISCARD"):
            doomed, self._in_multi, self._doomed = self._doomed, False, False
            if doomed and name == "EXEC":
                return Request(raw=_DISCARD, name=name, ends=True, forged=_build_error(_ABORTED))
        elif name == "MULTI":
            self._in_multi = True
        return Request(raw=raw, name=name, chatter=name in _CHATTER, ends=True)

    def from_server(self, data: bytes) -> Iterator[Reply]:
        """Replies; pushes belong to no request."""
        self._server.data += data
        while (raw := self._server.take()) is not None:
            aside = raw[:1] == b">"
            yield Reply(raw=raw, ends=not aside, aside=aside)

    def build_refusal(self, request: Request, reply: str) -> Refusal:
        """An error; a transaction is given up as the server would give it up."""
        text = f"MOVED 0 {self._place}" if reply == "MOVED" else REPLIES.get(reply, reply)
        if request.name == "EXEC":
            return Refusal(error=_build_error(text), forward=_DISCARD)
        self._doomed = self._in_multi
        return Refusal(error=_build_error(text))

    def rewrite_reply(self, reply: Reply, error: bytes) -> bytes:  # noqa: ARG002 (the protocol's)
        """Replace the whole reply."""
        return error


def _build_error(text: str) -> bytes:
    return f"-{text}\r\n".encode()


def _parse_words(raw: bytes) -> list[bytes]:
    if raw[:1] != b"*":
        return raw.split()
    # Of a command, only the first word is of interest: after the list's and its own length.
    parts = raw.split(_LINE, 3)
    return [parts[2]] if len(parts) > 2 else []
