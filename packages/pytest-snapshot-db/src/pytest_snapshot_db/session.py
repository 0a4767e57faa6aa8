"""One run of pytest and its goldens, in all of its processes.

Workers of xdist write what happens into files of one folder, and the process that started the run
reads them at its end. The folder exists only if a golden was used.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_snapshot_db.errors import GoldenError
from pytest_snapshot_db.golden import Build, Golden, hash_file, read_manifest, stat_file

# Records of goldens that were written.
WRITES: Final = ("new", "changed", "kept")


@dataclass(slots=True)
class Session:
    """One process of a run."""

    folder: Path
    worker: str
    root: Path
    """Where the run was started."""
    update: frozenset[str]
    """What this run may write: goldens that are `new`, and such as `changed`."""
    rebuilt: dict[Path, Build] = field(default_factory=dict)
    """Goldens that were built again in this process, and by which function."""
    _seen: dict[Path, tuple[int, ...]] = field(default_factory=dict)

    def may_write(self, golden: Golden) -> bool:
        """Whether a golden may be written: made if it is missing, replaced if it differs."""
        return ("changed" if golden.exists() else "new") in self.update

    def record_use(self, golden: Golden, test: str) -> None:
        """Write down that a test was given a golden, or was compared with it."""
        self._seen.setdefault(golden.path, stat_file(golden.path))
        self._record("used", golden.path, test)

    def record_touched(self, test: str) -> None:
        """After each test, write down the goldens that somebody wrote to."""
        for path, before in self._seen.items():
            try:
                now = stat_file(path)
            except OSError:
                now = ()
            if now != before:
                self._seen[path] = now
                self._record("touched", path, test)

    def record_write(self, golden: Golden, test: str, *, kind: str, why: str) -> None:
        """Write down that this run has written a golden."""
        self._seen[golden.path] = stat_file(golden.path)
        self._record(kind, golden.path, test, why=why)

    def _record(self, kind: str, path: Path, test: str, **more: str) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        line = json.dumps({"kind": kind, "golden": str(path), "test": test, **more})
        with (self.folder / f"{self.worker}.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def find_writer(self, golden: Golden) -> str | None:
        """Return the test that wrote this golden in this run, if one did."""
        for each in _read_records(self.folder):
            if each["kind"] in WRITES and each["golden"] == str(golden.path):
                return str(each["test"])
        return None


def start_session(config: pytest.Config, folder: Path, update: frozenset[str]) -> Session:
    """Return this process's part in the run."""
    worker = getattr(config, "workerinput", {}).get("workerid", "main")
    return Session(folder, worker, Path(config.invocation_params.dir), update)


def end_session(folder: Path, root: Path) -> tuple[list[str], list[str]]:
    """Report which goldens were touched, and which were written; remove the folder."""
    records = list(_read_records(folder))
    shutil.rmtree(folder, ignore_errors=True)
    return list(_report_touched(records, root)), list(_report_written(records, root))


def _read_records(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                # A worker that was killed may have written half a line.
                continue


def _report_touched(records: list[dict[str, Any]], root: Path) -> Iterator[str]:
    for path in sorted({Path(each["golden"]) for each in records if each["kind"] == "used"}):
        problem = _find_problem(path)
        if problem is None:
            continue
        touched = (each for each in records if each["kind"] == "touched")
        tests = [each["test"] for each in touched if each["golden"] == str(path)]
        shown = shorten_path(path, root)
        yield f"TOUCHED {shown}: {problem}"
        if len(tests) == 1:
            yield f"  by {tests[0]}"
        elif tests:
            yield "  by one of these, which ran at the time:"
            yield from (f"    {test}" for test in tests)
        yield (
            "  A golden is never written by a test. Bring it back:"
            f" git checkout -- {shlex.quote(shown)}"
        )


def _find_problem(path: Path) -> str | None:
    try:
        manifest = read_manifest(path.with_suffix(".json"))
        return None if hash_file(path) == manifest.sha256 else "its bytes were changed"
    except (GoldenError, OSError) as error:
        return "it is gone" if not path.exists() else f"its manifest was changed: {error}"


def _report_written(records: list[dict[str, Any]], root: Path) -> Iterator[str]:
    for each in records:
        if each["kind"] in WRITES:
            why = f" ({each['why']})" if each["why"] else ""
            yield f"{each['kind']:8}{shorten_path(Path(each['golden']), root)}{why}"
            yield f"        by {each['test']}"


def shorten_path(path: Path, root: Path) -> str:
    """Return a path as seen from `root`, if it is below it."""
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
