"""Reads a database file that does not change: its schema, its tables, every row."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import apsw

from pytest_snapshot_db.errors import GoldenError
from pytest_snapshot_db.taking import uri

Cell = int | float | str | bytes | None
Row = tuple[Cell, ...]

# Enough to see what is wrong; a file that is badly damaged has thousands.
PROBLEMS_MAX: Final = 10
ROWID: Final = "rowid"
# Where SQLite counts for AUTOINCREMENT, a row for each table, in no order that means anything.
COUNTERS: Final = "sqlite_sequence"


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """What is known of a table before its rows are read."""

    name: str
    columns: tuple[str, ...]
    """The stored ones: those that are computed follow from them."""
    computed: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    """The columns of its primary key."""
    ordered: bool = False
    """Whether its rows stand in an order of their own, which is not that of the key."""
    clustered: bool = False
    """Whether its rows lie sorted by a key that is not just a number."""
    query: str = field(repr=False)

    def stores(self, column: str) -> bool:
        """Whether the table keeps such a column, in small letters."""
        return column in map(str.lower, self.columns)

    def named(self, column: str) -> bool:
        """Whether the table has such a column, stored or computed."""
        return self.stores(column) or column in map(str.lower, self.computed)


class Reference(NamedTuple):
    """A column that holds values of another table's column."""

    column: str
    table: str
    to: str


class Tally(NamedTuple):
    """All rows of a table in short."""

    rows: int
    digest: str


class Database:
    """An open file, by a connection that neither changes it nor leaves anything beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = apsw.Connection(
                uri(path, immutable=True), apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            )
        except apsw.Error as error:
            raise GoldenError(f"{path} cannot be opened: {error}") from None
        with _told(path):
            # What a file says of itself must not run code here.
            self._db.execute("PRAGMA trusted_schema = OFF")
            self.tables = {table.name.lower(): table for table in self._find_tables()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def pragma(self, name: str) -> int:
        """A number in the file's header, such as its user_version."""
        with _told(self.path):
            return int(self._db.pragma(name))

    def schema(self) -> dict[tuple[str, str], str]:
        """What was created, by kind and name; what SQLite made by itself is left out."""
        with _told(self.path):
            found = self._db.execute(
                "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
            ).fetchall()
        hidden = self._shadows()
        return {(str(t), str(name)): str(sql) for t, name, sql in found if name not in hidden}

    def rows(self, table: Table) -> Iterator[Row]:
        """Every row, in the order in which they lie in the file."""
        done = 0
        with _told(self.path):
            try:
                for row in self._db.execute(table.query):
                    yield row
                    done += 1
            except UnicodeDecodeError:
                yield from self._rows_as_bytes(table, done)

    def _rows_as_bytes(self, table: Table, skip: int) -> Iterator[Row]:
        """The rest of the rows, where a text is not one: its bytes are kept."""
        columns = ", ".join(
            f"typeof({n}) = 'text', iif(typeof({n}) = 'text', CAST({n} AS BLOB), {n})"
            for n in map(quoted, table.columns)
        )
        _, _, rest = table.query.partition(" FROM ")
        query = f"SELECT {columns} FROM {rest} LIMIT -1 OFFSET {skip}"  # noqa: S608 (quoted)
        encoding = str(self._db.pragma("encoding")).replace("-", "").lower()
        for row in self._db.execute(query):
            pairs = zip(row[::2], row[1::2], strict=True)
            yield tuple(
                str(cell, encoding, "surrogateescape") if text else cell for text, cell in pairs
            )

    def tally(self, table: Table) -> Tally:
        """How many rows it has, and a digest of all of them in their order."""
        digest = hashlib.blake2b(packed(table.columns), digest_size=16)
        count = 0
        for row in self.rows(table):
            digest.update(packed(row))
            count += 1
        return Tally(count, digest.hexdigest())

    def references(self, table: Table) -> list[Reference]:
        """The foreign keys that the table declares, a column each."""
        with _told(self.path):
            found = self._db.execute(
                'SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)', (table.name,)
            ).fetchall()
        given = []
        for column, parent, to in found:
            other = self.tables.get(str(parent).lower())
            if other is not None and (to or len(other.key) == 1):
                given.append(
                    Reference(
                        str(column).lower(), other.name.lower(), str(to or other.key[0]).lower()
                    )
                )
        return given

    def problems(self) -> list[str]:
        """What SQLite's own check says; nothing if all is well, or if the check is not possible."""
        try:
            found = [
                str(row[0]) for row in self._db.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})")
            ]
        except apsw.SQLError:
            # The file needs a function or a collation of its program, which is not here.
            return []
        except apsw.Error as error:
            return [str(error)]
        return [] if found == ["ok"] else found

    def _shadows(self) -> set[str]:
        """Tables in which a virtual table keeps what its own rows show."""
        listed = self._listed()
        readable = [name for name, kind, _ in listed if kind == "virtual" and self._reads(name)]
        return {
            name
            for name, kind, _ in listed
            if kind == "shadow" and any(name.startswith(f"{each}_") for each in readable)
        }

    def _listed(self) -> list[tuple[str, str, bool]]:
        return [
            (str(name), str(kind), bool(without_rowid))
            for name, kind, without_rowid in self._db.execute(
                "SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main'"
                " AND type <> 'view' AND name <> 'sqlite_schema' ORDER BY name"
            )
        ]

    def _reads(self, virtual: str) -> bool:
        try:
            self._db.execute(f"SELECT rowid, * FROM {quoted(virtual)} LIMIT 1").fetchall()  # noqa: S608
        except (apsw.Error, UnicodeDecodeError):
            return False
        return True

    def _find_tables(self) -> Iterator[Table]:
        hidden = self._shadows()
        for name, kind, without_rowid in self._listed():
            if name in hidden:
                continue
            if kind == "virtual":
                yield from self._virtual(name)
            else:
                yield self._table(name, without_rowid=without_rowid)

    def _table(self, name: str, *, without_rowid: bool) -> Table:
        found = self._db.execute(
            "SELECT name, type, pk, hidden FROM pragma_table_xinfo(?)", (name,)
        ).fetchall()
        columns = tuple(str(column) for column, _, _, hidden in found if not hidden)
        key = tuple(str(c) for _, c in sorted((pk, column) for column, _, pk, _ in found if pk))
        kinds = {str(column): str(kind).upper() for column, kind, _, _ in found}
        by_rowid = len(key) == 1 and kinds[key[0]] == "INTEGER"
        if name == COUNTERS:
            key, by_rowid = ("name",), True
        chosen = ", ".join(map(quoted, columns))
        return Table(
            name=name,
            columns=columns,
            computed=tuple(str(column) for column, _, _, hidden in found if hidden),
            key=key,
            ordered=not without_rowid and not by_rowid,
            clustered=without_rowid,
            # No index: rows come as they lie in the table, and not as an index sorts them.
            query=f"SELECT {chosen} FROM {quoted(name)} NOT INDEXED",  # noqa: S608 (quoted)
        )

    def _virtual(self, name: str) -> Iterator[Table]:
        """A virtual table by the rows that it shows; of a search index, also what it would find."""
        if not self._reads(name):
            return
        found = self._db.execute(
            "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", (name,)
        ).fetchall()
        columns = tuple(str(column) for (column,) in found)
        chosen = ", ".join(map(quoted, columns))
        query = f"SELECT rowid, {chosen} FROM {quoted(name)}"  # noqa: S608 (quoted)
        yield Table(name=name, columns=(ROWID, *columns), key=(ROWID,), query=query)
        terms = f"{name} terms"
        with suppress(apsw.Error):
            self._db.execute(
                f"CREATE VIRTUAL TABLE temp.{quoted(terms)}"
                f" USING fts5vocab('main', {quoted(name)}, 'instance')"
            )
            query = f"SELECT term, doc, col, offset FROM temp.{quoted(terms)}"  # noqa: S608
            self._db.execute(f"{query} LIMIT 1").fetchall()
            yield Table(name=terms, columns=("term", "doc", "col", "offset"), query=query)


class _told:  # noqa: N801 (reads as a word in a with)
    """Errors of SQLite as ours, with the file's name. A class: generators leave it open."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(exc, apsw.NotADBError):
            raise GoldenError(f"{self._path} is not a SQLite database") from exc
        if isinstance(exc, apsw.Error):
            raise GoldenError(f"{self._path} cannot be read: {exc}") from exc


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever stands in it."""
    return '"' + name.replace('"', '""') + '"'


def packed(row: Sequence[Cell]) -> bytes:
    """A row as bytes: two rows have the same if and only if their types and values are the same."""
    parts = []
    for cell in row:
        if cell is None:
            parts.append(b"n")
        elif isinstance(cell, int):
            parts.append(b"i%d;" % cell)
        elif isinstance(cell, float):
            parts.append(b"f" + struct.pack(">d", cell))
        elif isinstance(cell, str):
            text = cell.encode("utf-8", "surrogateescape")
            parts.append(b"t%d:" % len(text) + text)
        else:
            parts.append(b"b%d:" % len(cell) + cell)
    return b"".join(parts)


def short(row: Sequence[Cell]) -> bytes:
    """A digest of a row, to keep many of them."""
    return hashlib.blake2b(packed(row), digest_size=16).digest()
