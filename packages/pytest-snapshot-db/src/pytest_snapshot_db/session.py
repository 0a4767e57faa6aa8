"""One run of pytest and its goldens, in all of its processes.

Workers of xdist write what happens into files of one folder, and the process that started the run
reads them at its end. The folder exists only if a golden was used.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_snapshot_db.manifest import stat_file
from pytest_snapshot_db.storage import Golden

# Records of goldens that were written.
WRITES: Final = ("new", "changed", "kept")


class Update(enum.Enum):
    """Which goldens this run may write."""

    NONE = enum.auto()
    ALL = enum.auto()
    NEW = enum.auto()
    CHANGED = enum.auto()

    def allows(self, golden: Golden) -> bool:
        """Whether a golden may be written: made if it is missing, replaced if it differs."""
        return self in (Update.ALL, Update.CHANGED if golden.exists() else Update.NEW)


def parse_update(config: pytest.Config) -> Update:
    """Return what the command line lets this run write."""
    only = config.getoption("snapshot_db_update_only")
    if only is not None:
        return Update.NEW if only == "new" else Update.CHANGED
    return Update.ALL if config.getoption("snapshot_db_update") else Update.NONE


@dataclass(slots=True)
class Session:
    """One process of a run."""

    folder: Path
    update: Update
    worker: str
    root: Path
    """Where the run was started."""
    colour: bool = False
    rebuilt: dict[Path, Callable[..., Any]] = field(default_factory=dict)
    """Goldens that were built again in this process, and by which function."""
    _seen: dict[Path, tuple[int, ...]] = field(default_factory=dict)

    def record(self, kind: str, **values: Any) -> None:
        """Write down what happened, for the end of the run."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        with (self.folder / f"{self.worker}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **values}) + "\n")

    def record_use(self, golden: Golden, test: str) -> None:
        """Write down that a test was given a golden, or was compared with it."""
        self._seen.setdefault(golden.path, stat_file(golden.path))
        self.record("used", golden=str(golden.path), test=test)

    def record_touched(self, test: str) -> None:
        """After each test, write down the goldens that somebody wrote to."""
        for path, before in self._seen.items():
            try:
                now = stat_file(path)
            except OSError:
                now = ()
            if now != before:
                self._seen[path] = now
                self.record("seen", golden=str(path), test=test)

    def record_write(self, golden: Golden, test: str, *, kind: str, why: str) -> None:
        """Write down that this run has written a golden."""
        self._seen[golden.path] = stat_file(golden.path)
        self.record(kind, golden=str(golden.path), test=test, why=why)
        self._get_writer_file(golden).write_text(test, "utf-8")

    def find_writer(self, golden: Golden) -> str | None:
        """Return the test that wrote this golden in this run, if one did."""
        try:
            return self._get_writer_file(golden).read_text("utf-8")
        except OSError:
            return None

    def _get_writer_file(self, golden: Golden) -> Path:
        name = hashlib.sha256(str(golden.path).encode()).hexdigest()[:32]
        return self.folder / f"{name}.written"

    def record_tests(
        self, session: pytest.Session, passed: dict[Path, set[str]], partial: set[Path]
    ) -> None:
        """Write down of which modules all tests ran; `partial` are those with deselected ones."""
        config = session.config
        collected = Counter(shorten_path(item.path, config.rootpath) for item in session.items)
        # Modules of which single tests were named on the command line.
        named = {
            Path(config.invocation_params.dir, argument.partition("::")[0]).resolve()
            for argument in config.args
            if "::" in argument
        }
        incomplete = [shorten_path(path, config.rootpath) for path in {*partial, *named}]
        self.record(
            "ran",
            collected=collected,
            passed={shorten_path(p, config.rootpath): sorted(ids) for p, ids in passed.items()},
            partly=list(collected) if config.getoption("lf", default=False) else incomplete,
        )


def start_session(config: pytest.Config, folder: Path, *, colour: bool) -> Session:
    """Return this process's part in the run."""
    return Session(
        folder=folder,
        update=parse_update(config),
        worker=getattr(config, "workerinput", {}).get("workerid", "main"),
        root=Path(config.invocation_params.dir),
        colour=colour,
    )


def read_records(folder: Path) -> Iterator[dict[str, Any]]:
    """Read everything that the processes of a run wrote down."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                # A worker that was killed may have written half a line.
                continue


def shorten_path(path: Path, root: Path) -> str:
    """Return a path as seen from `root`, if it is below it."""
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
