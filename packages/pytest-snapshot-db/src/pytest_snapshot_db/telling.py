"""Puts a difference into words: the schema first, then rows, each with no more than changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from pytest_snapshot_db.comparing import Created, Difference, Pair, Rows
from pytest_snapshot_db.printable import escape_unseen
from pytest_snapshot_db.reading import Cell
from pytest_snapshot_db.rules import IGNORED

# What is shown of a value; of two that differ, this much around the change.
CELL_CHARS_MAX: Final = 60
AROUND_CHARS: Final = 20
ROW_CHARS_MAX: Final = 300
PATHS_MAX: Final = 8

_COLOURS: Final = {"gone": "31", "added": "32", "changed": "33", "head": "1"}


class Line(NamedTuple):
    """A line, and what it tells of, for whoever colours it."""

    text: str
    style: str = ""


def text_of(lines: Iterable[Line], *, colour: bool = False) -> str:
    """Lines as text, coloured for a terminal."""
    return "\n".join(_coloured(line) if colour else line.text for line in lines)


def _coloured(line: Line) -> str:
    # From scratch: pytest has made each line of a failure red already.
    return f"\x1b[0;{_COLOURS.get(line.style, '0')}m{line.text}\x1b[0m"


def lines_of(found: Difference) -> Iterator[Line]:
    """The whole difference, for a person."""
    for problem in found.problems:
        yield Line(f"the obtained file is damaged: {visible(problem)}", "gone")
    for name, before, after in found.header:
        yield Line(f"{name}: {before} expected, {after} obtained", "changed")
    for created in found.schema:
        yield from _created(created)
    for rows in found.tables:
        yield from _rows(rows)


def in_short(found: Difference) -> str:
    """The difference in a line."""
    parts = ["damaged"] if found.problems else []
    parts += [f"{name} {before} → {after}" for name, before, after in found.header]
    parts += [f"{each.kind} {visible(each.name)} {_became(each)}" for each in found.schema]
    parts += [f"{visible(rows.table)}: {_counts(rows)}" for rows in found.tables]
    return ", ".join(parts) or "nothing"


def suspects(found: Difference) -> list[str]:
    """The columns that alone differ, if they are all: perhaps they differ in every run."""
    if found.problems or found.header or found.schema:
        return []
    names: set[str] = set()
    for rows in found.tables:
        if rows.gone or rows.added or rows.moved or len(rows.shown) < rows.changed:
            return []
        for pair in rows.shown:
            names |= {f"{rows.table}.{column}" for column, _, _ in _cells(rows, pair)}
    return sorted(names)


def made_up_keys(found: Difference) -> list[str]:
    """Primary keys under which the same rows stand in both files: perhaps they are random."""
    names = []
    for rows in found.tables:
        whole = 0 < rows.gone == rows.added and len(rows.shown) == 2 * rows.gone
        if len(rows.key) == 1 and whole:
            at = rows.columns.index(rows.key[0])
            gone = [pair.before for pair in rows.shown if pair.before is not None]
            added = [pair.after for pair in rows.shown if pair.after is not None]
            if [row[:at] + row[at + 1 :] for row in gone] == [
                row[:at] + row[at + 1 :] for row in added
            ]:
                names.append(f"{rows.table}.{rows.key[0]}")
    return names


def first_cell(found: Difference) -> str:
    """Names one thing that differs, as exactly as can be."""
    for rows in found.tables:
        for pair in rows.shown:
            where = f"table {visible(rows.table)}, {_at(rows, pair)}"
            if pair.before is None:
                return f"{where}: there the second time, not the first"
            if pair.after is None:
                return f"{where}: there the first time, not the second"
            for column, before, after in _cells(rows, pair):
                one, two = around(before, after)
                return f"{where}, column {visible(column)}: {one}, then {two}"
    return in_short(found)


def _became(created: Created) -> str:
    if created.before is None:
        return "added"
    return "gone" if created.after is None else "changed"


def _created(created: Created) -> Iterator[Line]:
    rows = f", with {created.rows} {_plural(created.rows, 'row')}" if created.rows else ""
    yield Line(f"{created.kind} {visible(created.name)}: {_became(created)}{rows}", "head")
    before = (created.before or "").splitlines()
    after = (created.after or "").splitlines()
    for line in list(unified_diff(before, after, lineterm="", n=2))[2:]:
        style = {"-": "gone", "+": "added"}.get(line[:1], "")
        if not line.startswith("@@"):
            yield Line(f"  {line[:1]} {visible(line[1:])}".rstrip(), style)


def _counts(rows: Rows) -> str:
    parts = [
        f"{count} {what}"
        for count, what in (
            (rows.gone, "gone"),
            (rows.changed, "changed"),
            (rows.added, "added"),
        )
        if count
    ]
    return ", ".join(parts) if parts else "the same rows in another order"


def _rows(rows: Rows) -> Iterator[Line]:
    total = f"{rows.expected} {_plural(rows.expected, 'row')} expected, {rows.obtained} obtained"
    yield Line(f"table {visible(rows.table)}: {_counts(rows)} ({total})", "head")
    for pair in rows.shown:
        at = _at(rows, pair)
        if pair.before is not None and pair.after is not None:
            yield from _changed(rows, pair, at)
        elif pair.before is not None:
            yield Line(f"  - {at}: {_row(rows, pair.before)}", "gone")
        elif pair.after is not None:
            yield Line(f"  + {at}: {_row(rows, pair.after)}", "added")
    left = rows.gone + rows.changed + rows.added - len(rows.shown)
    if left:
        yield Line(f"  … and {left} more")
    if rows.moved:
        where = _at(rows, Pair(rows.moved, None, None))
        yield Line(f"  ~ the rows that both have stand in another order from {where} on", "changed")


def _at(rows: Rows, pair: Pair) -> str:
    if not rows.key:
        return f"row {shown(pair.at[0])}"
    cells = zip(rows.key, pair.at, strict=True)
    return ", ".join(f"{visible(name)}={shown(cell)}" for name, cell in cells)


def _row(rows: Rows, row: tuple[Cell, ...]) -> str:
    cells = zip(rows.columns, row, strict=True)
    told = [f"{visible(name)}={shown(cell)}" for name, cell in cells if name not in rows.key]
    return cut(", ".join(told), ROW_CHARS_MAX)


def _cells(rows: Rows, pair: Pair) -> Iterator[tuple[str, Cell, Cell]]:
    if pair.before is None or pair.after is None:
        return
    for column, before, after in zip(rows.columns, pair.before, pair.after, strict=True):
        if type(before) is not type(after) or before != after:
            yield column, before, after


def _changed(rows: Rows, pair: Pair, at: str) -> Iterator[Line]:
    said = [line for cells in _cells(rows, pair) for line in _cell(*cells)]
    if len(said) == 1:
        yield Line(f"  ~ {at}: {said[0]}", "changed")
        return
    yield Line(f"  ~ {at}", "changed")
    yield from (Line(f"      {line}", "changed") for line in said)


def _cell(column: str, before: Cell, after: Cell) -> Iterator[str]:
    one, two = _as_json(before), _as_json(after)
    if one is not None and two is not None and one != two:
        paths = list(json_changes(one, two))
        for path, old, new in paths[:PATHS_MAX]:
            first, second = around(old, new)
            yield f"{visible(column)} {path}: {first} → {second}"
        if len(paths) > PATHS_MAX:
            yield f"{visible(column)}: … and {len(paths) - PATHS_MAX} more paths"
        return
    first, second = around(before, after)
    yield f"{visible(column)}: {first} → {second}"


class Absent:
    """Stands where a JSON document has nothing."""


def _as_json(cell: Cell) -> Any:
    """An object or an array, if the cell is the JSON text of one, as text or as bytes."""
    if not isinstance(cell, (str, bytes)) or cell[:1] not in ("{", "[", b"{", b"["):
        return None
    try:
        return json.loads(cell)
    except ValueError:
        return None


def json_changes(before: Any, after: Any, path: str = "$") -> Iterator[tuple[str, Any, Any]]:
    """Where two documents differ, as far down as they have the same shape."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            step = f".{name}" if re.fullmatch(r"[A-Za-z_]\w*", name) else f"[{json.dumps(name)}]"
            one, two = before.get(name, Absent), after.get(name, Absent)
            yield from json_changes(one, two, path + step)
    elif isinstance(before, list) and isinstance(after, list):
        for at, (one, two) in enumerate(zip_longest(before, after, fillvalue=Absent)):
            yield from json_changes(one, two, f"{path}[{at}]")
    elif type(before) is not type(after) or before != after:
        yield path, before, after


def shown(cell: Any) -> str:
    """A value as SQL would have it, on one line of limited length."""
    return cut(_whole(cell), CELL_CHARS_MAX)


def _whole(cell: Any) -> str:
    if cell is Absent:
        return "nothing"
    if cell is None:
        return "NULL"
    if isinstance(cell, bytes):
        return f"x'{cell.hex()}'"
    if isinstance(cell, str):
        return cell if cell == IGNORED else "'" + visible(cell) + "'"
    return json.dumps(cell, ensure_ascii=False) if isinstance(cell, (dict, list)) else repr(cell)


def around(before: Any, after: Any) -> tuple[str, str]:
    """Two values that differ, shortened around the place where they do."""
    one, two = _whole(before), _whole(after)
    first = next(
        (at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b),
        min(len(one), len(two)),
    )
    begin = max(0, first - AROUND_CHARS) if max(len(one), len(two)) > CELL_CHARS_MAX else 0
    texts = (_window(one, begin), _window(two, begin))
    if isinstance(before, (bytes, str)) and isinstance(after, type(before)) and begin:
        sizes = f" ({len(before)} {_unit(before)})", f" ({len(after)} {_unit(after)})"
        return texts[0] + sizes[0], texts[1] + sizes[1]
    return texts


def _unit(value: bytes | str) -> str:
    return "bytes" if isinstance(value, bytes) else "characters"


def _window(text: str, begin: int) -> str:
    return ("…" if begin else "") + cut(text[begin:], CELL_CHARS_MAX)


def cut(text: str, length: int) -> str:
    """Text of limited length, with a sign where something is missing."""
    return text if len(text) <= length else text[: length - 1] + "…"


def visible(text: str) -> str:
    """Text of which nothing steers a terminal."""
    return escape_unseen(text)


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"
