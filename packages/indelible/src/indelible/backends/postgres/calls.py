"""The statements of the hot paths over one connection, by names that the server process knows.

A statement with a name is parsed and planned once. That is safe only where every statement goes to
one and the same server process: behind a pooler the next may go to another. A pooler cannot tell a
client the number of a process that changes, so it makes one up. Where the number that came with the
connection is that of the process which answers, there is none. If it comes about otherwise that a
process does not know a name, it says so and does nothing, and the call goes without.

The driver's cursors are not used here: finding out how each value is to be written takes them
longer than all the rest, and of these statements it is known.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.waiting import Ready, Wait

from indelible.backends.postgres.named import BINARY, Statement
from indelible.backends.postgres.statements import Call, Fetch, Rows

Waits = Generator[Wait, Ready | int, Any]

# A connection that was used so often will be used again: from now on it pays to use names.
CALLS_BEFORE_NAMES: Final = 3
# What a server says of a statement's name that it cannot use (any more); it has done nothing.
_NAME_TROUBLE: Final = {
    "26000",  # invalid_sql_statement_name: it does not know it
    "42P05",  # duplicate_prepared_statement: it knows it from somebody else
    "0A000",  # feature_not_supported: what it stands for has become something else
}
_PID: Final = b"SELECT pg_catalog.pg_backend_pid()::pg_catalog.text"


class Caller:
    """Sends statements over one connection. Its answers are waited for by whoever owns it."""

    def __init__(
        self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], *, named: bool
    ) -> None:
        self._connection = connection
        self._rows = Transformer(connection)
        self._pgconn = connection.pgconn
        # Whether statements may have names, as far as is known.
        self._may_name = named
        self._is_direct = False
        self._known: set[bytes] = set()
        self._calls = 0

    def call(self, op: Call) -> Waits:
        """Call a function, and give its answer."""
        return _text((yield from self._sent(op.statement, op.values)))

    def fetch(self, op: Fetch) -> Waits:
        """Ask a query, and give its rows."""
        result = yield from self._sent(op.statement, op.values)
        self._rows.set_pgresult(result, format=pq.Format.BINARY)
        rows: Rows = self._rows.load_rows(0, result.ntuples, tuple)
        self._rows.set_pgresult(None)
        return rows

    def _sent(self, statement: Statement, values: list[bytes | None]) -> Waits:
        known = statement.name in self._known
        if self._may_name and (known or (yield from self._name(statement))):
            self._pgconn.send_query_prepared(
                statement.name, values, statement.formats, result_format=BINARY
            )
            result = yield from self._result()
            if result.status == pq.ExecStatus.TUPLES_OK:
                return result
            error = self._error(result)
            if error.sqlstate not in _NAME_TROUBLE:
                raise error
            self._may_name = False
        result = yield from self._asked(statement.text, values, statement.types)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise self._error(result)
        return result

    def _name(self, statement: Statement) -> Waits:
        """Whether the server process knows the statement by its name from now on."""
        self._calls += 1
        if self._calls <= CALLS_BEFORE_NAMES:
            return False
        if not self._is_direct:
            said = yield from self._asked(_PID, [], [])
            if said.status != pq.ExecStatus.TUPLES_OK:
                raise self._error(said)
            self._is_direct = _text(said) == str(self._pgconn.backend_pid)
        if self._is_direct:
            self._pgconn.send_prepare(statement.name, statement.text, statement.types)
            if (yield from self._result()).status == pq.ExecStatus.COMMAND_OK:
                self._known.add(statement.name)
                return True
        # Whatever else is wrong, the statement itself will say.
        self._may_name = False
        return False

    def _asked(self, text: bytes, values: list[bytes | None], types: list[int]) -> Waits:
        self._pgconn.send_query_params(
            text, values, types, [BINARY] * len(values), result_format=BINARY
        )
        return (yield from self._result())

    def _result(self) -> Waits:
        return (yield from execute(self._pgconn))[-1]

    def _error(self, result: pq.abc.PGresult) -> psycopg.Error:
        return error_from_result(result, self._connection.info.encoding)


def _text(result: pq.abc.PGresult) -> str | None:
    value = result.get_value(0, 0)
    return None if value is None else value.decode()
