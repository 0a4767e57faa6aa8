"""A disk that counts the calls which reach it, fails them, records them, or kills the process.

It knows nothing of SQLite but its error codes; `sqlite` and `python_calls` bring the calls.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

Kind = Literal["open", "read", "write", "sync", "truncate", "delete"]
# The results of failing calls: SQLite's extended error codes.
ERRORS: Final[dict[Kind, int]] = {
    "open": 14,  # SQLITE_CANTOPEN
    "read": 10 | 1 << 8,  # SQLITE_IOERR_READ
    "write": 10 | 3 << 8,  # SQLITE_IOERR_WRITE
    "sync": 10 | 4 << 8,  # SQLITE_IOERR_FSYNC
    "truncate": 10 | 6 << 8,  # SQLITE_IOERR_TRUNCATE
    "delete": 10 | 10 << 8,  # SQLITE_IOERR_DELETE
}
FULL: Final = 13  # SQLITE_FULL
OK: Final = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A change to a file of the workspace, or to its folder.

    `found` is a file that existed before, with its `data`. Everything else is only in memory until
    a `sync`. A `sync` with `folder` also makes names durable; one without `name` only names.
    """

    what: Literal["found", "create", "write", "truncate", "delete", "sync"]
    name: str
    data: bytes = b""
    # The offset of a write, the size after a truncation.
    at: int = 0
    folder: bool = False


@dataclass(slots=True)
class Order:
    """Which call fails: the n-th of these kinds, once or from then on."""

    kinds: frozenset[Kind]
    nth: int
    full: bool
    once: bool
    seen: int = 0
    fired: list[int] = field(default_factory=list)

    def next_code(self, kind: Kind) -> int:
        """The error of the next call; `OK` for none."""
        if kind not in self.kinds:
            return OK
        self.seen += 1
        due = self.seen == self.nth if self.once else self.seen >= self.nth
        if not due:
            return OK
        self.fired.append(time.monotonic_ns())
        return FULL if self.full else ERRORS[kind]


class Disk:
    """The disk below all files of a workspace, in one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = os.path.realpath(folder)
        # Held during each call that changes something, so that changes are recorded in order.
        self.lock = threading.RLock()
        self.steps = 0
        self.calls: Counter[Kind] = Counter()
        # What connects it to each SQLite, and why one could not be reached.
        self.below: list[object] = []
        self.missing = ""
        self.changes: list[Change] | None = None
        self._kill_at = 0
        self._order: Order | None = None
        self._known: set[str] = set()
        self._names: dict[str, str | None] = {}
        self._unsynced_names: set[str] = set()

    # Before a call

    def step(self, kind: Kind) -> int:
        """Count a call, and kill the process if it is its turn; the error code, or `OK`."""
        with self.lock:
            if kind != "read":
                # A kill before a read leaves the same files as one after the step before.
                self.count_step()
            self.calls[kind] += 1
            return OK if self._order is None else self._order.next_code(kind)

    def count_step(self) -> None:
        """Count a step that cannot fail, and kill the process if it is its turn."""
        with self.lock:
            self.steps += 1
            if self.steps == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    # After it

    def record_open(self, path: str | None, *, created: bool, journal: bool) -> None:
        """Record that a file was opened; the first sync of a new journal syncs its folder, too."""
        name = self._name(path)
        if name is None or self.changes is None:
            return
        if created:
            self._known.add(name)
            if journal:
                self._unsynced_names.add(name)
            self.changes.append(Change("create", name))
        elif name not in self._known:
            self._known.add(name)
            self.changes.append(Change("found", name, Path(self.folder, name).read_bytes()))

    def record(
        self,
        what: Literal["write", "truncate", "delete", "sync"],
        path: str | None,
        data: Callable[[], bytes] = bytes,
        *,
        at: int = 0,
        folder: bool = False,
    ) -> None:
        """Record a change to a file of the workspace."""
        name = self._name(path)
        if name is not None and self.changes is not None:
            self.changes.append(Change(what, name, data(), at, folder))

    def record_sync(self, path: str | None) -> None:
        """Record that a file was synced."""
        name = self._name(path)
        self.record("sync", path, folder=name in self._unsynced_names)
        self._unsynced_names.discard(name or "")

    def record_delete(self, path: str | None, *, folder: bool) -> None:
        """Record that a file was deleted; with `folder`, durably."""
        self._known.discard(self._name(path) or "")
        self.record("delete", path, folder=folder)

    def record_outside_sync(self, path: str) -> None:
        """Record a sync of a file or a folder that did not come from SQLite."""
        if os.path.isdir(path):  # noqa: PTH112 -- a name as the system gives it
            if self.changes is not None and self._inside(path):
                self._unsynced_names.clear()
                self.changes.append(Change("sync", "", folder=True))
        elif self._name(path) in self._known:
            self.record("sync", path)

    def _inside(self, path: str) -> bool:
        return os.path.commonpath([self.folder, path]) == self.folder

    def _name(self, path: str | None) -> str | None:
        """The name of a file in the workspace; None outside, or while nothing is recorded."""
        if path is None or self.changes is None:
            return None
        if path not in self._names:
            # Cached: a store writes thousands of times to few files.
            real = os.path.realpath(path)
            inside = self._inside(real)
            self._names[path] = os.path.relpath(real, self.folder) if inside else None
        return self._names[path]

    # Requests of the kit

    def fail(self, kinds: Iterable[Kind], nth: int, full: bool, once: bool) -> None:
        """Let the n-th call of these kinds from now on fail."""
        with self.lock:
            self._order = Order(frozenset(kinds), nth, full=full, once=once)

    def heal(self) -> list[int]:
        """Let no call fail any more; the times at which calls failed."""
        with self.lock:
            order, self._order = self._order, None
            return [] if order is None else order.fired

    def kill_at_step(self, nth: int) -> None:
        """Kill this process at the n-th step from now on."""
        with self.lock:
            self.steps, self._kill_at = 0, nth

    def start_recording(self) -> None:
        """Record changes from now on."""
        with self.lock:
            self.changes = []

    @property
    def length(self) -> int:
        """Return the number of recorded changes."""
        return len(self.changes or ())
