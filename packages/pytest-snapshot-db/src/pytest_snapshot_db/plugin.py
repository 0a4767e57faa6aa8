"""Joins goldens to pytest: what the entry point calls once a test asks for `snapshot_db`."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_snapshot_db.ending import End, end_of
from pytest_snapshot_db.fixture import Asking, SnapshotDb
from pytest_snapshot_db.run import Run, Update


def update_of(config: pytest.Config) -> Update:
    """What the command line lets this run write."""
    only = config.getoption("snapshot_db_update_only")
    if only is not None:
        return Update.NEW if only == "new" else Update.CHANGED
    # Whoever owns the shared flag: it is on, or it is not.
    shared = bool(config.getoption("--snapshot-update", default=False))
    asked = config.getoption("snapshot_db_update") or shared
    return Update.ALL if asked else Update.NONE


def begun(config: pytest.Config, folder: Path, *, colour: bool) -> Run:
    """This process's part in the run."""
    worker = getattr(config, "workerinput", {}).get("workerid", "main")
    return Run(
        folder=folder,
        update=update_of(config),
        worker=worker,
        root=Path(config.invocation_params.dir),
        colour=colour,
    )


def given(
    run: Run,
    request: pytest.FixtureRequest,
    factory: pytest.TempPathFactory,
    passed: Callable[[], bool],
) -> Iterator[SnapshotDb]:
    """The fixture's value, for as long as its test lasts."""
    node = request.node
    module = Path(node.path)
    rest = node.nodeid.partition("::")[2]
    here = os.path.relpath(module, run.root)
    test = Asking(
        name=node.name,
        node_id=node.nodeid,
        module=module,
        command=f"pytest {shlex.quote(f'{here}::{rest}' if rest else here)}",
    )

    def make_folder() -> Path:
        return factory.mktemp("snapshot_db")

    made = SnapshotDb(run, test, make_folder)
    try:
        yield made
    finally:
        made.close(keep=not passed())


def tell_what_ran(
    run: Run, session: pytest.Session, passed: dict[Path, set[str]], partly: set[Path]
) -> None:
    """For the record of which goldens are used: whether all tests of a module ran."""
    root = session.config.rootpath

    def named(path: Path) -> str:
        return str(path.relative_to(root) if path.is_relative_to(root) else path)

    by_id = {
        Path(session.config.invocation_params.dir, each.partition("::")[0]).resolve()
        for each in session.config.args
        if "::" in each
    }
    only_failed = session.config.getoption("lf", default=False)
    collected = Counter(named(item.path) for item in session.items)
    run.note(
        "ran",
        collected=collected,
        passed={named(path): sorted(tests) for path, tests in passed.items()},
        partly=list(collected) if only_failed else [named(each) for each in {*partly, *by_id}],
    )


def ended(session: pytest.Session, folder: Path) -> End:
    """At the end of the whole run."""
    return end_of(folder, session.config.rootpath, getattr(session.config, "cache", None))
