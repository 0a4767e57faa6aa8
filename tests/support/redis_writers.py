"""Writers that live through the death of a server: what they sent, and what was acknowledged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import indelible

# A bound on what hangs.
WAIT_S_MAX = 120


def insist(call):
    """Do it again until the server took it: a busy machine may pass any short deadline."""
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        try:
            return call()
        except indelible.MemoryStoreBackendError:
            assert time.monotonic() < deadline, "the server takes nothing"


class Writer(threading.Thread):
    """Appends numbered messages under keys until it is told to stop; a failed one is sent again."""

    def __init__(self, store, session, name):
        super().__init__(daemon=True)
        self.store = store
        self.session = session
        self.prefix = name
        self.acknowledged = []
        self.errors = []
        self.stopping = threading.Event()
        self.start()

    def run(self):
        number = 0
        while not self.stopping.is_set():
            text = f"{self.prefix}-{number}"
            try:
                self.store.add_message(self.session, "user", text, key=text)
            except indelible.MemoryStoreBackendError as error:
                self.errors.append(error)
                continue
            self.acknowledged.append(text)
            number += 1

    def stop(self):
        self.stopping.set()
        self.join(WAIT_S_MAX)
        assert not self.is_alive()


def texts(store, session):
    return [message.content for message in store.get_history(session)]


PROCESS = """
import json, sys, indelible
url, session, name, path = sys.argv[1:5]
options = json.loads(sys.argv[5])

def open_store():
    # On a busy machine a primary may have been replaced, and waits for its replica.
    while True:
        try:
            return indelible.open(url, **options)
        except (indelible.UnsupportedError, indelible.UnavailableError):
            continue

with open_store() as store, open(path, "w", buffering=1) as ledger:
    for number in range(100_000):
        text = f"{name}-{number}"
        while True:
            try:
                # No key of ours: the store's own must do.
                store.add_message(session, "user", text)
            except indelible.OutcomeUnknownError as error:
                ledger.write(json.dumps(["unknown", text]) + chr(10))
                try:
                    store.add_message(session, "user", text, key=error.key)
                except indelible.OutcomeUnknownError:
                    break
                except indelible.UnavailableError:
                    break
                ledger.write(json.dumps(["ack", text]) + chr(10))
                break
            except indelible.UnavailableError as error:
                assert error.landed == "no"
                ledger.write(json.dumps(["refused", text]) + chr(10))
                continue
            ledger.write(json.dumps(["ack", text]) + chr(10))
            break
"""


class ProcessWriter:
    """The same in a process of its own, with a ledger on disk."""

    def __init__(self, url, session, name, folder: Path, **options):
        self.path = folder / f"{name}.ledger"
        self.path.touch()
        arguments = [url, session, name, str(self.path), json.dumps(options)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, *arguments],
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )

    def lines(self, kind):
        found = []
        for line in self.path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                what, text = json.loads(line)
                if what == kind:
                    found.append(text)
        return found

    def refuse_death(self):
        """Fail if it ended by itself, with what it said."""
        if self.process.poll() is not None:
            self.end()

    def end(self):
        """Kill it in the middle of a call; fail if it ended by itself, with what it said."""
        alive = self.process.poll() is None
        said = self.kill()
        assert alive, said.decode()

    def kill(self):
        """Kill it, and return what it said since."""
        if self.process.stderr.closed:
            return b""
        self.process.kill()
        return self.process.communicate(timeout=WAIT_S_MAX)[1]
