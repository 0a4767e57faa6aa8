"""The wire protocol of PostgreSQL, version 3, as far as a proxy must know it."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

from memory_contract.faults.proxy.fault_queue import STARTUP
from memory_contract.faults.proxy.frames import ProtocolError, Refusal, Reply, Request

_LONG: Final = struct.Struct("!I")
# Requests that come before everything else, by the number in the version's place.
_CANCEL: Final = 80877102
_SSL: Final = 80877103
_GSS: Final = 80877104
# A statement that does not exist: binding it makes the server fail the transaction.
_NOBODY: Final = b"indelible_prepared_no_such_statement"
# A statement that fails and, as a failed COMMIT does, ends its transaction: no server takes a name
# of 200 bytes or more.
_COMMITS: Final = ("COMMIT", "END")
_FAILED_COMMIT: Final = b"PREPARE TRANSACTION '" + b"x" * 200 + b"'"
# After these a server hangs up.
_FATAL: Final = ("57P01", "57P02", "57P03", "53300", "28000")
REPLIES: Final = {
    "40001": "could not serialize access due to concurrent update",
    "40P01": "deadlock detected",
    "53100": "could not extend file: No space left on device",
    "53200": "out of memory",
    "53300": "sorry, too many clients already",
    "55P03": "canceling statement due to lock timeout",
    "57P01": "terminating connection due to administrator command",
    "57P03": "the database system is starting up",
    "25006": "cannot execute INSERT in a read-only transaction",
}
_COMMENT: Final = re.compile(rb"\s+|--[^\n]*\n?|/\*.*?\*/|\(", re.DOTALL)
_WORD: Final = re.compile(rb"[A-Za-z]+")
# The messages that end a statement: complete, empty, or suspended.
_COMPLETE: Final = (b"C", b"I", b"s")
# The longest message that is waited for; a length beyond it is no length.
_BYTES_MAX: Final = 1 << 30


class PostgresWire:
    """One connection to PostgreSQL."""

    def __init__(self) -> None:
        self._client = bytearray()
        self._server = bytearray()
        self._started = False
        # The first word of each prepared statement, by its name.
        self._prepared: dict[bytes, str] = {}

    def from_client(self, data: bytes) -> Iterator[Request]:
        """Messages; a round is what stands before a Sync, or a simple query."""
        self._client += data
        while True:
            head = 1 if self._started else 0
            raw = _take_message(self._client, head)
            if raw is None:
                return
            yield self._parse_request(raw) if self._started else self._parse_first(raw)

    def _parse_first(self, raw: bytes) -> Request:
        (code,) = _LONG.unpack_from(raw, 4)
        if code in (_SSL, _GSS):
            # Not over this line: clients that may then go on without.
            return Request(raw=b"", answer=b"N")
        if code == _CANCEL:
            return Request(raw=raw)
        self._started = True
        return Request(raw=raw, name=STARTUP, chatter=True, ends=True)

    def _parse_request(self, raw: bytes) -> Request:
        body = raw[5:]
        match raw[:1]:
            case b"Q":
                return Request(raw=raw, name=_parse_first_word(body), ends=True)
            case b"P":
                name, _, rest = body.partition(b"\0")
                self._prepared[name] = _parse_first_word(rest)
            case b"B":
                # A portal's name, then the statement's.
                statement = body.split(b"\0", 2)[1]
                return Request(raw=raw, name=self._prepared.get(statement, ""))
            case b"S" | b"F":
                return Request(raw=raw, ends=True)
        return Request(raw=raw)

    def from_server(self, data: bytes) -> Iterator[Reply]:
        """Messages; the last of a round says that the server is ready."""
        self._server += data
        while (raw := _take_message(self._server, 1)) is not None:
            kind = raw[:1]
            yield Reply(raw=raw, ends=kind == b"Z", completes=kind in _COMPLETE, fails=kind == b"E")

    def build_refusal(self, request: Request, reply: str) -> Refusal:
        """An error with this SQLSTATE, in the place of one that the server really raises."""
        fatal = reply in _FATAL
        error = _build_error(reply, "FATAL" if fatal else "ERROR")
        if fatal:
            return Refusal(error=error, closes=True)
        commits, is_query = request.name in _COMMITS, request.raw[:1] == b"Q"
        if is_query:
            statement = _FAILED_COMMIT if commits else b"EXECUTE " + _NOBODY
            return Refusal(error=error, forward=_pack(b"Q", statement + b"\0"))
        if commits:
            # In place of the statement that is bound, an unnamed one.
            parse = _pack(b"P", b"\0" + _FAILED_COMMIT + b"\0" * 3)
            return Refusal(error=error, forward=parse + _pack(b"B", b"\0" * 8))
        return Refusal(error=error, forward=_pack(b"B", b"\0" + _NOBODY + b"\0" + b"\0" * 6))

    def rewrite_reply(self, reply: Reply, error: bytes) -> bytes:
        """Replace the server's error; the messages around it stay as they are."""
        return error if reply.raw[:1] == b"E" else reply.raw


def _take_message(data: bytearray, head: int) -> bytes | None:
    """Remove the first message, whose length is behind `head` bytes; None if it is incomplete."""
    if len(data) < head + 4:
        return None
    (length,) = _LONG.unpack_from(data, head)
    if not 4 <= length < _BYTES_MAX:
        raise ProtocolError(f"this is not PostgreSQL's protocol: {bytes(data[:20])!r}")
    if len(data) < head + length:
        return None
    raw = bytes(data[: head + length])
    del data[: head + length]
    return raw


def _pack(kind: bytes, body: bytes) -> bytes:
    return kind + _LONG.pack(len(body) + 4) + body


def _build_error(code: str, severity: str) -> bytes:
    fields = {"S": severity, "V": severity, "C": code, "M": REPLIES.get(code, "refused")}
    body = b"".join(f"{name}{text}\0".encode() for name, text in fields.items())
    return _pack(b"E", body + b"\0")


def _parse_first_word(sql: bytes) -> str:
    at = 0
    while found := _COMMENT.match(sql, at):
        at = found.end()
    word = _WORD.match(sql, at)
    return word[0].decode().upper() if word else "EMPTY"
