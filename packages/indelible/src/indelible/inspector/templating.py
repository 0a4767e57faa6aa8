"""How templates write values: everything is escaped, including invisible characters."""

from __future__ import annotations

import json
import re
from collections.abc import Sized
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from indelible.model import Change
from indelible.printable import escape_unseen, escape_unseen_in_lines
from indelible.view import Extents, count, subtract

# The longest value of metadata in a list.
PLAIN_CHARS_MAX: Final = 80
# A block of code, as models write it. Its fences stay: no part of a text is left out.
_FENCED = re.compile(r"^(```[^`\n]*\n.*?^```[ \t]*)$\n?", re.MULTILINE | re.DOTALL)
_FOUND = re.compile(r"\[([^\[\]]+)\]")


def build_environment() -> Environment:
    """Build the environment of all templates."""
    environment = Environment(
        loader=PackageLoader("indelible.inspector"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters.update(
        lines=_format_lines,
        time=_format_time,
        ago=_format_ago,
        many=_format_count,
        extents=_format_extents,
        effect=_format_effect,
        found=_mark_found,
        plain=_format_plain,
    )
    environment.globals.update(link=build_link)
    return environment


def build_link(path: str, **fields: object) -> str:
    """Build an address of the inspector. Fields without a value are left out."""
    given = {name.rstrip("_"): value for name, value in fields.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _finalize(value: Any) -> Any:
    """Escape unseen characters of every text that is inserted into a page."""
    return escape_unseen(value) if type(value) is str else value


def _format_lines(text: str) -> Markup:
    """Write a text of several lines; fenced blocks are shown as code."""
    lines = str(escape(escape_unseen_in_lines(text)))
    return Markup(_FENCED.sub(r'<span class="code">\1</span>', lines))  # noqa: S704 (escaped above)


def _format_plain(value: Any) -> str:
    """Write a value of metadata: a text as it is, anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= PLAIN_CHARS_MAX else text[: PLAIN_CHARS_MAX - 1] + "…"


def _format_time(moment: datetime | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return "" if moment is None else f"{moment:{form}}"


def _format_ago(moment: datetime | None) -> str:
    if moment is None:
        return ""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size):,} {unit} ago"
    return "just now"


def _format_count(number: int | Sized, noun: str, plural: str = "") -> str:
    """1 entry, 2 entries."""
    number = number if isinstance(number, int) else len(number)
    return f"1 {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def _format_extents(extents: Extents) -> str:
    return ", ".join(f"{a}\N{EN DASH}{b - 1}" if b - a > 1 else f"{a}" for a, b in extents)


def _format_effect(change: Change) -> str:
    """Describe how many entries a change hid and brought back."""
    hid = count(subtract(change.before, change.after))
    back = count(subtract(change.after, change.before))
    parts = [f"hid {hid:,}"] * bool(hid) + [f"brought back {back:,}"] * bool(back)
    return ", ".join(parts) or "changed nothing"


def _mark_found(snippet: str) -> Markup:
    """Highlight the words that a search put into brackets; line breaks of a snippet are spaces."""
    text = str(escape(escape_unseen(" ".join(snippet.split()))))
    return Markup(_FOUND.sub(r"<mark>\1</mark>", text))  # noqa: S704 (escaped above)
