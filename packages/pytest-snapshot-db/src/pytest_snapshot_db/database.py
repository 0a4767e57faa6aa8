"""Reads a database file that does not change: its schema, its tables, every row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import apsw

from pytest_snapshot_db.copy_live import to_uri, translate_errors

Cell = int | float | str | bytes | None
Row = tuple[Cell, ...]

# A badly damaged file has thousands of problems; a few are enough to see what is wrong.
PROBLEMS_MAX: Final = 10
ROWID: Final = "rowid"
# The counters of AUTOINCREMENT: a row for each table, in an order that has no meaning.
COUNTERS: Final = "sqlite_sequence"


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table, without its rows."""

    name: str
    source: str
    """What to select from, in SQL, as `source`; rows come in the order in which they are stored."""
    columns: tuple[str, ...]
    """The stored columns; computed ones follow from them."""
    key: tuple[str, ...] = ()
    """The columns of the primary key."""
    is_ordered: bool = False
    """Whether rows have an order of their own, which is not that of the key."""
    is_clustered: bool = False
    """Whether rows are stored sorted by a key that is not just a number."""

    def has_column(self, column: str) -> bool:
        """Whether there is such a stored column; its name is in lower case."""
        return column in map(str.lower, self.columns)


class Database:
    """An open file, which is neither changed nor gets any file beside it.

    With `beside`, it is attached to the connection of another one, so that SQL sees both.
    """

    def __init__(self, path: Path, *, beside: Database | None = None) -> None:
        self.path = path
        self.schema = "obtained" if beside else "main"
        with translate_errors(path):
            name = to_uri(path, immutable=True)
            if beside:
                self.connection: apsw.Connection = beside.connection
                self.connection.execute(f"ATTACH ? AS {self.schema}", (name,))
            else:
                flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
                self.connection = apsw.Connection(name, flags)
                # The schema of a file must not run code here.
                self.connection.execute("PRAGMA trusted_schema = OFF")
            self.encoding = str(self.connection.pragma("encoding"))
            self._list = self._list_tables()
            self.tables = {table.name.lower(): table for table in self._load_tables()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def execute(self, sql: str, bindings: Sequence[Cell] = ()) -> list[Any]:
        """Run a statement, and return all of its rows."""
        with translate_errors(self.path):
            return list(self.connection.execute(sql, bindings))

    def read_pragma(self, name: str) -> int:
        """Read a number from the header, such as user_version."""
        return int(self.execute(f"PRAGMA {self.schema}.{name}")[0][0])

    def read_schema(self) -> dict[tuple[str, str], str]:
        """Read all CREATE statements by type and name, without what SQLite created by itself."""
        found = self.execute(
            f"SELECT type, name, sql FROM {self.schema}.sqlite_schema WHERE sql IS NOT NULL"
        )
        hidden = {name for name, kind, _ in self._list if kind == "hidden"}
        return {(kind, name): sql for kind, name, sql in found if name not in hidden}

    def read_rows(self, columns: Iterable[str], source: str) -> Iterator[Row]:
        """Read rows of SQL expressions.

        Text may be of any bytes, so SQLite returns it as these; those that are no text become
        surrogates.
        """
        cells = [(f"typeof({cell}) = 'text'", cell) for cell in columns]
        pairs = [f"{text}, iif({text}, CAST({cell} AS BLOB), {cell})" for text, cell in cells]
        with translate_errors(self.path):
            for row in self.connection.execute(f"SELECT {', '.join(pairs)} FROM {source}"):
                yield tuple(
                    str(cell, self.encoding, "surrogateescape") if is_text else cell
                    for is_text, cell in zip(row[::2], row[1::2], strict=True)
                )

    def find_problems(self) -> list[str]:
        """Run SQLite's own check; return nothing if all is well or the check is impossible."""
        check = f"PRAGMA {self.schema}.integrity_check({PROBLEMS_MAX})"
        try:
            found = [str(problem) for (problem,) in self.connection.execute(check)]
        except apsw.SQLError:
            # The file needs a function or a collation of its program.
            return []
        except apsw.Error as error:
            return [str(error)]
        return [] if found == ["ok"] else found

    def _list_tables(self) -> list[tuple[str, str, bool]]:
        """List names, kinds, and whether there is no rowid.

        A virtual table shows its rows, so the tables that it keeps them in are of the kind
        `hidden`. One whose module is not available is left out instead.
        """
        listed = self.execute(
            "SELECT name, type, wr FROM pragma_table_list WHERE schema = ?"
            " AND type <> 'view' AND name <> 'sqlite_schema' ORDER BY name",
            (self.schema,),
        )
        readable = [
            name
            for name, kind, _ in listed
            if kind == "virtual" and self._is_readable(f"rowid, * FROM {self._quote(name)}")
        ]
        prefixes = tuple(f"{name}_" for name in readable)
        return [
            (name, "hidden" if kind == "shadow" and name.startswith(prefixes) else kind, bool(wr))
            for name, kind, wr in listed
            if kind != "virtual" or name in readable
        ]

    def _is_readable(self, selected: str) -> bool:
        try:
            self.connection.execute(f"SELECT {selected} LIMIT 1").fetchall()
        except (apsw.Error, UnicodeDecodeError):
            return False
        return True

    def _quote(self, name: str) -> str:
        return f"{self.schema}.{quote_name(name)}"

    def _load_tables(self) -> Iterator[Table]:
        for name, kind, without_rowid in self._list:
            if kind == "virtual":
                yield from self._load_virtual(name)
            elif kind != "hidden":
                yield self._load_table(name, without_rowid=without_rowid)

    def _load_table(self, name: str, *, without_rowid: bool) -> Table:
        found = self.execute(
            "SELECT name, upper(type), pk, hidden FROM pragma_table_xinfo(?, ?)",
            (name, self.schema),
        )
        key = tuple(column for _, column in sorted((pk, c) for c, _, pk, _ in found if pk))
        is_rowid = [kind for _, kind, pk, _ in found if pk] == ["INTEGER"]
        if name == COUNTERS:
            key, is_rowid = ("name",), True
        return Table(
            name=name,
            # No index: it would sort the rows.
            source=f"{self._quote(name)} AS source NOT INDEXED",
            columns=tuple(column for column, _, _, hidden in found if not hidden),
            key=key,
            is_ordered=not without_rowid and not is_rowid,
            is_clustered=without_rowid,
        )

    def _load_virtual(self, name: str) -> Iterator[Table]:
        """Load a virtual table; for a full-text index, also the terms that a search would find."""
        found = self.execute(
            "SELECT name FROM pragma_table_xinfo(?, ?) WHERE hidden = 0", (name, self.schema)
        )
        columns = (ROWID, *(column for (column,) in found))
        source = f"{self._quote(name)} AS source"
        yield Table(name=name, source=source, columns=columns, key=(ROWID,))
        columns = ("term", "doc", "col", "offset")
        terms = f"temp.{quote_name(f'{self.schema} {name} terms')}"
        with suppress(apsw.Error):
            self.connection.execute(
                f"CREATE VIRTUAL TABLE {terms}"
                f" USING fts5vocab('{self.schema}', {quote_name(name)}, 'instance')"
            )
            if self._is_readable(f"* FROM {terms}"):
                yield Table(name=f"{name} terms", source=f"{terms} AS source", columns=columns)


def quote_name(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"
