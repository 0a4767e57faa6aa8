"""What is known about a trace as a whole, which decides how much its lines can prove."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from memory_contract.checker.events import FOREVER
from memory_contract.traces.format import (
    Contents,
    DroppedLines,
    ReplayLevel,
    TraceEnd,
    TraceHeader,
    TraceLine,
    TtlRefresh,
    WorkerKind,
)

# Two boots whose lines lie further apart than that did not run at the same time, whatever their
# clocks say of each other.
CLOCKS_APART_NS: Final = 60_000_000_000


@dataclass(slots=True)
class TraceMetadata:
    """Gathered from the headers and notes of all files."""

    headers: int = 0
    # A history of the kit, whose ids are the kit's own: each stands for one entry.
    own_ids: bool = True
    fresh: bool = True
    dropped: int = 0
    # Of the dropped lines, those of calls that may have removed entries.
    dropped_changes: int = 0
    unclosed: int = 0
    continued: bool = False
    ttl_s: float | None = None
    ttl_late_s: float = 0.0
    ttl_refreshed_by: TtlRefresh = "append"
    contents: Contents | None = None
    workers: WorkerKind | None = None
    store: str = ""
    level: ReplayLevel = "concurrent"
    boots: dict[str, list[int]] = field(default_factory=dict)
    # Of each process, the first header that is left, and whether older files were removed.
    begun: dict[tuple[str, int], tuple[int, bool]] = field(default_factory=dict)
    _open: bool = False

    def end_file(self) -> None:
        """Count a file that did not end in order."""
        self.unclosed += self._open
        self._open = False

    def add(self, line: TraceLine) -> None:
        """Take in a line that is no call."""
        if isinstance(line, TraceHeader):
            self._add_header(line)
        elif isinstance(line, DroppedLines):
            self.dropped += line.dropped
            self.dropped_changes += line.changes
        elif isinstance(line, TraceEnd):
            self._open = False

    def _add_header(self, header: TraceHeader) -> None:
        self.unclosed += self._open
        self.headers += 1
        self._open, self.own_ids = True, False
        self.fresh = self.fresh and header.fresh
        self.continued = self.continued or header.continued
        self.ttl_s = header.ttl_s if self.ttl_s is None else self.ttl_s
        self.ttl_late_s = max(self.ttl_late_s, header.ttl_late_s)
        self.ttl_refreshed_by = header.ttl_refreshed_by
        self.contents = self.contents or header.contents
        self.workers = self.workers or header.workers
        self.store = self.store or header.store
        self.level = header.level
        self.boots.setdefault(header.boot, []).append(header.wall_ns - header.monotonic_ns)
        process, begun = (header.boot, header.pid), (header.monotonic_ns, header.continued)
        self.begun[process] = min(begun, self.begun.get(process, begun))

    @property
    def complete(self) -> bool:
        """Return whether every append that was made stands in the trace."""
        return not (self.dropped or self.unclosed or self.continued)

    @property
    def changes_known_since(self) -> int:
        """The moment from which on every call that may remove entries stands in the trace.

        Such calls are written down before they are made. Only one that could not be written at all
        is missing, and what a process did before the first of its files that is left.
        """
        if self.dropped_changes:
            return FOREVER
        return max(
            (
                moment + self.shift_ns(boot)
                for (boot, _), (moment, continued) in self.begun.items()
                if continued
            ),
            default=-1,
        )

    @property
    def ends_unseen(self) -> bool:
        """Return whether a session's life may have begun before the trace and end at any time."""
        return not self.fresh and self.ttl_refreshed_by == "nothing"

    def shift_ns(self, boot: str) -> int:
        """What makes the times of several boots comparable, roughly; nothing where there is one."""
        return self.boots.get(boot, [0])[0] if len(self.boots) > 1 else 0
