"""Writes goldens: only what was asked for, once in a run, and all at once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_snapshot_db import manifest as manifests
from pytest_snapshot_db.building import Build, built
from pytest_snapshot_db.comparing import Difference, compare
from pytest_snapshot_db.errors import GoldenError, TouchedError
from pytest_snapshot_db.keeping import (
    Golden,
    adopted,
    canonical,
    checked,
    locked,
    put,
    workbench,
)
from pytest_snapshot_db.manifest import Manifest, digest_of, manifest_of, name_of
from pytest_snapshot_db.reading import Database
from pytest_snapshot_db.rules import Rules
from pytest_snapshot_db.run import Run
from pytest_snapshot_db.telling import in_short


def difference(
    golden: Golden, obtained: Path, rules: Rules | None = None, *, locked_already: bool = False
) -> Difference:
    """How a file differs from a golden that is there and whole."""
    known = checked(golden, locked_already=locked_already)
    with Database(golden.path) as expected, Database(obtained) as other:
        _ensure_tallies(golden, known, expected)
        return compare(expected, other, rules, known=dict(known.tables))


_tallied: dict[Path, Manifest] = {}


def _ensure_tallies(golden: Golden, known: Manifest, expected: Database) -> None:
    """Refuse a manifest whose digests are not those of its file, looking once in each process.

    Two sides of a merge can be put together so that its hash is right and its digests are not.
    """
    if _tallied.get(golden.path) is known:
        return
    found = {table.name: expected.tally(table) for table in expected.tables.values()}
    if found != known.tables:
        raise TouchedError(
            f"{golden.manifest_path} does not describe {golden.path}: its digests of tables are of"
            " another file. Bring both back from version control, or make them again:"
            " pytest --snapshot-db-update-only=changed"
        )
    _tallied[golden.path] = known


def write(
    run: Run,
    golden: Golden,
    obtained: Path,
    *,
    journal_mode: str,
    test: str,
    rules: Rules | None = None,
    builder: Callable[..., Any] | None = None,
) -> None:
    """Make a file the golden, unless another test of this run made a different one of it."""
    with Database(obtained) as database:
        if problems := database.problems():
            raise GoldenError(f"a damaged file is not made a golden: {problems[0]}")
    with workbench(golden) as bench:
        fresh = bench / "fresh.db"
        canonical(obtained, fresh)
        manifest = manifest_of(fresh, journal_mode=journal_mode, builder=builder)
        with locked(golden, exclusive=True):
            kind, why = _what_is_there(golden, fresh, rules)
            if kind == "same":
                return
            if other := run.writer(golden):
                raise GoldenError(
                    f"{other} wrote another {golden.name!r} in this run: give one of the two"
                    f" another name.\n  {why}"
                )
            put(golden, fresh, manifest)
            run.wrote(golden, test, kind=kind, why=why)


def _what_is_there(golden: Golden, fresh: Path, rules: Rules | None) -> tuple[str, str]:
    """Whether a golden is new, changed or the same, and how it changed; its folder is locked."""
    if not golden.exists():
        return "new", ""
    try:
        found = difference(golden, fresh, rules, locked_already=True)
    except TouchedError:
        return "changed", "somebody had changed it"
    return ("changed", in_short(found)) if found else ("same", "")


def rebuild(run: Run, golden: Golden, build: Build, test: str) -> None:
    """Build a golden anew; written if it is missing or differs, at most once in a process."""
    if run.confirmed.get(golden.path) == build:
        return
    with tempfile.TemporaryDirectory(prefix="snapshot-db-build-") as folder:
        made, mode = built(build, golden.name, Path(folder))
        write(run, golden, made, journal_mode=mode, test=test, builder=build)
    _sign(run, golden, build, test)
    run.confirmed[golden.path] = build


def _sign(run: Run, golden: Golden, build: Build, test: str) -> None:
    """Another builder builds the same file: its manifest says so, and the file stays as it is."""
    with locked(golden, exclusive=True):
        known = manifests.read(golden.manifest_path)
        if digest_of(build) in (None, known.builder):
            return
        signed = replace(known, builder=digest_of(build), built_by=name_of(build))
        with workbench(golden) as bench:
            manifests.write(signed, bench / "signed.json")
            (bench / "signed.json").replace(golden.manifest_path)
        run.wrote(golden, test, kind="signed", why="its builder changed, and builds the same")


def adopt(run: Run, golden: Golden, test: str) -> None:
    """Take a file that somebody put where a golden belongs, with its very bytes."""
    with workbench(golden) as bench, locked(golden, exclusive=True):
        if golden.exists():
            return
        mode = adopted(golden, bench)
        fresh = bench / golden.path.name
        put(golden, fresh, manifest_of(fresh, journal_mode=mode))
        run.wrote(golden, test, kind="new", why="taken as it was")
