"""What commands print: data to stdout; words to stderr when stdout is for data."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from memory_contract.printable import escape_unseen


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def json(self, value: object) -> bool:
        """Print a value as one JSON document, if JSON was asked for; says whether it was."""
        if self.as_json:
            print(json.dumps(value, indent=2))
        return self.as_json

    def say(self, text: str) -> None:
        """Print words for a person: to stdout, unless that is for data."""
        lines = "\n".join(escape_unseen(line) for line in text.split("\n"))
        print(lines, file=sys.stderr if self.as_json else sys.stdout, flush=True)


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay rows out under headings, in columns of equal width."""
    cells = [list(columns), *([escape_unseen(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
