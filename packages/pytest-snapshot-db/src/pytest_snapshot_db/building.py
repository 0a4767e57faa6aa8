"""Runs a builder twice: a golden that cannot be made again is no golden."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_snapshot_db.comparing import compare
from pytest_snapshot_db.errors import GoldenError
from pytest_snapshot_db.keeping import taken
from pytest_snapshot_db.manifest import name_of
from pytest_snapshot_db.reading import Database
from pytest_snapshot_db.telling import first_cell

Build = Callable[[Path], Any]


def built(build: Build, name: str, bench: Path) -> tuple[Path, str]:
    """What the builder makes, and its journal mode; refused if that is not the same each time."""
    made, mode = _once(build, name, bench / "first")
    again, _ = _once(build, name, bench / "second")
    with Database(made) as one, Database(again) as two:
        difference = compare(one, two)
    if difference:
        raise GoldenError(
            f"{name_of(build)} does not build the same file each time, so nothing was written."
            f"\n  {first_cell(difference)}\n"
            "Give it fixed times, ids and seeds, and an order wherever it goes through a set."
        )
    return made, mode


def _once(build: Build, name: str, folder: Path) -> tuple[Path, str]:
    folder.mkdir()
    path = folder / f"{name}.db"
    result = build(path)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise GoldenError(
            f"{name_of(build)} is async, and a builder is called: wrap it in asyncio.run"
        )
    if not path.exists():
        raise GoldenError(f"{name_of(build)} made no file at the path that it was given: {path}")
    made = folder / "taken.db"
    return made, taken(path, made)
