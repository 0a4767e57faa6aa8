"""The worker plugin that puts a disk below every SQLite of its process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memory_contract.faults.vfs import python_calls
from memory_contract.faults.vfs.disk import Disk
from memory_contract.faults.vfs.sqlite import (
    InterposedVfs,
    SymbolsMissing,
    find_apsw,
    find_standard,
)


@dataclass(frozen=True, slots=True)
class FaultyDisk:
    """A worker plugin. Its process must be killed, and never exit by itself.

    `remember` records changes; `python` counts file calls of Python code as steps, beside those of
    SQLite. Nothing is really synced: what a killed process wrote is in the system's memory.
    """

    folder: Path
    remember: bool = False
    python: bool = False
    kill_at: int = 0

    def install(self) -> Disk:
        """Interpose between each SQLite of this process and its files."""
        disk = Disk(self.folder)
        for find in (find_apsw, find_standard):
            try:
                disk.below.append(InterposedVfs(disk, find()))
            except (SymbolsMissing, ImportError) as error:
                disk.missing = f"{disk.missing} and {error}" if disk.missing else str(error)
        if self.remember:
            python_calls.watch_syncs(disk)
            disk.start_recording()
        if self.python:
            python_calls.count_steps(disk)
        disk.kill_at_step(self.kill_at)
        return disk
