"""The worker plugin that puts a disk below every SQLite of its process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from memory_contract.faults.vfs import python_calls
from memory_contract.faults.vfs.disk import Change, Disk, Kind, Order
from memory_contract.faults.vfs.sqlite import (
    InterposedVfs,
    SymbolsMissing,
    find_apsw,
    find_standard,
)


@dataclass(frozen=True, slots=True)
class FaultyDisk:
    """A worker plugin. Its process must be killed, and never exit by itself.

    `remember` records changes; `syncing=False` skips real syncs; `python` counts file calls of
    Python code as steps, beside those of SQLite.
    """

    folder: Path
    remember: bool = False
    syncing: bool = True
    python: bool = False
    kill_at: int = 0
    # Per process; they stay until it ends.
    _installed: ClassVar[list[Disk]] = []
    _between: ClassVar[list[InterposedVfs]] = []
    _without: ClassVar[list[str]] = []

    def install(self) -> None:
        """Interpose between each SQLite of this process and its files."""
        disk = Disk(self.folder)
        self._installed.append(disk)
        for find in (find_apsw, find_standard):
            try:
                self._between.append(InterposedVfs(disk, find(), syncing=self.syncing))
            except (SymbolsMissing, ImportError) as error:
                self._without.append(str(error))
        if self.remember:
            python_calls.hear_syncs(disk)
            disk.remember()
        if self.python:
            python_calls.count_steps(disk)
        disk.kill_at(self.kill_at)

    @property
    def _disk(self) -> Disk:
        return self._installed[-1]

    def missing(self) -> str:
        """Why the standard library's SQLite could not be reached; empty if it was."""
        return " and ".join(self._without)

    def steps(self) -> int:
        """How many steps were counted."""
        return self._disk.steps

    def calls(self) -> dict[Kind, int]:
        """How many calls of each kind were counted."""
        return dict(self._disk.calls)

    def kill_at_step(self, nth: int) -> None:
        """Kill the process at the n-th step from now on."""
        self._disk.kill_at(nth)

    def fail(self, kinds: Iterable[Kind], nth: int, full: bool, once: bool) -> None:
        """Let the n-th call of these kinds fail."""
        self._disk.fail(Order(frozenset(kinds), nth, full=full, once=once))

    def heal(self) -> list[int]:
        """Let no call fail any more; the times at which calls failed."""
        return self._disk.heal()

    def length(self) -> int:
        """How many changes were recorded."""
        return len(self._disk.changes or ())

    def changes(self) -> list[Change]:
        """The recorded changes."""
        return list(self._disk.changes or ())
