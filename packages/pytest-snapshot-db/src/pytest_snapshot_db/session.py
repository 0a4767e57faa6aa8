"""The goldens of one run of pytest, in all of its processes: which were used, touched and written.

Each process appends records to a file of its own in a shared folder; the process that started the
run reads them at its end. The folder exists only if a golden was used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_snapshot_db.compare import compare_files
from pytest_snapshot_db.copy_live import copy_database
from pytest_snapshot_db.database import Database
from pytest_snapshot_db.errors import GoldenError, TouchedError
from pytest_snapshot_db.golden import (
    Build,
    Golden,
    Manifest,
    build_manifest,
    hash_file,
    name_builder,
    read_manifest,
    stat_file,
    write_canonical,
)
from pytest_snapshot_db.rules import Rules

# Records of goldens that were written.
WRITES: Final = ("new", "changed", "kept")


@dataclass(slots=True)
class Session:
    """One process of a run. It writes only what was asked for, and each golden once."""

    folder: Path
    worker: str
    root: Path
    """Where the run was started."""
    update: frozenset[str]
    """The goldens that this run may write: those that are `new`, those that `changed`, or both."""
    _rebuilt: dict[Path, Build] = field(default_factory=dict)
    _seen: dict[Path, tuple[int, ...]] = field(default_factory=dict)

    def may_write(self, golden: Golden) -> bool:
        """Whether a golden may be created if it is missing, or replaced if it exists."""
        return ("changed" if golden.exists() else "new") in self.update

    def record_use(self, golden: Golden, test: str) -> None:
        """Record that a test was given a golden, or was compared with it."""
        self._seen.setdefault(golden.path, stat_file(golden.path))
        self._record("used", golden.path, test)

    def record_touched(self, test: str) -> None:
        """After a test, record the goldens that were written to since the last one."""
        for path, before in self._seen.items():
            try:
                now = stat_file(path)
            except OSError:
                now = ()
            if now != before:
                self._seen[path] = now
                self._record("touched", path, test)

    def _record_write(self, kind: str, golden: Golden, test: str, why: str) -> None:
        self._seen[golden.path] = stat_file(golden.path)
        self._record(kind, golden.path, test, why=why)
        self._get_writer_path(golden).write_text(test, "utf-8")

    def _get_writer_path(self, golden: Golden) -> Path:
        return self.folder / hashlib.sha256(os.fsencode(golden.path)).hexdigest()

    def find_writer(self, golden: Golden) -> str | None:
        """Return the test that wrote this golden in this run, if one did."""
        try:
            return self._get_writer_path(golden).read_text("utf-8")
        except FileNotFoundError:
            return None

    def _record(self, kind: str, path: Path, test: str, **more: str) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        line = json.dumps({"kind": kind, "golden": str(path), "test": test, **more})
        with (self.folder / f"{self.worker}.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def rebuild(self, golden: Golden, build: Build, test: str) -> None:
        """Build a golden again, once in each process; write it if it is missing or differs."""
        if self._rebuilt.get(golden.path) == build:
            return
        with tempfile.TemporaryDirectory(prefix="snapshot-db-build-") as folder:
            made, mode = _build_once(build, golden.name, Path(folder, "first"))
            again, _ = _build_once(build, golden.name, Path(folder, "second"))
            if difference := compare_files(made, again, limit=1):
                raise GoldenError(
                    f"{name_builder(build)} does not build the same file each time, so nothing was"
                    " written.\n"
                    + "".join(f"  {line}\n" for line in difference.lines)
                    + "Give it fixed times, ids and seeds, and an order wherever it goes through a"
                    " set."
                )
            self.write(golden, made, mode, test, builder=build)
        self._rebuilt[golden.path] = build

    def write(
        self,
        golden: Golden,
        obtained: Path,
        journal_mode: str,
        test: str,
        *,
        rules: Rules | None = None,
        builder: Build | None = None,
    ) -> None:
        """Make a file the golden; raise GoldenError if another test of this run made another."""
        with Database(obtained) as database:
            if problems := database.find_problems():
                raise GoldenError(f"a damaged file is not made a golden: {problems[0]}")
            if not database.read_schema():
                raise GoldenError("the database is empty: nothing was written to it")
        with golden.stage() as staging:
            fresh = staging / "fresh.db"
            write_canonical(obtained, fresh)
            manifest = build_manifest(fresh, journal_mode=journal_mode, builder=builder)
            with golden.lock(exclusive=True):
                kind, why = _find_change(golden, fresh, manifest, rules)
                if kind == "same":
                    return
                if kind == "kept":
                    by = {name: manifest[name] for name in ("builder", "built_by")}
                    golden.replace_manifest(golden.check() | by, staging)
                elif other := self.find_writer(golden):
                    raise GoldenError(
                        f"{other} wrote another {golden.name!r} in this run: give one of the two"
                        f" another name.\n  {why}"
                    )
                else:
                    golden.replace(fresh, manifest)
                self._record_write(kind, golden, test, why)


def _find_change(
    golden: Golden, fresh: Path, manifest: Manifest, rules: Rules | None
) -> tuple[str, str]:
    """Return the kind of write that would make a file the golden, and its reason."""
    if not golden.exists():
        return "new", ""
    try:
        known = golden.check()
    except TouchedError:
        return "changed", "somebody had changed it"
    if found := compare_files(golden.path, fresh, rules):
        return "changed", ", ".join(found.summary)
    if manifest["builder"] in (None, known["builder"]):
        return "same", ""
    return "kept", "its builder changed, and builds the same"


def _build_once(build: Build, name: str, folder: Path) -> tuple[Path, str]:
    """Return what a builder makes, and its journal mode."""
    folder.mkdir()
    path = folder / f"{name}.db"
    build(path)
    if not path.exists():
        raise GoldenError(
            f"{name_builder(build)} made no file at the path that it was given: {path}"
        )
    made = folder / "copy.db"
    return made, copy_database(path, made)


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
        return None if hash_file(path) == manifest["sha256"] else "its bytes were changed"
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
