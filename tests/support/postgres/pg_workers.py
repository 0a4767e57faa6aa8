"""What the processes of these tests do."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from unittest import mock

import indelible
from indelible.backends.postgres import schema
from tests.support.ledger import SESSION, Write, batch_of

NEXT_FORMAT = schema.FORMAT + 1
# It fails if it is run twice.
MIGRATION = f"""
    ALTER TABLE indelible.entry ADD COLUMN of_the_next_format text;
    UPDATE indelible.about SET value = {NEXT_FORMAT} WHERE name = 'format'"""


@contextmanager
def next_format(script=MIGRATION):
    """Have one more migration."""
    read = schema.read_migration

    def read_or_make(version):
        return script if version == NEXT_FORMAT else read(version)

    with (
        mock.patch.object(schema, "FORMAT", NEXT_FORMAT),
        mock.patch.object(schema, "read_migration", read_or_make),
    ):
        yield


def upgrade_and_append(gate, index, url):
    """Do as `open_and_append`, with code of the next format."""
    with next_format():
        return open_and_append(gate, index, url)


def open_and_append(gate, index, url):
    """Open as the others do, and append one message; where it stands."""
    gate.wait()
    with indelible.open(url, timeout_s=60) as store:
        return store.add_message("s", "user", f"from {index}").positions.start


def write_batches(gate, index, url, batches):
    """Append batches to one session; what was acknowledged."""
    with indelible.open(url, timeout_s=60) as store:
        gate.wait()
        writes = []
        for number in range(batches):
            invoked_ns = time.monotonic_ns()
            receipt = store.add_messages(SESSION, batch_of(f"p{index}", number))
            first, stop = receipt.positions.start, receipt.positions.stop
            done_ns = time.monotonic_ns()
            writes.append(Write(f"p{index}", number, first, stop, invoked_ns, done_ns))
        return writes


def one_key(gate, index, url, key):
    """Append one thing, which all the others append too."""
    with indelible.open(url, timeout_s=60) as store:
        gate.wait()
        receipt = store.add_message(SESSION, "user", "once", key=key)
        return receipt.positions.start, receipt.replayed


def append_in_a_forked_child(url):
    """Both sides of a fork go on with one store."""
    with indelible.open(url, timeout_s=60) as store:
        store.add_message("s", "user", "before")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.add_message("s", "user", "child")
                code = 0
            finally:
                os._exit(code)
        store.add_message("s", "user", "parent")
        _, status = os.waitpid(child, 0)
        store.add_message("s", "user", "after")
        return os.waitstatus_to_exitcode(status), sorted(m.content for m in store.get_history("s"))
