"""Where the words of a command go: data to stdout, and words to stderr when stdout is for data."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from indelible.cli import phrases
from indelible.printable import escape_unseen_in_json

if TYPE_CHECKING:
    from rich.console import Console, OverflowMethod, RenderableType

# Lines of a table that nobody watches being drawn: wide enough to keep ids whole.
PIPE_COLUMNS = 160


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def json(self, value: object) -> bool:
        """Print a value as one JSON document, if JSON was asked for; says whether it was."""
        if self.as_json:
            print(json_text(value))
        return self.as_json

    def say(self, text: str) -> None:
        """Words for a person: on stdout, unless that is for data."""
        print(phrases.safe(text), file=sys.stderr if self.as_json else sys.stdout)

    def note(self, text: str) -> None:
        """Words that are never part of what was asked for."""
        print(phrases.safe(text), file=sys.stderr)

    def draw(self, *drawings: RenderableType, cut: bool = False) -> None:
        """Draw for a person; `cut` ends lines at the edge instead of wrapping them."""
        console = console_on_stdout()
        overflow: OverflowMethod | None = "ellipsis" if cut else None
        for drawing in drawings:
            console.print(drawing, no_wrap=cut, overflow=overflow)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Draw rows under headings."""
        # Each command imports only what it draws with: most of them draw nothing.
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in columns:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*(Text(phrases.visible(cell)) for cell in row))
        self.draw(table)


def console_on_stdout() -> Console:
    """A console that is as wide as the terminal, or wide enough for a pipe."""
    from rich.console import Console  # noqa: PLC0415

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(
        width=PIPE_COLUMNS if piped else None, highlight=False, markup=False, emoji=False
    )


def json_text(value: object) -> str:
    """JSON of anything that a store gives back; times in ISO 8601, bytes in base64."""
    import pydantic_core  # noqa: PLC0415

    text = pydantic_core.to_json(plain(value), indent=2, bytes_mode="base64").decode()
    return escape_unseen_in_json(text)


def plain(value: Any) -> Any:
    """Named fields by name: what is a tuple with names in Python is an object in JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(each) for each in value]
    return value
