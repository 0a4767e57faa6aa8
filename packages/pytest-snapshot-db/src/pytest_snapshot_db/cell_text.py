"""Renders values of a database and the difference between two of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Final
from unicodedata import normalize

from pytest_snapshot_db.database import Cell
from pytest_snapshot_db.rules import IGNORED

# A value is cut to this length; of a long one that changed, this much before the change is shown.
CELL_CHARS_MAX: Final = 60
CONTEXT_CHARS: Final = 20
ROW_CHARS_MAX: Final = 300
PATHS_MAX: Final = 8

JsonChange = tuple[str, Any, Any]


def suggest_ignore(cells: dict[str, set[str]]) -> str:
    """Write columns and paths as an argument `ignore`, for cells that differ in every run."""
    ignore = {name: "$" if "$" in paths else sorted(paths) for name, paths in sorted(cells.items())}
    text = json.dumps(ignore, ensure_ascii=False)
    if all(paths == "$" for paths in ignore.values()):
        text = "{" + ", ".join(json.dumps(name, ensure_ascii=False) for name in ignore) + "}"
    return escape_unseen(text)


def render_cell_change(
    column: str, before: Cell, after: Cell, paths: list[JsonChange]
) -> Iterator[str]:
    """Render the change of a cell, by JSON paths if there are any."""
    name = escape_unseen(column)
    for path, old, new in paths[:PATHS_MAX]:
        one, two = shorten_both(old, new)
        yield f"{name} {shorten(escape_unseen(path), ROW_CHARS_MAX)}: {one} → {two}"
    if len(paths) > PATHS_MAX:
        yield f"{name}: … and {len(paths) - PATHS_MAX} more paths"
    if not paths:
        one, two = shorten_both(before, after)
        yield f"{name}: {one} → {two}"


class Absent:
    """Stands for a value that a JSON document does not have."""


def diff_json_cells(before: Cell, after: Cell) -> list[JsonChange]:
    """List the paths in which two cells differ; none unless both are JSON objects or arrays."""
    documents = []
    for cell in (before, after):
        if not isinstance(cell, (str, bytes)) or cell[:1] not in ("{", "[", b"{", b"["):
            return []
        documents.append(cell)
    try:
        return list(_diff_json(*map(json.loads, documents)))
    except (ValueError, RecursionError):
        return []


def _diff_json(before: Any, after: Any, path: str = "$") -> Iterator[JsonChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            is_plain = re.fullmatch(r"[A-Za-z_]\w*", name)
            step = f".{name}" if is_plain else f"[{json.dumps(name, ensure_ascii=False)}]"
            one, two = before.get(name, Absent), after.get(name, Absent)
            yield from _diff_json(one, two, path + step)
    elif isinstance(before, list) and isinstance(after, list):
        for at, (one, two) in enumerate(zip_longest(before, after, fillvalue=Absent)):
            yield from _diff_json(one, two, f"{path}[{at}]")
    # repr distinguishes 1 from true and 1.0, and takes NaN for NaN.
    elif repr(before) != repr(after):
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
    if isinstance(cell, (dict, list, bool)):
        return escape_unseen(json.dumps(cell, ensure_ascii=False))
    return repr(cell)


def shorten_both(before: Any, after: Any) -> tuple[str, str]:
    """Render two values that differ, shortened around the first difference."""
    one, two = _render_whole(before), _render_whole(after)
    if normalize("NFKC", one) == normalize("NFKC", two):
        # They look the same: an accent or a newline that is spelled in two ways.
        one, two = ascii(before), ascii(after)
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
    """Limit the length of a text; an ellipsis shows that it was cut."""
    return text if len(text) <= length else text[: length - 1] + "…"


def pluralize(count: int, noun: str) -> str:
    """Return `1 row` or `2 rows`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def escape_unseen(text: str) -> str:
    """Escape characters that a terminal would interpret or not show."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
