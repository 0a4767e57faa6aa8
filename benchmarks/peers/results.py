"""What was measured: figures of each round, their median and spread, as JSON."""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.peers.spread import Spread, compute_spread

Unit = Literal["seconds", "per second", "bytes"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """One thing that stores are asked to do."""

    key: str
    title: str
    unit: Unit = "seconds"

    @property
    def more_is_better(self) -> bool:
        """Whether a larger figure is the better one."""
        return self.unit == "per second"


@dataclass(kw_only=True, slots=True)
class Cell:
    """What came of one work with one peer: a figure for each round, or a word instead."""

    figures: list[float] = field(default_factory=list)
    # Acknowledged messages that were not there afterwards, and appends that raised.
    acknowledged: int = 0
    lost: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    # Why there is no figure, or what to know about it.
    word: str = ""

    @property
    def median(self) -> float | None:
        """The middle figure, if there is one."""
        return statistics.median(self.figures) if self.figures else None

    @property
    def spread(self) -> Spread | None:
        """How far it may lie elsewhere in another run."""
        return compute_spread(self.figures)


@dataclass(kw_only=True, slots=True)
class Results:
    """A run: how it was made, who took part, and a cell for each peer and work."""

    # Name of the engine: its version and durability; date, command, machine, rounds.
    engines: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Label of the peer: how it is used, its versions, what it does not keep.
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Label of the peer, then key of the work.
    cells: dict[str, dict[str, Cell]] = field(default_factory=dict)

    def cell(self, label: str, work: str) -> Cell:
        """The cell of a peer and a work, made when it is first asked for."""
        return self.cells.setdefault(label, {}).setdefault(work, Cell())

    def ratios(self, label: str, work: str, *, to: str, of: str | None = None) -> list[float]:
        """A peer's figures through another's (`of` another work), round by round.

        What slows the machine in a round slows both.
        """
        mine = self.cells.get(label, {}).get(work, Cell()).figures
        theirs = self.cells.get(to, {}).get(of or work, Cell()).figures
        return [one / other for one, other in zip(mine, theirs, strict=False) if other > 0]

    def save(self, path: Path) -> None:
        """Write it; figures are rounded to what they tell."""
        plain = asdict(self)
        for cells in plain["cells"].values():
            for cell in cells.values():
                cell["figures"] = [float(f"{figure:.5g}") for figure in cell["figures"]]
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(plain, separators=(",", ":"))
        path.write_bytes(gzip.compress(text.encode(), mtime=0))

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `save` wrote."""
        plain = json.loads(gzip.decompress(path.read_bytes()))
        plain["cells"] = {
            label: {work: Cell(**cell) for work, cell in cells.items()}
            for label, cells in plain["cells"].items()
        }
        return cls(**plain)

    @classmethod
    def together(cls, runs: Iterable[Results]) -> Results:
        """Runs of several engines as one."""
        whole = cls()
        for run in runs:
            whole.engines.update(run.engines)
            whole.peers.update(run.peers)
            whole.cells.update(run.cells)
        return whole
