"""Writes goldens: only what was asked for, and each once in a run of pytest."""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_snapshot_db.compare import Difference, compare_files
from pytest_snapshot_db.copy_live import SIDE_FILES, clear_wal_mode, copy_database
from pytest_snapshot_db.database import Database
from pytest_snapshot_db.diff_text import name_first, summarize
from pytest_snapshot_db.errors import GoldenError, TouchedError
from pytest_snapshot_db.manifest import (
    Manifest,
    build_manifest,
    compute_digests,
    hash_builder,
    name_builder,
    read_manifest,
    write_manifest,
)
from pytest_snapshot_db.rules import Rules
from pytest_snapshot_db.session import Session
from pytest_snapshot_db.storage import (
    Golden,
    check_golden,
    lock,
    make_workspace,
    replace_golden,
    write_canonical,
)

Build = Callable[[Path], Any]

_described: dict[Path, Manifest] = {}


def compare_with_golden(
    golden: Golden, obtained: Path, rules: Rules | None = None, *, is_locked: bool = False
) -> Difference:
    """Compare a file with a golden, which must be as it was written."""
    manifest = check_golden(golden, is_locked=is_locked)
    if _described.get(golden.path) is not manifest:
        # A merge can combine two manifests so that the hash is right and the digests are not.
        with Database(golden.path) as database:
            if compute_digests(database) != manifest.tables:
                raise TouchedError(
                    f"{golden.manifest_path} does not describe {golden.path}: its digests of tables"
                    " are of another file. Bring both back from version control, or make them"
                    " again: pytest --snapshot-db-update-only=changed"
                )
        _described[golden.path] = manifest
    return compare_files(golden.path, obtained, rules)


def write_golden(
    session: Session,
    golden: Golden,
    obtained: Path,
    *,
    journal_mode: str,
    test: str,
    rules: Rules | None = None,
    builder: Build | None = None,
) -> None:
    """Make a file the golden; raise GoldenError if another test of this run made another one."""
    with Database(obtained) as database:
        if problems := database.find_problems():
            raise GoldenError(f"a damaged file is not made a golden: {problems[0]}")
    with make_workspace(golden) as workspace:
        fresh = workspace / "fresh.db"
        write_canonical(obtained, fresh)
        manifest = build_manifest(fresh, journal_mode=journal_mode, builder=builder)
        with lock(golden, exclusive=True):
            kind, why = "new", ""
            if golden.exists():
                kind = "changed"
                try:
                    found = compare_with_golden(golden, fresh, rules, is_locked=True)
                except TouchedError:
                    why = "somebody had changed it"
                else:
                    if not found:
                        return
                    why = summarize(found)
            if other := session.find_writer(golden):
                raise GoldenError(
                    f"{other} wrote another {golden.name!r} in this run: give one of the two"
                    f" another name.\n  {why}"
                )
            replace_golden(golden, fresh, manifest)
            session.record_write(golden, test, kind=kind, why=why)


def rebuild_golden(session: Session, golden: Golden, build: Build, test: str) -> None:
    """Build a golden again, once in each process; write it if it is missing or differs."""
    if session.rebuilt.get(golden.path) == build:
        return
    with tempfile.TemporaryDirectory(prefix="snapshot-db-build-") as folder:
        made, mode = _build_twice(build, golden.name, Path(folder))
        write_golden(session, golden, made, journal_mode=mode, test=test, builder=build)
    _update_builder(session, golden, build, test)
    session.rebuilt[golden.path] = build


def _build_twice(build: Build, name: str, folder: Path) -> tuple[Path, str]:
    """Return what a builder makes, and its journal mode; refuse two results that differ."""
    made, mode = _build_once(build, name, folder / "first")
    again, _ = _build_once(build, name, folder / "second")
    if difference := compare_files(made, again):
        raise GoldenError(
            f"{name_builder(build)} does not build the same file each time, so nothing was written."
            f"\n  {name_first(difference)}\n"
            "Give it fixed times, ids and seeds, and an order wherever it goes through a set."
        )
    return made, mode


def _build_once(build: Build, name: str, folder: Path) -> tuple[Path, str]:
    folder.mkdir()
    path = folder / f"{name}.db"
    result = build(path)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise GoldenError(
            f"{name_builder(build)} is async, and a builder is called: wrap it in asyncio.run"
        )
    if not path.exists():
        raise GoldenError(
            f"{name_builder(build)} made no file at the path that it was given: {path}"
        )
    made = folder / "copy.db"
    return made, copy_database(path, made)


def _update_builder(session: Session, golden: Golden, build: Build, test: str) -> None:
    """Note another builder that builds the same file in the manifest."""
    with lock(golden, exclusive=True):
        manifest = read_manifest(golden.manifest_path)
        digest = hash_builder(build)
        if digest in (None, manifest.builder):
            return
        with make_workspace(golden) as workspace:
            changed = replace(manifest, builder=digest, built_by=name_builder(build))
            write_manifest(changed, workspace / "changed.json")
            (workspace / "changed.json").replace(golden.manifest_path)
        why = "its builder changed, and builds the same"
        session.record_write(golden, test, kind="kept", why=why)


def adopt_golden(session: Session, golden: Golden, test: str) -> None:
    """Make a golden of the file that somebody put in its place; only its journal mode changes."""
    with make_workspace(golden) as workspace, lock(golden, exclusive=True):
        if golden.exists():
            return
        beside = [Path(f"{golden.path}{end}") for end in SIDE_FILES]
        if left := " and ".join(path.name for path in beside if path.exists()):
            raise GoldenError(
                f"{golden.path} has {left} beside it: close whoever has it open, or merge them"
                f" first (sqlite3 {golden.path} 'PRAGMA wal_checkpoint(TRUNCATE)')"
            )
        fresh = workspace / golden.path.name
        shutil.copyfile(golden.path, fresh)
        mode = clear_wal_mode(fresh)
        replace_golden(golden, fresh, build_manifest(fresh, journal_mode=mode))
        session.record_write(golden, test, kind="new", why="taken as it was")
