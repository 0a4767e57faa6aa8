"""Compares two database files by SQL: what is in them, not how it is stored."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_snapshot_db.database import Database, Row, Table
from pytest_snapshot_db.rules import RuledDatabase, Rules, check_rules

# Rows of each kind and table that are kept to be shown; all are counted.
ROWS_SHOWN: Final = 20
HEADER: Final = ("user_version", "application_id")

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/) | '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*`
    | \[[^\]]*\] | \w+ | .""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A table, index, view or trigger that only one file has, or that differs."""

    kind: str
    name: str
    before: str | None
    after: str | None
    rows: int = 0
    """The rows of a table that only one file has."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row of the expected file, of the obtained one, or both."""

    at: Row
    """Its primary key, or its place, counted from 1."""
    before: Row | None
    after: Row | None


@dataclass(slots=True)
class TableDifference:
    """How the rows of a table differ."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    expected: int = 0
    obtained: int = 0
    gone: int = 0
    added: int = 0
    changed: int = 0
    moved: Row | None = None
    """The first row whose place among the common rows is another."""
    shown: list[RowChange] = field(default_factory=list)

    def get_key(self, row: Row) -> Row:
        """Return the primary key of a row."""
        return tuple(row[self.columns.index(column)] for column in self.key)


@dataclass(slots=True)
class Difference:
    """Everything in which the obtained file is not as expected; false if nothing."""

    header: list[tuple[str, Any, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    schema: list[SchemaChange] = field(default_factory=list)
    tables: list[TableDifference] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.header or self.problems or self.schema or self.tables)


def compare_files(
    expected: Path,
    obtained: Path,
    rules: Rules | None = None,
    *,
    limit: int | None = ROWS_SHOWN,
) -> Difference:
    """Compare two files that do not change; keep at most `limit` rows of each kind and table."""
    with Database(obtained) as database:
        problems, encoding = database.find_problems(), database.encoding
    with Database(expected) as one:
        if one.encoding != encoding:
            # SQLite does not attach such files to one connection.
            return Difference(header=[("encoding", one.encoding, encoding)])
        two = Database(obtained, beside=one)
        rules = rules or Rules()
        check_rules(rules, one, two)
        if problems:
            # Rows of a damaged file may be anything, or unreadable.
            return Difference(problems=problems)
        found = Difference(schema=list(_compare_schemas(one, two)))
        for name in HEADER:
            before, after = one.read_pragma(name), two.read_pragma(name)
            if before != after:
                found.header.append((name, before, after))
        tables = _TableComparison(RuledDatabase(one, rules), RuledDatabase(two, rules), limit)
        found.tables = list(tables.run())
        return found


def _compare_schemas(expected: Database, obtained: Database) -> Iterator[SchemaChange]:
    before, after = expected.read_schema(), obtained.read_schema()
    for kind, name in sorted({*before, *after}):
        one, two = before.get((kind, name)), after.get((kind, name))
        if one is None or two is None or _tokenize(one) != _tokenize(two):
            rows = 0
            if one is None or two is None:
                database = obtained if one is None else expected
                table = database.tables.get(name.lower()) if kind == "table" else None
                rows = _count(database, table.source) if table else 0
            yield SchemaChange(kind, name, one, two, rows)


def _tokenize(sql: str) -> list[str]:
    """Split a statement, without spaces and comments."""
    return [each[0] for each in _TOKEN.finditer(sql) if each["space"] is None]


def _count(database: Database, source: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {source}")[0][0])


class _TableComparison:
    """Compares tables one after the other, each by way of temporary tables.

    `before` and `after` hold the rows as the rules let them be seen, in their order, as c0, c1, …
    and `reals`, which tells apart what SQL takes for equal: 1 and 1.0, 0.0 and -0.0. `pair` holds
    the rowids of rows that differ; a row that only one file has is beside a NULL.
    """

    def __init__(self, one: RuledDatabase, two: RuledDatabase, limit: int | None) -> None:
        self._database = one.database
        self._execute = one.database.execute
        self._one, self._two = one, two
        self._limit = sys.maxsize if limit is None else limit

    def run(self) -> Iterator[TableDifference]:
        """Compare all tables that both files have and that are not ignored."""
        for name, table in self._one.database.tables.items():
            other = self._two.database.tables.get(name)
            if other is not None and not self._one.is_left_out(table):
                yield from self._compare(table, other)

    def _compare(self, table: Table, other: Table) -> Iterator[TableDifference]:
        names = table.columns
        columns = tuple(name for name in names if other.has_column(name.lower()))
        found = TableDifference(table.name, columns)
        self._stage("before", self._one, table, columns)
        self._stage("after", self._two, other, columns)
        found.expected = _count(self._database, "before")
        found.obtained = _count(self._database, "after")
        cells = [*_name_cells(columns), "reals"]
        rows = [", ".join(f"{name}.{cell}" for cell in cells) for name in ("before", "after")]
        differs = f"({rows[0]}) IS NOT ({rows[1]})"
        if found.expected == found.obtained and not self._execute(
            f"SELECT 1 FROM before JOIN after ON before.rowid = after.rowid WHERE {differs} LIMIT 1"
        ):
            return
        if self._one.has_key(table) and self._two.has_key(other) and table.key == other.key:
            found.key = table.key
        # A key with NULLs need not tell rows apart.
        if not found.key or not self._match([f"c{columns.index(each)}" for each in found.key]):
            found.key = ()
            self._match(cells)
        self._pair(differs)
        if not found.key:
            self._pair_by_place()
        ((found.gone, found.changed, found.added),) = self._execute(
            "SELECT count(*) FILTER (WHERE new IS NULL),"
            " count(*) FILTER (WHERE old IS NOT NULL AND new IS NOT NULL),"
            " count(*) FILTER (WHERE old IS NULL) FROM pair"
        )
        differ = bool(found.gone or found.changed or found.added)
        ordered = self._one.has_order(table) and self._two.has_order(other)
        if ordered if found.key else not differ:
            found.moved = self._find_moved(found)
        if differ or found.moved:
            found.shown = list(self._read_shown(found))
            yield found

    def _stage(self, name: str, side: RuledDatabase, table: Table, columns: Sequence[str]) -> None:
        """Copy rows into a temporary table without types and collations."""
        cells = _name_cells(columns)
        # The angle tells 0.0 from -0.0.
        reals = [f"iif(typeof({cell}) = 'real', atan2({cell}, -1) > 0, '')" for cell in cells]
        marks = ", ".join(["','", *reals])
        values = ", ".join(side.select_cell(table, column) for column in columns) or "NULL"
        self._execute(f"DROP TABLE IF EXISTS {name}")
        self._execute(
            f"CREATE TEMP TABLE {name} ({', '.join(cells)}, reals AS (concat_ws({marks})))"
        )
        source = side.select_from(table)
        side.database.execute(f"INSERT INTO {name} SELECT {values} FROM {source}")

    def _match(self, cells: Sequence[str]) -> bool:
        """Match rows that have the same cells; return whether no side has two of the same.

        `matched` holds their rowids. `copy` tells apart the rows of one side that are the same.
        """
        union = (
            "SELECT 'before' AS side, rowid AS place, * FROM before"
            " UNION ALL SELECT 'after', rowid, * FROM after"
        )
        numbered = (
            f"SELECT side, place, dense_rank() OVER (ORDER BY {', '.join(cells)}) AS number"
            f" FROM ({union})"
        )
        self._execute(
            "DROP TABLE IF EXISTS matched; CREATE TEMP TABLE matched AS SELECT copy,"
            " max(place) FILTER (WHERE side = 'before') AS old,"
            " max(place) FILTER (WHERE side = 'after') AS new FROM"
            " (SELECT *, row_number() OVER (PARTITION BY side, number ORDER BY place) AS copy"
            f" FROM ({numbered})) GROUP BY number, copy"
        )
        return not self._execute("SELECT 1 FROM matched WHERE copy > 1 LIMIT 1")

    def _pair(self, differs: str) -> None:
        """Keep the pairs of rows that differ."""
        self._execute(
            "DROP TABLE IF EXISTS pair; CREATE TEMP TABLE pair AS SELECT old, new FROM matched"
            " LEFT JOIN before ON before.rowid = old LEFT JOIN after ON after.rowid = new"
            f" WHERE old IS NULL OR new IS NULL OR {differs}"
        )

    def _pair_by_place(self) -> None:
        """Take rows without a key for changed ones if they stand in the same places."""
        alone = "SELECT {0} FROM pair WHERE {0} IS NOT NULL"
        old, new = alone.format("old"), alone.format("new")
        if not self._execute(f"{old} EXCEPT {new}") and not self._execute(f"{new} EXCEPT {old}"):
            self._execute("UPDATE pair SET new = old; DELETE FROM pair WHERE old IS NULL")

    def _find_moved(self, found: TableDifference) -> Row | None:
        """Return the key or place of the first row that stands elsewhere among the common ones."""
        moved = self._execute(
            "SELECT new FROM (SELECT new, row_number() OVER (ORDER BY old) AS place,"
            " row_number() OVER (ORDER BY new) AS new_place"
            " FROM matched WHERE old IS NOT NULL AND new IS NOT NULL)"
            " WHERE place <> new_place ORDER BY new LIMIT 1"
        )
        for (place,) in moved:
            return found.get_key(self._read_row("after", found, place)) if found.key else (place,)
        return None

    def _read_shown(self, found: TableDifference) -> Iterator[RowChange]:
        # With a key, rows that are gone and changed ones come in the order of the expected file.
        order = "old IS NULL" if found.key else "new IS NOT NULL, old IS NULL"
        for old, new in self._execute(
            "SELECT old, new FROM (SELECT *, row_number() OVER"
            " (PARTITION BY old IS NULL, new IS NULL ORDER BY coalesce(old, new)) AS number"
            f" FROM pair) WHERE number <= ? ORDER BY {order}, coalesce(old, new)",
            (self._limit,),
        ):
            before = None if old is None else self._read_row("before", found, old)
            after = None if new is None else self._read_row("after", found, new)
            at = found.get_key(before or after or ()) if found.key else (old or new,)
            yield RowChange(at, before, after)

    def _read_row(self, name: str, found: TableDifference, rowid: int) -> Row:
        cells = _name_cells(found.columns)
        (row,) = self._database.read_rows(cells, f"{name} WHERE rowid = {rowid}")
        return row[: len(found.columns)]


def _name_cells(columns: Sequence[str]) -> list[str]:
    """Name the columns of a temporary table, which has at least one."""
    return [f"c{number}" for number in range(max(1, len(columns)))]
