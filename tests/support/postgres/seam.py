"""A function that stands between a store and everything that it sends."""

import psycopg

from indelible.backends.postgres.errors import translate_error


def put_between(backend, seam):
    """Have `seam(step, run)` called for every round trip; it makes it with `run()`."""
    borrow = backend.pool.borrow

    def borrow_watched(lease, deadline):
        connection = borrow(lease, deadline)
        if "send" not in vars(connection):
            connection.send = Watched(connection, seam)
        return connection

    backend.pool.borrow = borrow_watched


class Step:
    """What is sent in one round trip."""

    def __init__(self, texts, may_commit):
        self.text = "; ".join(texts)
        self.may_commit = may_commit


class Watched:
    """Stands in the place of `PostgresConnection.send`."""

    def __init__(self, connection, seam):
        self._connection = connection
        self._send = connection.send
        self._seam = seam

    def __call__(self, statement, *, may_commit=False):
        texts = [text for text, _ in (*self._connection._pending, statement)]
        try:
            return self._seam(
                Step(texts, may_commit), lambda: self._send(statement, may_commit=may_commit)
            )
        except psycopg.Error as error:
            raise translate_error(error, place="it", committing=may_commit) from error
