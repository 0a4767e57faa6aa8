"""A transaction pooler: each transaction gets another connection to the server, and none is kept.

It speaks just enough of the protocol to know where a transaction ends. What a real one would hand
to the next client unnoticed, such as a setting, a lock or a prepared statement, it writes down.
"""

import contextlib
import select
import socket
import struct
import threading
from collections import deque

PROTOCOL = 196608
SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
# A bound on what hangs.
WAIT_S_MAX = 120
# What a session keeps, and a transaction must not leave to it.
LEFT_BEHIND = b"""
    SELECT 'statement ' || name FROM pg_prepared_statements
    UNION ALL SELECT 'cursor ' || name FROM pg_cursors
    UNION ALL SELECT 'lock' FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
    UNION ALL SELECT 'setting ' || name FROM pg_settings WHERE source = 'session'
    UNION ALL SELECT 'table ' || relname FROM pg_class WHERE relpersistence = 't'
    UNION ALL SELECT 'channel ' || pg_listening_channels()"""


class Frames:
    """Bytes from a socket, cut into messages."""

    def __init__(self, connected):
        self.socket = connected
        # Messages are passed on one by one, and each is waited for.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def fileno(self):
        return self.socket.fileno()

    def take(self):
        """The messages that one look at the socket completes: their kind, and all their bytes."""
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("hung up")
        self._rest += data
        found = []
        while len(self._rest) >= 5:
            length = 1 + struct.unpack_from("!I", self._rest, 1)[0]
            if len(self._rest) < length:
                break
            found.append((self._rest[:1], self._rest[:length]))
            self._rest = self._rest[length:]
        return found


class Behind(Frames):
    """One connection to the server, of which nobody may think that it is his."""

    def __init__(self, port, database):
        super().__init__(socket.create_connection(("127.0.0.1", port)))
        words = f"user\0postgres\0database\0{database}\0\0".encode()
        self.socket.sendall(struct.pack("!II", 8 + len(words), PROTOCOL) + words)
        # What a client is told about the server, too.
        self.greeting = b"".join(every for kind, every in self._answer() if kind == b"S")

    def left_behind(self):
        """What the last transaction left to this connection."""
        self.socket.sendall(b"Q" + struct.pack("!I", 5 + len(LEFT_BEHIND)) + LEFT_BEHIND + b"\0")
        # A row with one column: its bytes follow two counts.
        return [every[11:].decode() for kind, every in self._answer() if kind == b"D"]

    def _answer(self):
        said = []
        while not said or said[-1][0] != b"Z":
            said += self.take()
        assert all(kind != b"E" for kind, _ in said), said
        return said


class Pooler:
    """Listens on a loopback port, and has a few connections for any number of clients."""

    def __init__(self, server_port, database="postgres", *, connections=3):
        self._free = deque(Behind(server_port, database) for _ in range(connections))
        self._all = list(self._free)
        self._changed = threading.Condition()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._database = database
        self.transactions = 0
        # What would have reached the next client.
        self.leaks = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        port = self._listening.getsockname()[1]
        return f"postgresql://postgres@127.0.0.1:{port}/{self._database}"

    def close(self):
        # It wakes up who waits for the next client; closing alone would not.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for behind in self._all:
            behind.socket.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client, contextlib.suppress(ConnectionError, OSError):
            self._greet(client)
            Turn(self, Frames(client)).serve()

    def _greet(self, client):
        def exactly(count):
            data = client.recv(count, socket.MSG_WAITALL)
            if len(data) < count:
                raise ConnectionError("hung up")
            return data

        while True:
            length, asked = struct.unpack("!II", exactly(8))
            if asked not in (SSL_REQUEST, GSS_REQUEST):
                break
            client.sendall(b"N")
        exactly(length - 8)
        welcome = b"R" + struct.pack("!II", 8, 0)
        ready = b"Z" + struct.pack("!I", 5) + b"I"
        client.sendall(welcome + self._all[0].greeting + ready)

    def take(self):
        """The connection that rested longest."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._free, WAIT_S_MAX), "none was given back"
            self.transactions += 1
            return self._free.popleft()

    def give_back(self, behind):
        leaks = behind.left_behind()
        with self._changed:
            self.leaks += leaks
            self._free.append(behind)
            self._changed.notify()


class Turn:
    """A client, and the connection that it has while a transaction is open."""

    def __init__(self, pooler, client):
        self._pooler = pooler
        self._client = client
        self._behind = None
        # Questions to which the server owes a `ReadyForQuery`.
        self._open = 0

    def serve(self):
        while True:
            ends = [self._client] if self._behind is None else [self._client, self._behind]
            readable, _, _ = select.select(ends, [], [])
            # Answers first: what the client asks next may belong to its next transaction.
            if self._behind in readable:
                self._answered()
            elif not self._asked():
                return

    def _asked(self):
        for kind, every in self._client.take():
            if kind == b"X":
                return False
            if kind == b"P" and every[5:6] != b"\0":
                self._pooler.leaks.append("a named statement")
            if self._behind is None:
                self._behind = self._pooler.take()
            self._open += kind in (b"Q", b"S")
            self._behind.socket.sendall(every)
        return True

    def _answered(self):
        for kind, every in self._behind.take():
            if kind == b"Z":
                self._open -= 1
                if not self._open and every[5:] == b"I":
                    # Before the client hears of it, so that what it left is known by then.
                    behind, self._behind = self._behind, None
                    self._pooler.give_back(behind)
            self._client.socket.sendall(every)
