"""Compares two database files by SQL: what is in them, not how it is stored."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final

from pytest_snapshot_db.database import Database, Row, Table
from pytest_snapshot_db.rules import RuledDatabase, Rules, check_rules

# Rows of each kind and table that are kept to be shown; all are counted.
ROWS_SHOWN: Final = 20
# Aligning takes time with the product of the lengths. Beyond this it is not tried.
ALIGN_STEPS_MAX: Final = 1_000_000
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
        tables = _TableComparison(one, RuledDatabase(one, rules), RuledDatabase(two, rules), limit)
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
    """Compares tables one after the other, each by way of three temporary tables.

    `before` and `after` hold the rows as the rules let them be seen, in their order, as c0, c1, …
    and `reals`, which tells apart what SQL takes for equal: 1 and 1.0, 0.0 and -0.0. `pair` holds
    the rowids of rows that differ; a row that only one file has is beside a NULL.
    """

    def __init__(
        self, database: Database, one: RuledDatabase, two: RuledDatabase, limit: int | None
    ) -> None:
        self._database = database
        self._execute = database.execute
        self._one, self._two = one, two
        self._limit = sys.maxsize if limit is None else limit
        database.connection.create_scalar_function(
            "zero", lambda *cells: repr(cells[0]), 1, deterministic=True
        )

    def run(self) -> Iterator[TableDifference]:
        """Compare all tables that both files have and that are not ignored."""
        for name, table in self._one.database.tables.items():
            other = self._two.database.tables.get(name)
            if other is not None and not self._one.is_left_out(table):
                yield from self._compare(table, other)

    def _compare(self, table: Table, other: Table) -> Iterator[TableDifference]:
        names = table.columns
        columns = tuple(name for name in names if other.has_column(name.lower(), stored=True))
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
        self._execute("DROP TABLE IF EXISTS pair; CREATE TEMP TABLE pair (old, new)")
        keyed = self._one.has_key(table) and self._two.has_key(other) and table.key == other.key
        key = [f"c{columns.index(column)}" for column in table.key] if keyed else []
        if key and self._is_unique(key):
            found.key = table.key
            ordered = self._one.has_order(table) and self._two.has_order(other)
            self._pair_by_key(found, key, differs, ordered=ordered)
        else:
            self._pair_by_place(found, cells)
        ((found.gone, found.changed, found.added),) = self._execute(
            "SELECT count(*) FILTER (WHERE new IS NULL),"
            " count(*) FILTER (WHERE old IS NOT NULL AND new IS NOT NULL),"
            " count(*) FILTER (WHERE old IS NULL) FROM pair"
        )
        if found.gone or found.changed or found.added or found.moved:
            found.shown = list(self._read_shown(found))
            yield found

    def _stage(self, name: str, side: RuledDatabase, table: Table, columns: Sequence[str]) -> None:
        """Copy rows into a temporary table without types and collations."""
        cells = _name_cells(columns)
        reals = [f"iif(typeof({c}) <> 'real', '', iif({c} = 0, zero({c}), 'r'))" for c in cells]
        marks = ", ".join(["','", *reals])
        values = ", ".join(side.select_cell(table, column) for column in columns) or "NULL"
        self._execute(f"DROP TABLE IF EXISTS {name}")
        self._execute(
            f"CREATE TEMP TABLE {name} ({', '.join(cells)}, reals AS (concat_ws({marks})))"
        )
        source = side.select_from(table)
        side.database.execute(f"INSERT INTO {name} SELECT {values} FROM {source}")

    def _is_unique(self, key: Sequence[str]) -> bool:
        """Whether a key tells rows apart: one with NULLs need not."""
        return not any(
            self._execute(f"SELECT 1 FROM {name} GROUP BY {', '.join(key)} HAVING count(*) > 1")
            for name in ("before", "after")
        )

    def _pair_by_key(
        self, found: TableDifference, key: Sequence[str], differs: str, *, ordered: bool
    ) -> None:
        same = " AND ".join(f"before.{each} IS after.{each}" for each in key)
        for name in ("before", "after"):
            self._execute(f"CREATE INDEX temp.{name}_key ON {name} ({', '.join(key)})")
        self._execute(
            "INSERT INTO pair SELECT before.rowid, after.rowid"
            f" FROM before FULL JOIN after ON {same}"
            f" WHERE before.rowid IS NULL OR after.rowid IS NULL OR {differs}"
        )
        if not ordered:
            return
        moved = self._execute(
            "SELECT new FROM (SELECT after.rowid AS new,"
            " row_number() OVER (ORDER BY before.rowid) AS place,"
            " row_number() OVER (ORDER BY after.rowid) AS new_place"
            f" FROM before JOIN after ON {same}) WHERE place <> new_place ORDER BY new LIMIT 1"
        )
        for (rowid,) in moved:
            found.moved = found.get_key(self._read_row("after", found, rowid))

    def _pair_by_place(self, found: TableDifference, cells: Sequence[str]) -> None:
        """Pair rows by their place, since no key tells them apart."""
        numbered = self._execute(
            f"SELECT side, dense_rank() OVER (ORDER BY {', '.join(cells)}) FROM"
            " (SELECT 0 AS side, rowid AS place, * FROM before"
            " UNION ALL SELECT 1, rowid, * FROM after) ORDER BY side, place"
        )
        before = [number for side, number in numbered if not side]
        after = [number for side, number in numbered if side]
        if Counter(before) == Counter(after):
            found.moved = (_count_common(before, after) + 1,)
            return
        with self._database.connection:
            self._database.connection.executemany(
                "INSERT INTO pair VALUES (?, ?)", _align(before, after)
            )

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


def _align(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[int | None, int | None]]:
    """Yield the places, counted from 1, of what was removed, added, or changed in its place."""
    first = _count_common(before, after)
    last = _count_common(before[first:][::-1], after[first:][::-1])
    one, two = before[first : len(before) - last], after[first : len(after) - last]
    if len(one) * len(two) > ALIGN_STEPS_MAX:
        yield from ((first + at, None) for at in _find_extra(one, two))
        yield from ((None, first + at) for at in _find_extra(two, one))
        return
    for kind, i, j, k, m in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        olds, news = range(first + i + 1, first + j + 1), range(first + k + 1, first + m + 1)
        if kind == "replace" and len(olds) == len(news):
            yield from zip(olds, news, strict=True)
        elif kind != "equal":
            yield from ((old, None) for old in olds)
            yield from ((None, new) for new in news)


def _count_common(before: Sequence[int], after: Sequence[int]) -> int:
    """Count the elements that are the same from the beginning on."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (one, two) in pairs if one != two), min(len(before), len(after)))


def _find_extra(rows: Sequence[int], others: Sequence[int]) -> Iterator[int]:
    """Find the places, counted from 1, of elements that the others lack, in whatever order."""
    left = Counter(others)
    for at, each in enumerate(rows, start=1):
        left[each] -= 1
        if left[each] < 0:
            yield at
