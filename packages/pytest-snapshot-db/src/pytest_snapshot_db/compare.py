"""Compares the contents of two database files by SQL."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Final

from pytest_snapshot_db.cell_text import (
    ROW_CHARS_MAX,
    diff_json_cells,
    escape_unseen,
    pluralize,
    render_cell,
    render_cell_change,
    shorten,
)
from pytest_snapshot_db.database import Database, Row, Table, fold_case
from pytest_snapshot_db.rules import Rules

# Rows of each kind and table that are shown; all are counted.
ROWS_SHOWN: Final = 20
HEADER: Final = ("user_version", "application_id")

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/) | '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*`
    | \[[^\]]*\] | \w+ | .""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(slots=True)
class Difference:
    """The differences between two files; false if there are none."""

    lines: list[str] = field(default_factory=list)
    """The lines to show: the schema first, then rows."""
    summary: list[str] = field(default_factory=list)
    """A few words for each object that differs."""
    cells: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The columns of changed rows, each with the JSON paths that differ."""
    is_only_cells: bool = True
    """Whether nothing but `cells` differs."""

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, summary: str, lines: Iterable[str], *, is_only_cells: bool = False) -> None:
        """Add an object that differs."""
        self.summary.append(summary)
        self.lines += lines
        self.is_only_cells &= is_only_cells


def compare_files(
    expected: Path,
    obtained: Path,
    rules: Rules | None = None,
    *,
    limit: int | None = ROWS_SHOWN,
) -> Difference:
    """Compare two files that nobody writes to; show at most `limit` rows per kind and table."""
    found = Difference()
    with Database(obtained) as database:
        problems = {"obtained": database.find_problems()}
        encoding = database.encoding
    with Database(expected) as one:
        if one.encoding != encoding:
            # SQLite does not attach such files to one connection.
            _add_header(found, "encoding", one.encoding, encoding)
            return found
        problems["expected"] = one.find_problems()
        two = Database(obtained, beside=one)
        rules = rules or Rules()
        rules.check(one, two)
        for name, listed in problems.items():
            if listed:
                lines = (f"the {name} file is damaged: {escape_unseen(each)}" for each in listed)
                found.add("damaged", lines)
        if found:
            # Rows of a damaged file may be anything, or unreadable.
            return found
        for name in HEADER:
            _add_header(found, name, one.read_pragma(name), two.read_pragma(name))
        _compare_schemas(found, one, two, rules)
        for name, table in one.tables.items():
            if name in two.tables and not rules.ignores_table(table.name):
                comparison = _TableComparison(one, rules, table, two.tables[name])
                comparison.run(found, limit or sys.maxsize)
        return found


def _add_header(found: Difference, name: str, before: object, after: object) -> None:
    if before != after:
        line = f"{name}: {before} expected, {after} obtained"
        found.add(f"{name} {before} → {after}", [line])


def _compare_schemas(
    found: Difference, expected: Database, obtained: Database, rules: Rules
) -> None:
    before, after = expected.read_schema(), obtained.read_schema()
    for kind, name in sorted({*before, *after}):
        if kind == "table" and rules.ignores_table(name):
            continue
        one, two = before.get((kind, name)), after.get((kind, name))
        if one is not None and two is not None and _tokenize(one) == _tokenize(two):
            continue
        change = "added" if one is None else "gone" if two is None else "changed"
        database = obtained if one is None else expected
        table = database.tables.get(fold_case(name)) if kind == "table" else None
        rows = _count(database, table.source) if table and change != "changed" else 0
        title = f"{kind} {escape_unseen(name)}"
        diff = unified_diff((one or "").splitlines(), (two or "").splitlines(), lineterm="", n=2)
        found.add(
            f"{title} {change}",
            [
                f"{title}: {change}" + (f", with {pluralize(rows, 'row')}" if rows else ""),
                *(
                    f"  {line[:1]} {escape_unseen(line[1:])}".rstrip()
                    for line in list(diff)[2:]
                    if not line.startswith("@@")
                ),
            ],
        )


def _tokenize(sql: str) -> list[str]:
    """Split a statement, without spaces and comments."""
    return [each[0] for each in _TOKEN.finditer(sql) if each["space"] is None]


def _count(database: Database, source: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {source}")[0][0])


class _TableComparison:
    """Compares one table of two files in temporary tables.

    `before` and `after` hold the rows in their order, without what the rules ignore. The columns
    are c0, c1, … and `reals`, which distinguishes values that are equal in SQL: 1 and 1.0, 0.0 and
    -0.0. `pair` holds the rowids of rows that differ; NULL stands for a row that a file lacks.
    """

    def __init__(self, database: Database, rules: Rules, table: Table, other: Table) -> None:
        self._database = database
        self._execute = database.execute
        self._name = table.name
        self._columns = tuple(name for name in table.columns if other.has_column(name))
        # A temporary table has at least one column.
        self._cells = [f"c{number}" for number in range(max(1, len(self._columns)))]
        has_key = table.key == other.key and not rules.ignores_key(table)
        self._key = table.key if has_key else ()
        self._is_ordered = table.is_ordered and other.is_ordered and not rules.ignores_order(table)
        self._stage("before", rules, table)
        self._stage("after", rules, other)

    def run(self, found: Difference, limit: int) -> None:
        """Add the differences between the rows to `found`."""
        expected, obtained = (_count(self._database, name) for name in ("before", "after"))
        # A key with NULLs need not tell rows apart.
        keys = [f"c{self._columns.index(each)}" for each in self._key]
        if not keys or not self._match(keys):
            self._key = ()
            self._match([*self._cells, "reals"])
        self._pair()
        ((gone, changed, added),) = self._execute(
            "SELECT count(*) FILTER (WHERE new IS NULL),"
            " count(*) FILTER (WHERE old IS NOT NULL AND new IS NOT NULL),"
            " count(*) FILTER (WHERE old IS NULL) FROM pair"
        )
        total = gone + changed + added
        moved = self._find_moved() if self._is_ordered and (self._key or not total) else ""
        if not total and not moved:
            return
        counts = {"gone": gone, "changed": changed, "added": added}
        what = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        what = what or "the same rows in another order"
        name = escape_unseen(self._name)
        of = f"{pluralize(expected, 'row')} expected, {obtained} obtained"
        lines = [f"table {name}: {what} ({of})"]
        pairs = self._select_pairs(limit)
        for old, new in pairs:
            lines += self._render_pair(found, old, new)
        if total > len(pairs):
            lines.append(f"  … and {total - len(pairs)} more")
        if moved:
            lines.append(f"  ~ the rows that both have stand in another order from {moved} on")
        is_only_cells = changed == len(pairs) and not gone and not added and not moved
        found.add(f"{name}: {what}", lines, is_only_cells=is_only_cells)

    def _stage(self, name: str, rules: Rules, table: Table) -> None:
        """Copy rows into a temporary table without types and collations."""
        table.check_width()
        # The sign of the angle distinguishes 0.0 from -0.0.
        reals = [f"iif(typeof({cell}) = 'real', atan2({cell}, -1) > 0, '')" for cell in self._cells]
        marks = ", ".join(["','", *reals])
        values = ", ".join(rules.select_cell(table, column) for column in self._columns) or "NULL"
        self._execute(f"DROP TABLE IF EXISTS temp.{name}")
        self._execute(
            f"CREATE TEMP TABLE {name} ({', '.join(self._cells)}, reals AS (concat_ws({marks})))"
        )
        self._execute(f"INSERT INTO {name} SELECT {values} FROM {table.source}")

    def _match(self, cells: Sequence[str]) -> bool:
        """Match rows with the same cells; return whether these are unique on both sides.

        `matched` holds their rowids. `copy` numbers the rows of one side that have the same cells.
        """
        names = ", ".join(cells)
        rows = (
            f"SELECT 'before' AS side, rowid AS place, {names} FROM before"
            f" UNION ALL SELECT 'after', rowid, {names} FROM after"
        )
        self._execute(
            "DROP TABLE IF EXISTS temp.matched; CREATE TEMP TABLE matched AS SELECT copy,"
            " max(place) FILTER (WHERE side = 'before') AS old,"
            " max(place) FILTER (WHERE side = 'after') AS new FROM"
            f" (SELECT *, row_number() OVER (PARTITION BY side, {names} ORDER BY place) AS copy"
            f" FROM ({rows})) GROUP BY {names}, copy"
        )
        return not self._execute("SELECT 1 FROM matched WHERE copy > 1 LIMIT 1")

    def _pair(self) -> None:
        """Select the pairs of rows that differ."""
        cells = [*self._cells, "reals"]
        rows = [", ".join(f"{name}.{cell}" for cell in cells) for name in ("before", "after")]
        self._execute(
            "DROP TABLE IF EXISTS temp.pair; CREATE TEMP TABLE pair AS SELECT old, new FROM matched"
            " LEFT JOIN before ON before.rowid = old LEFT JOIN after ON after.rowid = new"
            f" WHERE old IS NULL OR new IS NULL OR ({rows[0]}) IS NOT ({rows[1]})"
        )
        # Without a key, rows count as changed if the same places differ in both files.
        alone = "SELECT {0} FROM pair WHERE {0} IS NOT NULL EXCEPT SELECT {1} FROM pair"
        sides = (("old", "new"), ("new", "old"))
        if not self._key and not any(self._execute(alone.format(*side)) for side in sides):
            self._execute("UPDATE pair SET new = old; DELETE FROM pair WHERE old IS NULL")

    def _find_moved(self) -> str:
        """Name the first row in another order, among those in both files; empty if none is."""
        moved = self._execute(
            "SELECT new FROM (SELECT new, row_number() OVER (ORDER BY old) AS place,"
            " row_number() OVER (ORDER BY new) AS new_place"
            " FROM matched WHERE old IS NOT NULL AND new IS NOT NULL)"
            " WHERE place <> new_place ORDER BY new LIMIT 1"
        )
        return self._name_row(self._read_row("after", moved[0][0]), moved[0][0]) if moved else ""

    def _select_pairs(self, limit: int) -> list[tuple[int | None, int | None]]:
        # With a key, rows that are gone or changed are in the order of the expected file.
        order = "old IS NULL" if self._key else "new IS NOT NULL, old IS NULL"
        return self._execute(
            "SELECT old, new FROM (SELECT *, row_number() OVER"
            " (PARTITION BY old IS NULL, new IS NULL ORDER BY coalesce(old, new)) AS number"
            f" FROM pair) WHERE number <= ? ORDER BY {order}, coalesce(old, new)",
            (limit,),
        )

    def _read_row(self, name: str, rowid: int) -> Row:
        (row,) = self._database.read_rows(self._cells, f"{name} WHERE rowid = {rowid}")
        return row[: len(self._columns)]

    def _render_pair(self, found: Difference, old: int | None, new: int | None) -> Iterator[str]:
        if old is not None and new is not None:
            before, after = self._read_row("before", old), self._read_row("after", new)
            lines = list(self._render_changes(found, before, after))
            at = f"  ~ {self._name_row(before, old)}"
            if len(lines) == 1:
                yield f"{at}: {lines[0]}"
            else:
                yield at
                yield from (f"      {line}" for line in lines)
            return
        sign, name, place = ("-", "before", old) if old is not None else ("+", "after", new)
        row = self._read_row(name, place or 0)
        cells = [
            f"{escape_unseen(column)}={render_cell(cell)}"
            for column, cell in zip(self._columns, row, strict=True)
            if column not in self._key
        ]
        rest = ": " + shorten(", ".join(cells), ROW_CHARS_MAX) if cells else ""
        yield f"  {sign} {self._name_row(row, place or 0)}{rest}"

    def _render_changes(self, found: Difference, before: Row, after: Row) -> Iterator[str]:
        for column, one, two in zip(self._columns, before, after, strict=True):
            # repr distinguishes 1 from 1.0 and 0.0 from -0.0.
            if repr(one) != repr(two):
                paths = diff_json_cells(one, two)
                found.cells[f"{self._name}.{column}"] |= {path for path, _, _ in paths} or {"$"}
                yield from render_cell_change(column, one, two, paths)

    def _name_row(self, row: Row, place: int) -> str:
        """Return the primary key of a row, or its place, counted from 1."""
        cells = {column: row[self._columns.index(column)] for column in self._key}
        names = [f"{escape_unseen(name)}={render_cell(cell)}" for name, cell in cells.items()]
        return ", ".join(names) or f"row {place}"
