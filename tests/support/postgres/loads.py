"""Writers that go on whatever happens to the server, and note what they were told."""

from __future__ import annotations

import threading
import time

import indelible
from tests.support.ledger import SESSION, Write, batch_of
from tests.support.wait import wait_until

WAIT_S_MAX = 120.0


class Load:
    """Threads of one store that append until they are told to stop."""

    def __init__(self, store, writers=4):
        self.writes: list[Write] = []
        self.errors: list[indelible.MemoryStoreError] = []
        self._store = store
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(f"w{n}",), daemon=True)
            for n in range(writers)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join(WAIT_S_MAX)
        assert not any(thread.is_alive() for thread in self._threads)

    def _write(self, writer):
        number = 0
        while not self._over.is_set():
            invoked_ns = time.monotonic_ns()
            key = f"{writer}-{number}"
            try:
                receipt = self._store.add_messages(SESSION, batch_of(writer, number), key=key)
            except indelible.MemoryStoreError as error:
                self.errors.append(error)
                if error.landed == "no":
                    number += 1
                # One that may have landed is asked for again, with its key.
                continue
            positions = receipt.positions
            self.writes.append(
                Write(
                    writer,
                    number,
                    positions.start,
                    positions.stop,
                    invoked_ns,
                    time.monotonic_ns(),
                )
            )
            number += 1

    def wait_for(self, more):
        """Wait until so many more appends were acknowledged."""
        wanted = len(self.writes) + more
        wait_until(lambda: len(self.writes) >= wanted)


def insist(call):
    """Do it again until the server took it: a busy machine may pass any short deadline."""
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        try:
            return call()
        except indelible.MemoryStoreBackendError:
            assert time.monotonic() < deadline, "the server takes nothing"
