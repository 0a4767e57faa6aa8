"""Compares two database files: what is in them, not how it lies there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pytest_snapshot_db.aligning import aligned
from pytest_snapshot_db.reading import Cell, Database, Row, Table, Tally, packed, short
from pytest_snapshot_db.rules import Ruled, Rules, check

# Rows of each kind and table that are kept to be shown; all are counted.
ROWS_SHOWN: Final = 20
HEADER: Final = ("user_version", "application_id")

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/) | '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*`
    | \[[^\]]*\] | \w+ | .""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Created:
    """A table, index, view or trigger that only one file has, or that differs."""

    kind: str
    name: str
    before: str | None
    after: str | None
    rows: int = 0
    """Of a table that only one file has, the rows that are gone or came with it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A row of the expected file, of the obtained one, or what it was and what it became."""

    at: tuple[Cell, ...]
    """Its primary key, or its place, counted from 1."""
    before: Row | None
    after: Row | None


@dataclass(slots=True)
class Rows:
    """How the rows of a table differ."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    expected: int = 0
    obtained: int = 0
    gone: int = 0
    added: int = 0
    changed: int = 0
    moved: tuple[Cell, ...] | None = None
    """The first row that stands elsewhere, where the same rows stand in another order."""
    shown: list[Pair] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.gone or self.added or self.changed or self.moved)


@dataclass(slots=True)
class Difference:
    """Everything in which the obtained file is not as expected; empty if nothing."""

    header: list[tuple[str, int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    schema: list[Created] = field(default_factory=list)
    tables: list[Rows] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.header or self.problems or self.schema or self.tables)


def compare(
    expected: Database,
    obtained: Database,
    rules: Rules | None = None,
    *,
    known: dict[str, Tally] | None = None,
    limit: int | None = ROWS_SHOWN,
) -> Difference:
    """How the obtained file differs. `known` are tallies of the expected one, if there are any."""
    rules = rules or Rules()
    check(rules, expected, obtained)
    found = Difference(problems=obtained.problems())
    if found.problems:
        # Rows of a damaged file may be anything, or cannot be read at all.
        return found
    for name in HEADER:
        before, after = expected.pragma(name), obtained.pragma(name)
        if before != after:
            found.header.append((name, before, after))
    found.schema = list(_schema(expected, obtained))
    sides = Ruled(expected, rules), Ruled(obtained, rules)
    for name, table in expected.tables.items():
        other = obtained.tables.get(name)
        if other is not None and not sides[0].leaves_out(table):
            tally = (known or {}).get(table.name)
            if rows := _rows(sides, table, other, tally, limit):
                found.tables.append(rows)
    return found


def _schema(expected: Database, obtained: Database) -> Iterator[Created]:
    before, after = expected.schema(), obtained.schema()
    for kind, name in sorted({*before, *after}):
        one, two = before.get((kind, name)), after.get((kind, name))
        if one is None or two is None or _meant(one) != _meant(two):
            only = obtained if one is None else expected if two is None else None
            yield Created(kind, name, one, two, _count(only, name) if kind == "table" else 0)


def _count(database: Database | None, name: str) -> int:
    table = database.tables.get(name.lower()) if database is not None else None
    return sum(1 for _ in database.rows(table)) if database is not None and table else 0


def _meant(sql: str) -> list[str]:
    """A statement without its spaces and comments: those do not change what it means."""
    return [each[0] for each in _TOKEN.finditer(sql) if each["space"] is None]


Sides = tuple[Ruled, Ruled]


def _rows(
    sides: Sides, table: Table, other: Table, known: Tally | None, limit: int | None
) -> Rows | None:
    """How the rows of a table differ that both files have; of its columns, those of both."""
    one, two = sides
    theirs = {column.lower() for column in other.columns}
    columns = tuple(column for column in table.columns if column.lower() in theirs)
    whole = len(columns) == len(table.columns) == len(other.columns)
    if whole and not one.applies_to(table) and not two.applies_to(other):
        tally = known or one.database.tally(table)
        if tally == two.database.tally(other):
            return None
    readers = (lambda: one.rows(table, columns)), (lambda: two.rows(other, columns))
    told = one.keeps_key(table) and two.keeps_key(other) and table.key == other.key
    if told:
        ordered = one.keeps_order(table) and two.keeps_order(other)
        found = _by_key(Rows(table.name, columns, table.key), readers, limit, ordered=ordered)
        if found is not None:
            return found
    return _by_place(Rows(table.name, columns, ()), readers, limit)


Readers = tuple[Callable[[], Iterator[Row]], Callable[[], Iterator[Row]]]


def _by_key(rows: Rows, readers: Readers, limit: int | None, *, ordered: bool) -> Rows | None:
    """Rows paired by their primary key; None if it does not tell them apart, as NULLs do not."""
    at = [rows.columns.index(column) for column in rows.key]

    def key(row: Row) -> Row:
        return tuple(row[index] for index in at)

    left: dict[bytes, bytes] = {}
    for row in readers[0]():
        rows.expected += 1
        left[packed(key(row))] = short(row)
    order = list(left)
    seen: dict[bytes, Row] = {}
    changed: dict[bytes, Row] = {}
    added: dict[bytes, Row] = {}
    for row in readers[1]():
        rows.obtained += 1
        name = packed(key(row))
        seen[name] = key(row)
        before = left.pop(name, None)
        if before != short(row):
            rows.added += before is None
            rows.changed += before is not None
            kept = added if before is None else changed
            if limit is None or len(kept) < limit:
                kept[name] = row
    if len(order) < rows.expected or len(seen) < rows.obtained:
        return None
    rows.gone = len(left)
    rows.moved = _first_moved(order, seen) if ordered else None
    rows.shown = [
        *_gone_and_changed(rows, readers[0], key, left, changed, limit),
        *(Pair(key(row), None, row) for row in added.values()),
    ]
    return rows


def _gone_and_changed(
    rows: Rows,
    reader: Callable[[], Iterator[Row]],
    key: Callable[[Row], Row],
    gone: dict[bytes, bytes],
    changed: dict[bytes, Row],
    limit: int | None,
) -> Iterator[Pair]:
    """Read the expected rows once more for those that are to be shown."""
    if not (rows.gone or rows.changed):
        return
    left = len(gone) if limit is None else limit
    for row in reader():
        name = packed(key(row))
        if name in changed:
            yield Pair(key(row), row, changed[name])
        elif name in gone and left > 0:
            left -= 1
            yield Pair(key(row), row, None)


def _first_moved(before: Sequence[bytes], after: dict[bytes, Row]) -> Row | None:
    """The first of the rows that both have which stands elsewhere among them."""
    there = set(before)
    pairs = zip((n for n in before if n in after), (n for n in after if n in there), strict=True)
    return next((after[two] for one, two in pairs if one != two), None)


def _by_place(rows: Rows, readers: Readers, limit: int | None) -> Rows:
    """Rows paired by where they stand, since nothing else tells them apart."""
    before = [short(row) for row in readers[0]()]
    after = [short(row) for row in readers[1]()]
    rows.expected, rows.obtained = len(before), len(after)
    found = aligned(before, after)
    rows.gone, rows.added = len(found.gone), len(found.added)
    rows.changed = len(found.changed)
    if found.moved is not None:
        rows.moved = (found.moved + 1,)
    shown = slice(limit)
    gone, added, changed = found.gone[shown], found.added[shown], found.changed[shown]
    old = _picked(readers[0], {*gone, *(pair[0] for pair in changed)})
    new = _picked(readers[1], {*added, *(pair[1] for pair in changed)})
    rows.shown = [
        *(Pair((at + 1,), old[at], None) for at in gone),
        *(Pair((one + 1,), old[one], new[two]) for one, two in changed),
        *(Pair((at + 1,), None, new[at]) for at in added),
    ]
    return rows


def _picked(reader: Callable[[], Iterator[Row]], places: set[int]) -> dict[int, Row]:
    return {at: row for at, row in enumerate(reader()) if at in places} if places else {}
