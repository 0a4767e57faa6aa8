"""Renders a difference: the schema first, then rows, each with no more than what changed."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from difflib import unified_diff
from itertools import zip_longest
from typing import Any, Final

from pytest_snapshot_db.compare import Difference, RowChange, SchemaChange, TableDifference
from pytest_snapshot_db.database import Cell, Row
from pytest_snapshot_db.rules import IGNORED

# What is shown of a value; of two that differ, this much around the change.
CELL_CHARS_MAX: Final = 60
CONTEXT_CHARS: Final = 20
ROW_CHARS_MAX: Final = 300
PATHS_MAX: Final = 8


def render(found: Difference) -> Iterator[str]:
    """Render the whole difference."""
    for problem in found.problems:
        yield f"the obtained file is damaged: {escape_unseen(problem)}"
    for name, before, after in found.header:
        yield f"{name}: {before} expected, {after} obtained"
    for change in found.schema:
        yield from _render_schema_change(change)
    for rows in found.tables:
        yield from _render_table(rows)


def summarize(found: Difference) -> str:
    """Render the difference in one line."""
    parts = ["damaged"] if found.problems else []
    parts += [f"{name} {before} → {after}" for name, before, after in found.header]
    parts += [
        f"{each.kind} {escape_unseen(each.name)} {_name_change(each)}" for each in found.schema
    ]
    parts += [f"{escape_unseen(rows.table)}: {_count_changes(rows)}" for rows in found.tables]
    return ", ".join(parts) or "nothing"


def suggest_ignore(found: Difference) -> str:
    """Suggest an `ignore` if nothing but cells differs: perhaps these do so in every run."""
    if found.problems or found.header or found.schema:
        return ""
    names: dict[str, set[str]] = defaultdict(set)
    for rows in found.tables:
        if rows.gone or rows.added or rows.moved or len(rows.shown) < rows.changed:
            return ""
        for change in rows.shown:
            for column, before, after in _list_cells(rows, change):
                paths = _diff_json_cells(before, after) or [("$", before, after)]
                names[f"{rows.table}.{column}"] |= {path for path, _, _ in paths}
    quoted = {escape_unseen(name): sorted(paths) for name, paths in sorted(names.items())}
    if all(paths == ["$"] for paths in quoted.values()):
        return "{" + ", ".join(f'"{name}"' for name in quoted) + "}" if quoted else ""
    return json.dumps(
        {name: "$" if "$" in paths else paths for name, paths in quoted.items()},
        ensure_ascii=False,
    )


def _name_change(change: SchemaChange) -> str:
    if change.before is None:
        return "added"
    return "gone" if change.after is None else "changed"


def _render_schema_change(change: SchemaChange) -> Iterator[str]:
    rows = f", with {_pluralize(change.rows, 'row')}" if change.rows else ""
    name = escape_unseen(change.name)
    yield f"{change.kind} {name}: {_name_change(change)}{rows}"
    before = (change.before or "").splitlines()
    after = (change.after or "").splitlines()
    for line in list(unified_diff(before, after, lineterm="", n=2))[2:]:
        if not line.startswith("@@"):
            yield f"  {line[:1]} {escape_unseen(line[1:])}".rstrip()


def _count_changes(rows: TableDifference) -> str:
    counts = {"gone": rows.gone, "changed": rows.changed, "added": rows.added}
    parts = [f"{count} {name}" for name, count in counts.items() if count]
    return ", ".join(parts) or "the same rows in another order"


def _render_table(rows: TableDifference) -> Iterator[str]:
    total = f"{_pluralize(rows.expected, 'row')} expected, {rows.obtained} obtained"
    yield f"table {escape_unseen(rows.table)}: {_count_changes(rows)} ({total})"
    for change in rows.shown:
        at = _name_row(rows, change.at)
        if change.before is not None and change.after is not None:
            yield from _render_changed_row(rows, change, at)
        elif change.before is not None:
            yield f"  - {at}: {_render_row(rows, change.before)}"
        elif change.after is not None:
            yield f"  + {at}: {_render_row(rows, change.after)}"
    left = rows.gone + rows.changed + rows.added - len(rows.shown)
    if left:
        yield f"  … and {left} more"
    if rows.moved:
        at = _name_row(rows, rows.moved)
        yield f"  ~ the rows that both have stand in another order from {at} on"


def _name_row(rows: TableDifference, at: Row) -> str:
    if not rows.key:
        return f"row {render_cell(at[0])}"
    cells = zip(rows.key, at, strict=True)
    return ", ".join(f"{escape_unseen(name)}={render_cell(cell)}" for name, cell in cells)


def _render_row(rows: TableDifference, row: Row) -> str:
    cells = zip(rows.columns, row, strict=True)
    shown = [f"{escape_unseen(n)}={render_cell(cell)}" for n, cell in cells if n not in rows.key]
    return shorten(", ".join(shown), ROW_CHARS_MAX)


def _list_cells(rows: TableDifference, change: RowChange) -> Iterator[tuple[str, Cell, Cell]]:
    """List the columns in which a row differs."""
    if change.before is None or change.after is None:
        return
    for column, one, two in zip(rows.columns, change.before, change.after, strict=True):
        # repr tells 1 from 1.0, and 0.0 from -0.0.
        if repr(one) != repr(two):
            yield column, one, two


def _render_changed_row(rows: TableDifference, change: RowChange, at: str) -> Iterator[str]:
    cells = _list_cells(rows, change)
    lines = [line for column, one, two in cells for line in _render_cell_change(column, one, two)]
    if len(lines) == 1:
        yield f"  ~ {at}: {lines[0]}"
        return
    yield f"  ~ {at}"
    yield from (f"      {line}" for line in lines)


def _render_cell_change(column: str, before: Cell, after: Cell) -> Iterator[str]:
    name = escape_unseen(column)
    paths = _diff_json_cells(before, after)
    for path, old, new in paths[:PATHS_MAX]:
        one, two = shorten_both(old, new)
        yield f"{name} {escape_unseen(path)}: {one} → {two}"
    if len(paths) > PATHS_MAX:
        yield f"{name}: … and {len(paths) - PATHS_MAX} more paths"
    if not paths:
        one, two = shorten_both(before, after)
        yield f"{name}: {one} → {two}"


class Absent:
    """Stands for a value that a JSON document does not have."""


def _diff_json_cells(before: Cell, after: Cell) -> list[tuple[str, Any, Any]]:
    """List the paths in which two cells differ; none unless both are JSON objects or arrays."""
    documents = []
    for cell in (before, after):
        if not isinstance(cell, (str, bytes)) or cell[:1] not in ("{", "[", b"{", b"["):
            return []
        try:
            documents.append(json.loads(cell))
        except (ValueError, RecursionError):
            return []
    return list(_diff_json(*documents))


def _diff_json(before: Any, after: Any, path: str = "$") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            step = f".{name}" if re.fullmatch(r"[A-Za-z_]\w*", name) else f"[{json.dumps(name)}]"
            one, two = before.get(name, Absent), after.get(name, Absent)
            yield from _diff_json(one, two, path + step)
    elif isinstance(before, list) and isinstance(after, list):
        for at, (one, two) in enumerate(zip_longest(before, after, fillvalue=Absent)):
            yield from _diff_json(one, two, f"{path}[{at}]")
    elif type(before) is not type(after) or before != after:
        yield path, before, after


def render_cell(cell: Any) -> str:
    """Render a value as in SQL, on one line of limited length."""
    return shorten(_render_whole(cell), CELL_CHARS_MAX)


def _render_whole(cell: Any) -> str:
    if cell is Absent:
        return "nothing"
    if cell is None:
        return "NULL"
    if isinstance(cell, bytes):
        return f"x'{cell.hex()}'"
    if isinstance(cell, str):
        return cell if cell == IGNORED else "'" + escape_unseen(cell) + "'"
    if isinstance(cell, (dict, list)):
        return escape_unseen(json.dumps(cell, ensure_ascii=False))
    return repr(cell)


def shorten_both(before: Any, after: Any) -> tuple[str, str]:
    """Render two values that differ, shortened around the place where they do."""
    one, two = _render_whole(before), _render_whole(after)
    if max(len(one), len(two)) <= CELL_CHARS_MAX:
        return one, two
    pairs = enumerate(zip(one, two, strict=False))
    first = next((at for at, (a, b) in pairs if a != b), min(len(one), len(two)))
    begin = max(0, first - CONTEXT_CHARS)
    texts = []
    for text, value in ((one, before), (two, after)):
        shown = ("…" if begin else "") + shorten(text[begin:], CELL_CHARS_MAX)
        if begin and type(before) is type(after) and isinstance(value, (bytes, str)):
            unit = "bytes" if isinstance(value, bytes) else "characters"
            shown += f" ({len(value)} {unit})"
        texts.append(shown)
    return texts[0], texts[1]


def shorten(text: str, length: int) -> str:
    """Limit the length of a text, with a sign where something is missing."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _pluralize(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def escape_unseen(text: str) -> str:
    """Escape characters that a terminal would interpret or not show: stored text may have any."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
