"""TLS in front of a server that has none: it takes connections, and passes bytes on."""

import contextlib
import socket
import ssl
import threading
from pathlib import Path

# A certificate for localhost that signs itself, and its key. It protects nothing.
CERTIFICATE = Path(__file__).parent / "for_tests_only.pem"


class TlsFront:
    """Listens on a loopback port, and speaks TLS there."""

    def __init__(self, server_port, *, asked_for=b"", answer=b"", may_end=None):
        self._server_port = server_port
        # An event that is waited for before the end of a connection is answered.
        self._may_end = may_end
        # What a client says before, where TLS does not begin at once, and what it is told.
        self._asked_for = asked_for
        self._answer = answer
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(CERTIFICATE)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listening.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain):
        with contextlib.suppress(OSError):
            if plain.recv(len(self._asked_for), socket.MSG_WAITALL) != self._asked_for:
                plain.close()
                return
            plain.sendall(self._answer)
            secret = self._context.wrap_socket(plain, server_side=True)
            behind = socket.create_connection(("127.0.0.1", self._server_port))
            threading.Thread(target=self._pass_on, args=(behind, secret), daemon=True).start()
            self._pass_on(secret, behind)

    def _pass_on(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        if self._may_end is not None:
            self._may_end.wait()
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.close()
