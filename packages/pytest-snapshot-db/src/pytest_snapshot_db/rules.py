"""What a comparison leaves out, and which values it takes for one another.

`ignore={"snapshot.taken_at"}` leaves a column out; `ignore={"entry.payload": "$.meta.ts"}` leaves a
part of its JSON out. `replace={"snapshot.id": "<id>", "note.snapshot": "<id>"}` numbers the values
of columns in the order in which they first appear, so it is still seen whether two are the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from pytest_snapshot_db.database import ROWID, Cell, Database, Table, quote_name, quote_text
from pytest_snapshot_db.errors import GoldenError

Ignored = Collection[str] | Mapping[str, str | Collection[str]]
Column = tuple[str, str]

EVERY: Final = "*"
IGNORED: Final = "(ignored)"
WHOLE: Final = "$"
# The steps of a JSON path: .name, ."name", ["name"], [0], and .* and [*] for all of them.
_STEP = re.compile(r"""\.(?P<name>[^.\["*]+)|\.(?P<dot>"[^"]*")|\[(?P<in>"[^"]*"|\d+|\*)\]|\.\*""")

# Removes what `pattern` matches from the last to the first, since later elements move up.
_WITHOUT_PATHS = """(WITH RECURSIVE
 hit AS (SELECT fullkey, row_number() OVER (ORDER BY id DESC) AS number
  FROM json_tree(json({cell})) WHERE fullkey REGEXP {pattern}),
 rest (number, document) AS (SELECT 0, json({cell}) UNION ALL
  SELECT hit.number, json_remove(document, fullkey) FROM rest JOIN hit
  ON hit.number = rest.number + 1)
 SELECT iif(typeof({cell}) = 'blob', CAST(document AS BLOB), document)
 FROM rest ORDER BY number DESC LIMIT 1)"""


class Rules(NamedTuple):
    """The rules by table and column, in lower case."""

    ignore: Mapping[Column, str] = {}
    """A regular expression of the JSON paths that are left out, or WHOLE for the whole column."""
    replace: Mapping[Column, str] = {}
    """Placeholders."""


def parse_rules(ignore: Ignored = (), replace: Mapping[str, str] | None = None) -> Rules:
    """Parse names such as `table.column`; raise GoldenError for what cannot be a rule."""
    if isinstance(ignore, str):
        raise GoldenError(f"ignore takes a set of names: {{{ignore!r}}}, not {ignore!r}")
    for name, by in (replace or {}).items():
        if not isinstance(by, str) or not by:
            raise GoldenError(f"replace[{name!r}] is a placeholder such as '<id>', not {by!r}")
    paths = ignore if isinstance(ignore, Mapping) else dict.fromkeys(ignore, WHOLE)
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


def _parse_paths(name: str, given: str | Collection[str]) -> str:
    """Return a regular expression of JSON paths, or WHOLE if one of them is the whole value."""
    paths = [given] if isinstance(given, str) else list(given)
    if not paths:
        raise GoldenError(f"ignore[{name!r}] is a list without a JSON path; '$' is the whole value")
    patterns = []
    for path in paths:
        steps = str(path).removeprefix(WHOLE)
        if not isinstance(path, str) or path == steps or _STEP.sub("", steps):
            raise GoldenError(
                f"ignore[{name!r}] is a JSON path such as '$.meta.ts' or '$.items[*].ts', or a list"
                f" of them, not {path!r}"
            )
        patterns.append(r"\$" + "".join(map(_to_pattern, _STEP.finditer(steps))))
    return WHOLE if r"\$" in patterns else "|".join(patterns)


def _to_pattern(step: re.Match[str]) -> str:
    """Return the regular expression of a step in the form in which SQLite writes it."""
    found = step["name"] or step["dot"] or step["in"]
    if found is None:
        return r'\.(?:\w+|"(?:[^"\\]|\\.)*")'
    if step["in"] and not found.startswith('"'):
        return r"\[\d+\]" if found == "*" else rf"\[{found}\]"
    # SQLite quotes names other than plain ones.
    name = re.escape(found.strip('"'))
    return rf'\.(?:{name}|"{name}")'


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
        if rules.ignore.get((table, column), WHOLE) != WHOLE:
            _check_json(one, table, column)
            _check_json(two, table, column)


def _check_json(database: Database, name: str, column: str) -> None:
    table = database.tables.get(name)
    if column in (EVERY, ROWID):
        raise GoldenError(f"a rule names a JSON path in {name}.{column}, which is no column")
    if table is None or not table.has_column(column):
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
        self._replace = rules.replace
        database.connection.create_scalar_function("regexp", _matches, 2, deterministic=True)
        for placeholder in {*self._replace.values()}:
            # What is NULL or has a number already is left out by INSERT OR IGNORE.
            database.execute(
                f"CREATE TABLE {self._name_numbers(placeholder)}"
                " (value NOT NULL, kind, UNIQUE (value, kind))"
            )
        for (name, column), placeholder in self._replace.items():
            table = database.tables.get(name)
            if table is not None and table.has_column(column):
                cell = quote_name(column)
                database.execute(
                    f"INSERT OR IGNORE INTO {self._name_numbers(placeholder)}"
                    f" SELECT {cell}, typeof({cell}) FROM {self.select_from(table)}"
                )

    def _name_numbers(self, placeholder: str) -> str:
        """Name the temporary table that numbers values by its rowids."""
        return f"temp.{quote_name(f'{self.database.schema} {placeholder}')}"

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
        return self._ignore.get(name) == WHOLE or name in self._replace

    def select_cell(self, table: Table, column: str) -> str:
        """Return the SQL expression of a column's values as the rules let them be seen."""
        name = (table.name.lower(), column.lower())
        cell = f"source.{quote_name(column)}"
        if pattern := self._ignore.get(name):
            if pattern == WHOLE:
                return quote_text(IGNORED)
            return _WITHOUT_PATHS.format(cell=cell, pattern=quote_text(pattern))
        if placeholder := self._replace.get(name):
            stem, end = placeholder.removesuffix(">"), ">" if placeholder.endswith(">") else ""
            return (
                f"(SELECT {quote_text(stem + ' ')} || rowid || {quote_text(end)}"
                f" FROM {self._name_numbers(placeholder)}"
                f" WHERE value = {cell} AND kind = typeof({cell}))"
            )
        return cell

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


def _matches(*arguments: Cell) -> bool:
    """Implement SQL's REGEXP."""
    pattern, text = arguments
    return re.fullmatch(str(pattern), str(text)) is not None
