"""Writes goldens: only what was asked for, and each once in a run of pytest."""

from __future__ import annotations

import inspect
import tempfile
from dataclasses import replace
from pathlib import Path

from pytest_snapshot_db.compare import compare_files
from pytest_snapshot_db.copy_live import SIDE_FILES, copy_database, read_journal_mode
from pytest_snapshot_db.database import Database
from pytest_snapshot_db.diff_text import render, summarize
from pytest_snapshot_db.errors import GoldenError, TouchedError
from pytest_snapshot_db.golden import (
    Build,
    Golden,
    build_manifest,
    check_golden,
    lock,
    make_folder,
    name_builder,
    replace_golden,
    replace_manifest,
    write_canonical,
)
from pytest_snapshot_db.rules import Rules
from pytest_snapshot_db.session import Session


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
    make_folder(golden)
    with tempfile.TemporaryDirectory(dir=golden.folder, prefix=".writing-") as folder:
        fresh = Path(folder) / "fresh.db"
        write_canonical(obtained, fresh)
        manifest = build_manifest(fresh, journal_mode=journal_mode, builder=builder)
        with lock(golden, exclusive=True):
            kind, why = "new", ""
            if golden.exists():
                kind = "changed"
                try:
                    known = check_golden(golden, is_locked=True)
                    found = compare_files(golden.path, fresh, rules)
                except TouchedError:
                    why = "somebody had changed it"
                else:
                    if not found and manifest.builder in (None, known.builder):
                        return
                    if not found:
                        kept = replace(known, builder=manifest.builder, built_by=manifest.built_by)
                        replace_manifest(golden, fresh, kept)
                        why = "its builder changed, and builds the same"
                        session.record_write(golden, test, kind="kept", why=why)
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
        made, mode = _build_once(build, golden.name, Path(folder, "first"))
        again, _ = _build_once(build, golden.name, Path(folder, "second"))
        if difference := compare_files(made, again, limit=1):
            raise GoldenError(
                f"{name_builder(build)} does not build the same file each time, so nothing was"
                " written.\n"
                + "".join(f"  {line}\n" for line in render(difference))
                + "Give it fixed times, ids and seeds, and an order wherever it goes through a set."
            )
        write_golden(session, golden, made, journal_mode=mode, test=test, builder=build)
    session.rebuilt[golden.path] = build


def _build_once(build: Build, name: str, folder: Path) -> tuple[Path, str]:
    """Return what a builder makes, and its journal mode."""
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


def adopt_golden(session: Session, golden: Golden, test: str) -> None:
    """Make a golden of the file that somebody put in its place; the file is not changed."""
    with lock(golden, exclusive=True):
        if golden.exists():
            return
        beside = [Path(f"{golden.path}{end}") for end in SIDE_FILES]
        if left := " and ".join(path.name for path in beside if path.exists()):
            raise GoldenError(
                f"{golden.path} has {left} beside it: close whoever has it open, or merge them"
                f" first (sqlite3 {golden.path} 'PRAGMA wal_checkpoint(TRUNCATE)')"
            )
        mode = read_journal_mode(golden.path)
        replace_manifest(
            golden, golden.folder / ".writing-", build_manifest(golden.path, journal_mode=mode)
        )
        session.record_write(golden, test, kind="new", why="taken as it was")
