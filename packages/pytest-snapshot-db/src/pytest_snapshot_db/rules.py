"""The rules of a comparison: which columns and JSON paths it ignores.

`ignore={"snapshot.taken_at"}` ignores a column, `ignore={"entry.payload": "$.meta.ts"}` a part of
the JSON in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from pytest_snapshot_db.database import (
    ROWID,
    Database,
    Table,
    fold_case,
    quote_name,
    quote_text,
)
from pytest_snapshot_db.errors import GoldenError

Ignored = Collection[str] | Mapping[str, str | Collection[str]]
Column = tuple[str, str]

EVERY: Final = "*"
IGNORED: Final = "(ignored)"
WHOLE: Final = "$"
# The steps of a JSON path: .name, ."name", ["name"], [0], and .* and [*] for all of them.
_STEP = re.compile(
    r"""\.(?P<name>[^.\["*]+) | (?:\.|(?P<bracket>\[)) "(?P<quoted>(?:[^"\\]|\\.)*)" (?(bracket)\])
    | \[(?P<index>\d+|\*)\] | \.\*""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by table and column, which `fold_case` has folded."""

    ignore: Mapping[Column, str] = field(default_factory=dict)
    """A regular expression of the ignored JSON paths, or WHOLE for the whole column."""

    def ignores_table(self, table: str) -> bool:
        """Whether the whole table is ignored, with its CREATE statement."""
        return self._find(table, EVERY) is not None

    def ignores_order(self, table: Table) -> bool:
        """Whether the order of the rows is ignored."""
        return self._find(table.name, ROWID) is not None

    def ignores_key(self, table: Table) -> bool:
        """Whether a column of the primary key is ignored."""
        return any(self._find(table.name, column) == WHOLE for column in table.key)

    def select_cell(self, table: Table, column: str) -> str:
        """Return the SQL expression of a column's values without the ignored parts."""
        cell = f"source.{quote_name(column)}"
        pattern = self._find(table.name, column)
        if pattern is None:
            return cell
        if pattern == WHOLE:
            return quote_text(IGNORED)
        rest = f"remove_paths(json({cell}), {quote_text(pattern)})"
        return f"iif(typeof({cell}) = 'blob', CAST({rest} AS BLOB), {rest})"

    def _find(self, table: str, column: str) -> str | None:
        return self.ignore.get((fold_case(table), fold_case(column)))

    def check(self, one: Database, two: Database) -> None:
        """Refuse a name that neither file has, and a JSON path for a column without JSON."""
        for (table, column), pattern in self.ignore.items():
            found = [db.tables[table] for db in (one, two) if table in db.tables]
            if not found:
                tables = ", ".join(sorted({*one.tables, *two.tables})) or "none"
                raise GoldenError(f"a rule names the table {table!r}; there are: {tables}")
            if column not in (EVERY, ROWID) and not any(each.has_column(column) for each in found):
                columns = ", ".join(found[0].columns)
                raise GoldenError(f"a rule names {table}.{column}; {table} has: {columns}")
            if pattern != WHOLE:
                _check_json(one, table, column)
                _check_json(two, table, column)


def parse_rules(ignore: Ignored = ()) -> Rules:
    """Parse names such as `table.column`; raise GoldenError for what cannot be a rule."""
    if isinstance(ignore, str):
        raise GoldenError(f"ignore takes a set of names: {{{ignore!r}}}, not {ignore!r}")
    paths = ignore if isinstance(ignore, Mapping) else dict.fromkeys(ignore, WHOLE)
    return Rules({_parse_column(name): _parse_paths(name, given) for name, given in paths.items()})


def _parse_column(name: str) -> Column:
    # Tables with a dot in their name are supported, columns with one are not.
    table, _, column = str(name).rpartition(".")
    if not table or not column:
        raise GoldenError(f"{name!r} is not the name of a column: write it as 'table.column'")
    return fold_case(table), fold_case(column)


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
    """Return a regular expression for a step of a path as SQLite spells it."""
    if index := step["index"]:
        return r"\[\d+\]" if index == "*" else rf"\[{index}\]"
    name = step["name"] if step["quoted"] is None else step["quoted"]
    if name is None:
        return r'\.(?:\w+|"(?:[^"\\]|\\.)*")'
    # SQLite quotes names other than plain ones, and spells them as the document does.
    escaped = "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in name)
    plain, escaped = re.escape(name), re.escape(escaped)
    return rf'\.(?:{plain}|"{plain}"|"{escaped}")'


def _check_json(database: Database, name: str, column: str) -> None:
    table = database.tables.get(name)
    if column in (EVERY, ROWID):
        raise GoldenError(f"a rule names a JSON path in {name}.{column}, which is no column")
    if table is None or not table.has_column(column):
        return
    cell = quote_name(column)
    # 9: JSON as text or JSONB. A text is valid for SQLite up to its first NUL.
    nul = f"iif(typeof({cell}) = 'text', char(0), x'00')"
    is_json = (
        f"typeof({cell}) IN ('text', 'blob') AND json_valid({cell}, 9)"
        f" AND (json_valid({cell}, 8) OR NOT instr({cell}, {nul}))"
    )
    wrong = f"{table.source} WHERE {cell} IS NOT NULL AND NOT ({is_json}) LIMIT 1"
    for (value,) in database.read_rows([cell], wrong):
        raise GoldenError(
            f"a rule names a JSON path in {name}.{column}, which holds {ascii(value)[:60]}:"
            " that is not JSON"
        )
