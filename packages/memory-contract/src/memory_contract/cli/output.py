"""What commands print: data to stdout; words to stderr when stdout is for data."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from memory_contract.report.wording import visible

if TYPE_CHECKING:
    from rich.console import Console

# Lines of a table that nobody watches being drawn: wide enough to keep names whole.
PIPE_COLUMNS = 160

AsJson = Annotated[
    bool,
    typer.Option(
        "--json", help="Print the data as one JSON document, and everything else to stderr."
    ),
]


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
        """Words for a person: on stdout, unless that is for data."""
        lines = "\n".join(visible(line) for line in text.split("\n"))
        print(lines, file=sys.stderr if self.as_json else sys.stdout)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Draw rows under headings."""
        # Each command imports only what it draws with: most of them draw nothing.
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in columns:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        console_on_stdout().print(table)


def console_on_stdout() -> Console:
    """A console that is as wide as the terminal, or wide enough for a pipe."""
    from rich.console import Console  # noqa: PLC0415

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(
        width=PIPE_COLUMNS if piped else None, highlight=False, markup=False, emoji=False
    )
