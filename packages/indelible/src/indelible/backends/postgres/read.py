"""Reads of the log and of sessions, in as few round trips as possible."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

from indelible import view
from indelible.backends.postgres.arrays import IntArray
from indelible.backends.postgres.connection import HANDLERS, PostgresConnection
from indelible.backends.postgres.sessions import COLUMNS_COUNT, LOAD_SESSION, build_session_row
from indelible.backends.postgres.statements import (
    CONTENT,
    IN_MANY,
    Rows,
    split_bounds,
)
from indelible.backends.postgres.transaction import PostgresTransaction
from indelible.core import handlers
from indelible.core.codec import KIND_BYTES, has_kind
from indelible.core.operations import EntrySlice, Head, Read, ReadHead, StoredEntry
from indelible.core.rows import KIND_BY_NUMBER, KIND_NUMBER, SessionRow
from indelible.errors import BusyError
from indelible.model import Kind
from indelible.view import Extents

# `IN_MANY` takes any number of extents, but the planner makes a better plan of a plain range. Rows
# are sorted here: for a long session, the server would sort them on disk.
_IN_ONE: Final = """
    FROM indelible.entry WHERE session OPERATOR(pg_catalog.=) $1
        AND position OPERATOR(pg_catalog.>=) $2 AND position OPERATOR(pg_catalog.<) $3"""
# Entries of other kinds are returned without their bodies. They are not left out, because a missing
# position, or a damaged kind, must not pass for an entry that was not asked for.
_ROWS: Final = f"""
    SELECT position, kind, written_at, CASE WHEN kind OPERATOR(pg_catalog.=) ANY($4::bigint[])
        THEN pg_catalog.substr(payload, 1, {KIND_BYTES}) ELSE payload END,
        {CONTENT.format(salt="$5")} """
_ROWS_IN_ONE: Final = _ROWS + _IN_ONE
_ROWS_IN_MANY: Final = _ROWS + IN_MANY
# How often a read starts again because a vacuum removed entries before they were read.
_ATTEMPTS_MAX: Final = 10


class _VacuumedError(Exception):
    """A vacuum removed entries of the state that was loaded."""


@HANDLERS.handles(Read)
def read(db: PostgresConnection, op: Read) -> EntrySlice:
    """Read entries of one state, in order."""
    for _ in range(_ATTEMPTS_MAX):
        try:
            return handlers.read(_Reader(db, op), op)
        except _VacuumedError:
            continue
    raise BusyError(f"session {op.session!r} was vacuumed again and again while it was read")


@HANDLERS.handles(ReadHead)
def read_head(db: PostgresConnection, op: ReadHead) -> Head:
    """Read a session without its entries."""
    return handlers.read_head(_Reader(db), op)


class _Reader(PostgresTransaction):
    """Reads without a transaction, which saves round trips.

    The session's row has the view and the end of the log of one state, and entries never change, so
    they may be read after it. Only a vacuum can come between. The newest entries are read together
    with the session.
    """

    __slots__ = ("_loaded", "_newest", "_others")

    def __init__(self, db: PostgresConnection, op: Read | None = None) -> None:
        super().__init__(db, writes=False)
        self._newest, self._others = 0, IntArray()
        self._loaded: Rows = []
        if op is not None:
            kinds = KIND_NUMBER.items()
            self._others = IntArray(n for kind, n in kinds if op.kinds and kind not in op.kinds)
            is_simple = op.newest and op.start is None and op.frozen is None
            self._newest = op.limit + 1 if is_simple and op.limit is not None else 0

    def find_session(self, name: str, *, damaged: bool = False) -> SessionRow | None:  # noqa: ARG002
        context = self._context
        salt = context.compute_salt(name) if self._newest else 0
        wanted = self._newest, self._others, KIND_BYTES, salt
        params = *context.get_primary_key(name), context.now_ms(), *wanted
        (fields,) = self._db.query(LOAD_SESSION, params, is_qualified=True)
        row, self._now_ms = build_session_row(name, fields)
        columns = fields[COLUMNS_COUNT:]
        if columns[0] is not None:
            self._loaded = sorted(zip(*columns, strict=True))
        return row

    def read_entries(
        self, row: SessionRow, extents: Extents, kinds: frozenset[Kind] | None, *, newest: bool
    ) -> list[StoredEntry]:
        found, self._loaded = self._loaded, []
        if not found or [each[0] for each in found] != list(view.iter_positions(extents)):
            found = self._read_rows(row, extents)
        entries: list[StoredEntry] = []
        for position, number, written_at, payload, content in found[::-1] if newest else found:
            kind = KIND_BY_NUMBER.get(number)
            if kind is not None and kinds is not None and kind not in kinds:
                if has_kind(kind, payload):
                    continue
                # Its kind is damaged: it is returned with its body.
                whole = "SELECT payload FROM indelible.entry WHERE session = $1 AND position = $2"
                ((payload,),) = self._db.query(whole, (row.number, position))  # noqa: PLW2901
            entries.append(StoredEntry(position, kind, written_at, payload, content))
        return entries

    def _read_rows(self, row: SessionRow, extents: Extents) -> Rows:
        """Read the rows of extents, with an empty one for each that is missing."""
        salt = self._context.compute_salt(row.name)
        is_one = len(extents) == 1
        bounds = extents[0] if is_one else split_bounds(extents)
        params = row.number, *bounds, self._others, salt
        query = _ROWS_IN_ONE if is_one else _ROWS_IN_MANY
        found = sorted(self._db.query(query, params, is_qualified=True), key=itemgetter(0))
        if len(found) == view.count(extents):
            return found
        now = self.find_session(row.name)
        if now is None or (now.token, now.born, now.vacuums) != (
            row.token,
            row.born,
            row.vacuums,
        ):
            raise _VacuumedError
        there = {each[0]: each for each in found}
        return [there.get(at, (at, None, 0, b"", None)) for at in view.iter_positions(extents)]
