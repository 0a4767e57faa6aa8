"""Figures in documents, written between marks: whoever measures again writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def replace_section(text: str, part: str, figures: str) -> str:
    """A page with new figures in one of its parts."""
    start, stop = f"<!-- {part} -->\n", f"<!-- end of {part} -->\n"
    before, found, rest = text.partition(start)
    _, ended, after = rest.partition(stop)
    if not found or not ended:
        raise ValueError(f"there is no part {part!r} in this page")
    return f"{before}{start}\n{figures}\n{stop}{after}"


def format_row(cells: Sequence[str]) -> str:
    """A row of a table."""
    return "| " + " | ".join(cells) + " |"
