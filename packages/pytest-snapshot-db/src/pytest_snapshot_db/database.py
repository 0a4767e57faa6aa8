"""Reads the schema, the tables and the rows of a database file that nobody writes to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import apsw

from pytest_snapshot_db.copy_live import to_uri, translate_errors
from pytest_snapshot_db.errors import GoldenError

Cell = int | float | str | bytes | None
Row = tuple[Cell, ...]

# A badly damaged file has thousands of problems; a few show what is wrong.
PROBLEMS_MAX: Final = 10
# A function of SQLite takes a limited number of arguments.
PATHS_AT_ONCE: Final = 100
ROWID: Final = "rowid"
# The counters of AUTOINCREMENT: a row for each table, in an order that has no meaning.
COUNTERS: Final = "sqlite_sequence"
# Two expressions are read for each cell, and SQLite selects at most 2000; a function takes 1000.
COLUMNS_MAX: Final = 999


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table, without its rows."""

    name: str
    source: str
    """The FROM clause, with the alias `source`; it yields rows in the order of storage."""
    columns: tuple[str, ...]
    """The stored columns, without the generated ones."""
    key: tuple[str, ...] = ()
    """The columns of the primary key."""
    is_ordered: bool = False
    """Whether rows have an order other than that of their key: the one of their rowids."""

    def check_width(self) -> None:
        """Raise GoldenError if it has more columns than can be read and compared."""
        if len(self.columns) > COLUMNS_MAX:
            raise GoldenError(
                f"the table {self.name!r} has {len(self.columns)} columns; those of at most"
                f" {COLUMNS_MAX} can be compared"
            )

    def has_column(self, column: str) -> bool:
        """Whether there is such a stored column, in any case."""
        return fold_case(column) in map(fold_case, self.columns)


class Database:
    """A file that is opened as immutable: SQLite neither changes it nor writes files beside it.

    With `beside`, it is attached to the connection of another one, so that a query can use both.
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
                self.connection.create_scalar_function("remove_paths", self._remove_paths, 2)
            self.encoding = str(self.connection.pragma("encoding"))
            self.tables = {fold_case(table.name): table for table in self._load_tables()}

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
        """Read all CREATE statements by type and name; SQLite's own tables have none."""
        found = self.execute(
            f"SELECT type, name, sql FROM {self.schema}.sqlite_schema WHERE sql IS NOT NULL"
        )
        return {(kind, name): sql for kind, name, sql in found if name not in self._hidden}

    def read_rows(self, columns: Iterable[str], source: str) -> Iterator[Row]:
        """Read rows of SQL expressions.

        Text may hold any bytes, so it is read as a blob; bytes that are not valid text become
        surrogates.
        """
        errors = "surrogateescape" if self.encoding == "UTF-8" else "surrogatepass"
        cells = [(f"typeof({cell}) = 'text'", cell) for cell in columns]
        pairs = [f"{text}, iif({text}, CAST({cell} AS BLOB), {cell})" for text, cell in cells]
        with translate_errors(self.path):
            for row in self.connection.execute(f"SELECT {', '.join(pairs)} FROM {source}"):
                yield tuple(
                    str(cell, self.encoding, errors) if is_text else cell
                    for is_text, cell in zip(row[::2], row[1::2], strict=True)
                )

    def find_problems(self) -> list[str]:
        """Run the integrity check; return no problems if it cannot run."""
        check = f"PRAGMA {self.schema}.integrity_check({PROBLEMS_MAX})"
        try:
            found = [str(problem) for (problem,) in self.connection.execute(check)]
        except apsw.SQLError:
            # The file needs a function or a collation of its program.
            return []
        except apsw.Error as error:
            return [str(error)]
        return [] if found == ["ok"] else found

    def _remove_paths(self, *arguments: Cell) -> Cell:
        """Implement the function `remove_paths` of SQL: remove the JSON paths that match."""
        document, pattern = arguments
        listed = self.execute("SELECT fullkey FROM json_tree(?) ORDER BY id DESC", (document,))
        # The last one first, because later elements of an array move up.
        paths = [path for (path,) in listed if re.fullmatch(str(pattern), path)]
        for at in range(0, len(paths), PATHS_AT_ONCE):
            some = paths[at : at + PATHS_AT_ONCE]
            marks = ", ?" * len(some)
            ((document,),) = self.execute(f"SELECT json_remove(?{marks})", (document, *some))
        return document

    def _load_tables(self) -> Iterator[Table]:
        """Load all tables, and set `_hidden`, the names of shadow tables.

        Shadow tables store the rows of a virtual table, so they are not compared. If its module is
        not available, they are compared in its place.
        """
        listed: list[tuple[str, str, int]] = self.execute(
            "SELECT name, type, wr FROM pragma_table_list WHERE schema = ?"
            " AND type <> 'view' AND name <> 'sqlite_schema' ORDER BY name",
            (self.schema,),
        )
        virtual = [name for name, kind, _ in listed if kind == "virtual" and self._can_read(name)]
        prefixes = tuple(f"{name}_" for name in virtual)
        self._hidden = {n for n, kind, _ in listed if kind == "shadow" and n.startswith(prefixes)}
        for name, kind, without_rowid in listed:
            if kind == "virtual" and name in virtual:
                yield self._load_virtual(name)
                if f"{name}_content" not in self._hidden:
                    yield from self._load_words(name)
            elif kind != "virtual" and name not in self._hidden:
                yield self._load_table(name, without_rowid=bool(without_rowid))

    def _can_read(self, name: str) -> bool:
        try:
            self.connection.execute(f"SELECT rowid, * FROM {self._quote(name)} LIMIT 1").fetchall()
        except (apsw.Error, UnicodeDecodeError):
            return False
        return True

    def _quote(self, name: str) -> str:
        return f"{self.schema}.{quote_name(name)}"

    def _load_table(self, name: str, *, without_rowid: bool) -> Table:
        found = self.execute(
            "SELECT name, pk, hidden FROM pragma_table_xinfo(?, ?)", (name, self.schema)
        )
        key = tuple(column for _, column in sorted((pk, name) for name, pk, _ in found if pk))
        return Table(
            name=name,
            # No index: it would sort the rows.
            source=f"{self._quote(name)} AS source NOT INDEXED",
            columns=tuple(column for column, _, hidden in found if not hidden),
            key=("name",) if name == COUNTERS else key,
            is_ordered=not without_rowid and name != COUNTERS,
        )

    def _load_virtual(self, name: str) -> Table:
        found = self.execute(
            "SELECT name FROM pragma_table_xinfo(?, ?) WHERE hidden = 0", (name, self.schema)
        )
        columns = (ROWID, *(column for (column,) in found))
        return Table(
            name=name, source=f"{self._quote(name)} AS source", columns=columns, key=(ROWID,)
        )

    def _load_words(self, name: str) -> Iterator[Table]:
        """Load the index of a full-text table that stores no rows of its own.

        Its rows are those of another table, or show no text, so they do not tell what it finds.
        """
        words = f"temp.{quote_name(f'{self.schema}.{name}')}"
        try:
            self.connection.execute(
                f"CREATE VIRTUAL TABLE {words}"
                f" USING fts5vocab({self.schema}, {quote_name(name)}, instance)"
            )
            self.connection.execute(f"SELECT * FROM {words} LIMIT 1")
        except apsw.SQLError:
            # It is no full-text table.
            return
        columns = ("term", "doc", "col", "offset")
        yield Table(
            name=f"{name} (words)", source=f"{words} AS source", columns=columns, key=columns
        )


def fold_case(name: str) -> str:
    """Return a name in lower case as SQLite compares them: it folds the letters A to Z alone."""
    return name.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def quote_name(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"
