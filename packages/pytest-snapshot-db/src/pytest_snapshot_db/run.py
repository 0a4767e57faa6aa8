"""What one run of pytest knows of its goldens, in all of its processes.

Workers of xdist write what happens into files of one folder, and the process that began the run
reads them at its end. The folder is there only if a golden was used.
"""

from __future__ import annotations

import enum
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_snapshot_db.keeping import Golden
from pytest_snapshot_db.manifest import signature


class Update(enum.Enum):
    """Which goldens this run may write."""

    NONE = enum.auto()
    ALL = enum.auto()
    NEW = enum.auto()
    CHANGED = enum.auto()

    @property
    def makes(self) -> bool:
        """Whether those that are missing are written."""
        return self in (Update.ALL, Update.NEW)

    @property
    def replaces(self) -> bool:
        """Whether those that differ are written."""
        return self in (Update.ALL, Update.CHANGED)


@dataclass(slots=True)
class Run:
    """One process of a run."""

    folder: Path
    update: Update
    worker: str
    root: Path
    colour: bool = False
    confirmed: dict[Path, Callable[..., Any]] = field(default_factory=dict)
    """Goldens that were built anew in this process, and by what."""
    _seen: dict[Path, tuple[int, ...]] = field(default_factory=dict)

    def note(self, kind: str, **said: Any) -> None:
        """Write down what happened, for the end of the run."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        line = json.dumps({"kind": kind, "worker": self.worker, **said})
        with (self.folder / f"{self.worker}.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def use(self, golden: Golden, test: str) -> None:
        """A test has been given this golden, or was held against it."""
        self._seen.setdefault(golden.path, signature(golden.path))
        self.note("used", golden=str(golden.path), test=test)

    def look(self, test: str) -> None:
        """After each test, note the goldens that do not look as they did."""
        for path, before in self._seen.items():
            try:
                now = signature(path)
            except OSError:
                now = ()
            if now != before:
                self._seen[path] = now
                self.note("seen", golden=str(path), test=test)

    def wrote(self, golden: Golden, test: str, *, kind: str, why: str) -> None:
        """This run has written a golden: what it looks like from now on is right."""
        self._seen[golden.path] = signature(golden.path)
        self.note(kind, golden=str(golden.path), test=test, why=why)
        self._mark(golden).write_text(test, "utf-8")

    def writer(self, golden: Golden) -> str | None:
        """The test that wrote this golden in this run, if one did."""
        try:
            return self._mark(golden).read_text("utf-8")
        except OSError:
            return None

    def _mark(self, golden: Golden) -> Path:
        name = hashlib.sha256(str(golden.path).encode()).hexdigest()[:32]
        return self.folder / f"{name}.written"


def notes(folder: Path) -> Iterator[dict[str, Any]]:
    """Everything that the processes of a run wrote down."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                # A worker that was killed may have ended in the middle of its last line.
                continue


def forget(folder: Path) -> None:
    """Remove what the processes of a run shared."""
    shutil.rmtree(folder, ignore_errors=True)
