"""What a comparison leaves out, and which values it takes for one another.

`ignore={"snapshot.taken_at"}` leaves a column out; `ignore={"entry.payload": "$.meta.ts"}` leaves a
part of its JSON out. `replace={"snapshot.id": "<id>"}` numbers the values of a column in the order
in which they first appear, so it is still seen whether two of them are the same. Columns that refer
to a replaced one, by a declared foreign key or by the same placeholder, are numbered with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from pytest_snapshot_db.database import (
    ROWID,
    Cell,
    Database,
    Table,
    as_bytes,
    pack_row,
    quote_name,
)
from pytest_snapshot_db.errors import GoldenError

Replacement = str | Callable[[Cell], Cell]
Ignored = Collection[str] | Mapping[str, str | Collection[str]]
Column = tuple[str, str]

EVERY = "*"
IGNORED = "(ignored)"
# The members and elements of a JSON path: .name, ."name", ["name"] or [0].
_PATH = re.compile(r"""\$(?:\.[^.\["*]+|\."[^"]*"|\["[^"]*"\]|\[\d+\])*""")
_STEP = re.compile(r"""\.(?P<name>[^.\["]+)|(?:\.|\[)"(?P<quoted>[^"]*)"\]?|\[(?P<index>\d+)\]""")


class Rules(NamedTuple):
    """The rules by table and column, in lower case."""

    ignore: Mapping[Column, tuple[str, ...]] = {}
    """The JSON paths that are left out; without any, the whole column is."""
    replace: Mapping[Column, Replacement] = {}


def parse_rules(ignore: Ignored = (), replace: Mapping[str, Replacement] | None = None) -> Rules:
    """Parse names such as `table.column`; raise GoldenError for what cannot be a rule."""
    if isinstance(ignore, str):
        raise GoldenError(f"ignore takes a set of names: {{{ignore!r}}}, not {ignore!r}")
    for name, by in (replace or {}).items():
        if not (isinstance(by, str) and by) and not callable(by):
            raise GoldenError(f"replace[{name!r}] is a placeholder such as '<id>', or a function")
    paths = ignore if isinstance(ignore, Mapping) else dict.fromkeys(ignore, "$")
    return Rules(
        {_parse_column(name): _parse_paths(name, given) for name, given in paths.items()},
        {_parse_column(name): by for name, by in (replace or {}).items()},
    )


def _parse_column(name: str) -> Column:
    # A dot more belongs to the table: columns with dots are even rarer.
    table, _, column = str(name).rpartition(".")
    if not table or not column:
        raise GoldenError(f"{name!r} is not the name of a column: write it as 'table.column'")
    return table.lower(), column.lower()


def _parse_paths(name: str, given: str | Collection[str]) -> tuple[str, ...]:
    """Return JSON paths as SQLite takes them, or none if one of them is the whole value."""
    paths = [given] if isinstance(given, str) else list(given)
    for path in paths:
        if not isinstance(path, str) or not _PATH.fullmatch(path):
            raise GoldenError(
                f"ignore[{name!r}] is a JSON path such as '$.meta.ts' or '$.items[0]', or a list"
                f" of them, not {path!r}"
            )
    if not paths:
        raise GoldenError(f"ignore[{name!r}] is a list without a JSON path; '$' is the whole value")
    # Elements are removed from the last to the first, since the later ones move up.
    steps = sorted((_parse_steps(path) for path in paths), reverse=True)
    if not steps[-1]:
        return ()
    return tuple(
        "$" + "".join(f'."{name}"' if index < 0 else f"[{index}]" for name, index in each)
        for each in steps
    )


def _parse_steps(path: str) -> list[tuple[str, int]]:
    """Return the name of each member, with -1, and the index of each element, without a name."""
    return [
        (step["name"] or step["quoted"] or "", int(step["index"] or -1))
        for step in _STEP.finditer(path)
    ]


def check_rules(rules: Rules, one: Database, two: Database) -> None:
    """Refuse a name that neither file has, and a JSON path for a column without JSON."""
    for table, column in (*rules.ignore, *rules.replace):
        found = [db.tables[table] for db in (one, two) if table in db.tables]
        if not found:
            tables = ", ".join(sorted({*one.tables, *two.tables})) or "none"
            raise GoldenError(f"a rule names the table {table!r}; there are: {tables}")
        if column not in (EVERY, ROWID) and not any(each.has_column(column) for each in found):
            columns = ", ".join(found[0].columns)
            raise GoldenError(f"a rule names {table}.{column}; {table} has: {columns}")
        if rules.ignore.get((table, column)):
            _check_json(one, table, column)
            _check_json(two, table, column)


def _check_json(database: Database, name: str, column: str) -> None:
    table = database.tables.get(name)
    if column in (EVERY, ROWID):
        raise GoldenError(f"a rule names a JSON path in {name}.{column}, which is no column")
    if table is None or not table.has_column(column, stored=True):
        return
    cell = quote_name(column)
    is_json = f"typeof({cell}) IN ('text', 'blob') AND json_valid({cell}, 9)"
    wrong = f"{table.source} WHERE {cell} IS NOT NULL AND NOT ({is_json}) LIMIT 1"
    for (value,) in database.read_rows([cell], wrong):
        raise GoldenError(
            f"a rule names a JSON path in {name}.{column}, which holds {ascii(value)[:60]}:"
            " that is not JSON"
        )


class RuledDatabase:
    """A database as its rules let it be seen: SQL expressions for its columns."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self.database = database
        self._ignore = rules.ignore
        self._replace = _follow_references(database, rules)
        self._numbers: dict[str, dict[bytes, str]] = {}
        self._functions = {name: f"{database.schema}_{n}" for n, name in enumerate(self._replace)}
        for name, by in self._replace.items():
            self._register(self._functions[name], by)
        for (table_name, column), by in rules.replace.items():
            table = database.tables.get(table_name)
            if isinstance(by, str) and table is not None and table.has_column(column, stored=True):
                # In the order of the rows, which an INSERT with ORDER BY does not compute them in.
                for (cell,) in database.read_rows([quote_name(column)], self.select_from(table)):
                    self._number(by, cell)

    def _register(self, function: str, by: Replacement) -> None:
        def call(*arguments: Cell) -> Cell:
            is_text, value = arguments
            cell = self.database.decode(bool(is_text), value)
            found = self._number(by, cell) if isinstance(by, str) else by(cell)
            # SQLite takes no surrogates, which stand for bytes that are no text.
            if isinstance(found, str):
                return str(found.encode(errors="backslashreplace"), "utf-8")
            return found

        self.database.connection.create_scalar_function(function, call, 2)

    def _number(self, placeholder: str, cell: Cell) -> Cell:
        if cell is None:
            return None
        known = self._numbers.setdefault(placeholder, {})
        stem, end = (placeholder[:-1], ">") if placeholder.endswith(">") else (placeholder, "")
        return known.setdefault(pack_row((cell,)), f"{stem} {len(known) + 1}{end}")

    def is_left_out(self, table: Table) -> bool:
        """Whether the whole table is ignored."""
        return (table.name.lower(), EVERY) in self._ignore

    def has_key(self, table: Table) -> bool:
        """Whether the rules leave the primary key as it is."""
        return bool(table.key) and not any(self._is_hidden(table, each) for each in table.key)

    def has_order(self, table: Table) -> bool:
        """Whether the order of the rows counts."""
        return table.is_ordered and (table.name.lower(), ROWID) not in self._ignore

    def _is_hidden(self, table: Table, column: str) -> bool:
        name = (table.name.lower(), column.lower())
        return self._ignore.get(name) == () or isinstance(self._replace.get(name), str)

    def select_cell(self, table: Table, column: str) -> str:
        """Return the SQL expression of a column's values as the rules let them be seen."""
        name = (table.name.lower(), column.lower())
        cell = quote_name(column)
        paths = self._ignore.get(name)
        if paths == ():
            return f"'{IGNORED}'"
        if paths:
            listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
            rest = f"json_remove({cell}, {listed})"
            cell = f"iif(typeof({cell}) = 'blob', CAST({rest} AS BLOB), {rest})"
        return f"{self._functions[name]}({as_bytes(cell)})" if name in self._replace else cell

    def select_from(self, table: Table) -> str:
        """Return the SQL that reads rows in their order.

        Where that order comes from values that the rules hide, rows are sorted by the others.
        """
        # Numbers that are assigned in turn keep the order of their rows.
        needs_order = table.is_clustered or (table.is_ordered and not self.has_order(table))
        if self.has_key(table) or not needs_order:
            return table.source
        cells = [
            self.select_cell(table, column)
            for column in table.columns
            if not self._is_hidden(table, column)
        ]
        terms = [f"typeof({cell}), {cell} COLLATE BINARY" for cell in cells] or ["NULL"]
        return f"{table.source} ORDER BY {', '.join(terms)}"


def _follow_references(database: Database, rules: Rules) -> dict[Column, Replacement]:
    """Return the replacements, and with each placeholder the columns that refer to its own."""
    found = dict(rules.replace)
    waiting = [name for name, by in found.items() if isinstance(by, str)]
    while waiting:
        to = waiting.pop()
        for name in database.find_references(*to):
            if name not in found and name not in rules.ignore:
                found[name] = found[to]
                waiting.append(name)
    return found
