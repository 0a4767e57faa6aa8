"""What a comparison leaves out, and which values it takes for one another.

Values that differ from run to run are named by their column: `ignore={"snapshot.taken_at"}`, or
`replace={"snapshot.id": "<id>"}`, which numbers them in the order in which they first appear and so
still sees whether two of them are the same. Columns that refer to a replaced one, by a declared
foreign key or by the same placeholder, are numbered with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from pytest_snapshot_db.errors import GoldenError
from pytest_snapshot_db.reading import ROWID, Cell, Database, Row, Table, packed

Replacement = str | Callable[[Cell], Cell]
Column = tuple[str, str]

EVERY = "*"
IGNORED = "(ignored)"


class Rules(NamedTuple):
    """What was asked for, by table and column in small letters."""

    ignore: frozenset[Column] = frozenset()
    replace: tuple[tuple[Column, Replacement], ...] = ()


def rules_of(
    ignore: Collection[str] = (), replace: Mapping[str, Replacement] | None = None
) -> Rules:
    """Rules from names such as `table.column`; refuses what cannot be one."""
    if isinstance(ignore, str):
        raise GoldenError(f"ignore takes a set of names: {{{ignore!r}}}, not {ignore!r}")
    for name, by in (replace or {}).items():
        if not (isinstance(by, str) and by) and not callable(by):
            raise GoldenError(f"replace[{name!r}] is a placeholder such as '<id>', or a function")
    return Rules(
        frozenset(_column(name) for name in ignore),
        tuple((_column(name), by) for name, by in (replace or {}).items()),
    )


def _column(name: str) -> Column:
    # A name with a dot of its own is one of a table: columns with dots are even rarer.
    table, dot, column = str(name).rpartition(".")
    if not dot or not table or not column:
        raise GoldenError(f"{name!r} is not the name of a column: write it as 'table.column'")
    return table.lower(), column.lower()


def check(rules: Rules, one: Database, two: Database) -> None:
    """Refuse a name that neither file has: a rule that does nothing hides a typing error."""
    for table, column in (*rules.ignore, *(name for name, _ in rules.replace)):
        found = [db.tables[table] for db in (one, two) if table in db.tables]
        if not found:
            tables = ", ".join(sorted({*one.tables, *two.tables})) or "none"
            raise GoldenError(f"a rule names the table {table!r}; there are: {tables}")
        if column not in (EVERY, ROWID) and not any(each.named(column) for each in found):
            columns = ", ".join(found[0].columns)
            raise GoldenError(f"a rule names {table}.{column}; {table} has: {columns}")


class Ruled:
    """A database as its rules let it be seen."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self.database = database
        self._ignore = rules.ignore
        self._replace = _with_references(database, rules)
        self._numbers: dict[str, dict[bytes, str]] = {}
        for (name, column), by in rules.replace:
            table = database.tables.get(name)
            if isinstance(by, str) and table is not None and table.stores(column):
                for _ in self.rows(table, (column,)):
                    pass

    def applies_to(self, table: Table) -> bool:
        """Whether a rule is about this table."""
        name = table.name.lower()
        ignored = any(of == name for of, _ in self._ignore)
        return ignored or any(of == name for of, _ in self._replace)

    def leaves_out(self, table: Table) -> bool:
        """Whether the whole table is ignored."""
        return (table.name.lower(), EVERY) in self._ignore

    def keeps_key(self, table: Table) -> bool:
        """Whether rows can still be told by their primary key."""
        return bool(table.key) and not any(self._hides(table, column) for column in table.key)

    def keeps_order(self, table: Table) -> bool:
        """Whether the order of the rows counts."""
        return table.ordered and (table.name.lower(), ROWID) not in self._ignore

    def _hides(self, table: Table, column: str) -> bool:
        name = (table.name.lower(), column.lower())
        return name in self._ignore or isinstance(self._replace.get(name), str)

    def rows(self, table: Table, columns: Collection[str]) -> Iterator[Row]:
        """The rows, with these columns alone, as the rules let them be seen.

        In their order in the file; or, where that comes from values that the rules hide, sorted by
        what is left.
        """
        at = [[each.lower() for each in table.columns].index(column.lower()) for column in columns]
        rows: Iterator[Row] | list[Row] = self.database.rows(table)
        if self._needs_sorting(table):
            rows = sorted(rows, key=lambda row: packed(self._bare(table, row)))
        by = [self._rule(table, column) for column in columns]
        for row in rows:
            yield tuple(rule(row[index]) for rule, index in zip(by, at, strict=True))

    def _needs_sorting(self, table: Table) -> bool:
        if self.keeps_key(table):
            return False
        # Numbers that are given in turn keep the order of their rows, whatever they are.
        return table.clustered or (table.ordered and not self.keeps_order(table))

    def _bare(self, table: Table, row: Row) -> Row:
        hidden = [self._hides(table, column) for column in table.columns]
        return tuple(None if hide else cell for hide, cell in zip(hidden, row, strict=True))

    def _rule(self, table: Table, column: str) -> Callable[[Cell], Cell]:
        name = (table.name.lower(), column.lower())
        if name in self._ignore:
            return _ignored
        by = self._replace.get(name)
        if by is None:
            return _as_it_is
        return self._numbered(by) if isinstance(by, str) else by

    def _numbered(self, placeholder: str) -> Callable[[Cell], Cell]:
        known = self._numbers.setdefault(placeholder, {})
        stem, end = (placeholder[:-1], ">") if placeholder.endswith(">") else (placeholder, "")

        def number(cell: Cell) -> Cell:
            if cell is None:
                return None
            return known.setdefault(packed((cell,)), f"{stem} {len(known) + 1}{end}")

        return number


def _ignored(_: Cell) -> Cell:
    return IGNORED


def _as_it_is(cell: Cell) -> Cell:
    return cell


def _with_references(database: Database, rules: Rules) -> dict[Column, Replacement]:
    """The replacements, and with each placeholder the columns that refer to its own."""
    found = dict(rules.replace)
    waiting = [name for name, by in rules.replace if isinstance(by, str)]
    while waiting:
        to = waiting.pop()
        for table in database.tables.values():
            for reference in database.references(table):
                name = (table.name.lower(), reference.column)
                free = name not in found and name not in rules.ignore
                if free and (reference.table, reference.to) == to:
                    found[name] = found[to]
                    waiting.append(name)
    return found
