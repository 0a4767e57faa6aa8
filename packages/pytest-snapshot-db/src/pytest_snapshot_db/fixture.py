"""The `snapshot_db` that a test is given."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from pytest_snapshot_db.building import Build
from pytest_snapshot_db.comparing import Difference
from pytest_snapshot_db.errors import GoldenError, GoldenWarning
from pytest_snapshot_db.keeping import (
    NAME_CHARS_MAX,
    Golden,
    canonical,
    copy_out,
    forget_obtained,
    golden_of,
    taken,
)
from pytest_snapshot_db.manifest import digest_of, name_of
from pytest_snapshot_db.rules import Replacement, Rules, rules_of
from pytest_snapshot_db.run import Run
from pytest_snapshot_db.telling import Line, lines_of, made_up_keys, suspects, text_of, visible
from pytest_snapshot_db.updating import adopt, difference, rebuild, write

VARIABLE: Final = "INDELIBLE_SNAPSHOT_DB"


class Asking(NamedTuple):
    """The test that asks."""

    name: str
    node_id: str
    module: Path
    command: str
    """Runs this test alone."""


class SnapshotDb:
    """Goldens for one test: `snapshot_db(name, build=…)` copies one out, `assert_matches` compares.

    A golden is a SQLite file that a test never changes. `pytest --snapshot-db-update` writes it.
    """

    def __init__(self, run: Run, test: Asking, make_folder: Callable[[], Path]) -> None:
        self._run = run
        self._test = test
        self._make_folder = make_folder
        self._folder: Path | None = None
        self._path: Path | None = None
        self._opened: list[sqlite3.Connection] = []
        self._variable = os.environ.get(VARIABLE)

    def __call__(self, name: str, *, build: Build | None = None) -> Path:
        """A private, writable copy of the golden `name`, which `build(path)` makes when asked to.

        Only a path is handed out, so that threads, processes and other languages can use it. It
        stands in the environment as INDELIBLE_SNAPSHOT_DB, too.
        """
        __tracebackhide__ = True
        try:
            return self._copy_of(name, build)
        except GoldenError as error:
            said = str(error)
        pytest.fail(said)

    @property
    def path(self) -> Path:
        """The file of this test: the copy that it was given last, or else a file that is to be."""
        return self._path or self._handed_out(self._new_path(_as_name(self._test.name)))

    def connect(
        self, path: str | os.PathLike[str] | None = None, **options: Any
    ) -> sqlite3.Connection:
        """A `sqlite3` connection to the file of this test, or to another; closed after the test."""
        connection: sqlite3.Connection = sqlite3.connect(
            self.path if path is None else path, **options
        )
        self._opened.append(connection)
        return connection

    def assert_matches(
        self,
        name: str | None = None,
        path: str | os.PathLike[str] | None = None,
        *,
        ignore: Collection[str] = (),
        replace: Mapping[str, Replacement] | None = None,
    ) -> None:
        """Hold a whole file against the golden `name`: schema, every row, header, integrity.

        Without `path` it is the file of this test; without a name, the golden is called like the
        test. What is seen is what a new process would see: committed, and no more. `ignore` names
        columns (`table.column`, `table.*`, and `table.rowid` for the order of rows); `replace`
        gives a column's values a placeholder, the same for the same value, also where another
        column refers to it.
        """
        __tracebackhide__ = True
        try:
            self._compare(
                golden_of(self._test.module, _as_name(self._test.name) if name is None else name),
                self.path if path is None else Path(path),
                rules_of(ignore, replace),
            )
        except GoldenError as error:
            said = str(error)
        else:
            return
        pytest.fail(said)

    def close(self, *, keep: bool) -> None:
        """After the test: close what was opened, and remove the copies unless they are wanted."""
        for connection in self._opened:
            with suppress(sqlite3.Error):
                connection.close()
        if self._path is not None:
            if self._variable is None:
                os.environ.pop(VARIABLE, None)
            else:
                os.environ[VARIABLE] = self._variable
        if self._folder is not None and not keep:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _copy_of(self, name: str, build: Build | None) -> Path:
        golden = golden_of(self._test.module, name)
        self._adopted(golden)
        update = self._run.update
        if build is not None and (update.replaces if golden.exists() else update.makes):
            rebuild(self._run, golden, build, self._test.node_id)
        if not golden.exists():
            raise self._missing(golden, can_be_made=build is not None)
        path = self._new_path(name)
        manifest = copy_out(golden, path)
        self._run.use(golden, self._test.node_id)
        if build is not None and manifest.builder is not None:
            self._mind_builder(golden, build, manifest.builder)
        return self._handed_out(path)

    def _compare(self, golden: Golden, path: Path, rules: Rules) -> None:
        with tempfile.TemporaryDirectory(prefix="snapshot-db-compare-") as folder:
            obtained = Path(folder) / "obtained.db"
            mode = taken(path, obtained)
            self._adopted(golden)
            update = self._run.update
            if update.replaces if golden.exists() else update.makes:
                test = self._test.node_id
                write(self._run, golden, obtained, journal_mode=mode, test=test, rules=rules)
            if not golden.exists():
                raise self._missing(golden, can_be_made=True)
            if found := difference(golden, obtained, rules):
                raise self._different(golden, found, obtained)
        forget_obtained(golden)
        self._run.use(golden, self._test.node_id)

    def _adopted(self, golden: Golden) -> None:
        """A file without a manifest was put there by hand: taken if asked for, never replaced."""
        if golden.path.exists() and not golden.manifest_path.exists():
            if not self._run.update.makes:
                raise GoldenError(
                    f"{self._shown(golden.path)} has no manifest yet. To take it as it is:\n"
                    f"  {self._test.command} --snapshot-db-update-only=new"
                )
            adopt(self._run, golden, self._test.node_id)

    def _new_path(self, name: str) -> Path:
        if self._folder is None:
            self._folder = self._make_folder()
        path, number = self._folder / f"{name}.db", 1
        while path.exists():
            number += 1
            path = self._folder / f"{name}-{number}.db"
        return path

    def _handed_out(self, path: Path) -> Path:
        self._path = path
        os.environ[VARIABLE] = str(path)
        return path

    def _mind_builder(self, golden: Golden, build: Build, known: str) -> None:
        if digest_of(build) not in (None, known):
            warnings.warn(
                f"{name_of(build)} has changed since it built {self._shown(golden.path)}. To see"
                f" whether it still builds the same: {self._test.command} --snapshot-db-update",
                GoldenWarning,
                stacklevel=4,
            )

    def _missing(self, golden: Golden, *, can_be_made: bool) -> GoldenError:
        lines = [f"There is no golden {golden.name!r} yet: {self._shown(golden.path)}"]
        if can_be_made:
            lines += ["Make it, look at it, and commit it:"]
            lines += [f"  {self._test.command} --snapshot-db-update-only=new"]
        else:
            lines += ["Nothing says how to make it: give a build=, or put a database file there."]
        return GoldenError("\n".join(lines))

    def _different(self, golden: Golden, found: Difference, obtained: Path) -> GoldenError:
        expected = self._shown(golden.path)
        other = self._shown(self._keep(golden, obtained))
        both = shlex.join((expected, other))
        lines = [
            Line(f"The database does not match the golden {golden.name!r}."),
            *lines_of(found),
            Line(""),
            Line(f"expected: {expected}"),
            Line(f"obtained: {other}"),
            Line(f"all of it: snapshot-db diff {both}"),
            Line(f"if it is right: {self._test.command} --snapshot-db-update"),
            *self._hints(found),
        ]
        return GoldenError(text_of(lines, colour=self._run.colour))

    def _hints(self, found: Difference) -> Iterator[Line]:
        if names := suspects(found):
            said = ", ".join(f'"{visible(name)}"' for name in names)
            yield Line(f"if it differs in every run: ignore={{{said}}}")
        if keys := made_up_keys(found):
            said = ", ".join(f'"{visible(name)}": "<id>"' for name in keys)
            yield Line(f"if ids differ in every run: replace={{{said}}}")
        for connection in self._opened:
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    yield Line("note: a connection of this test has not committed what it wrote")
                    return

    def _keep(self, golden: Golden, obtained: Path) -> Path:
        """Put what was obtained beside the golden; where that cannot be, with the test's files."""
        try:
            fresh = golden.obtained_path.with_suffix(f".{os.getpid()}")
            canonical(obtained, fresh)
            fresh.replace(golden.obtained_path)
        except (OSError, GoldenError):
            path = self._new_path(golden.obtained_path.stem)
            shutil.copyfile(obtained, path)
            return path
        return golden.obtained_path

    def _shown(self, path: Path) -> str:
        """A path as a person types it who stands where this run was begun."""
        return str(
            path.relative_to(self._run.root) if path.is_relative_to(self._run.root) else path
        )


def _as_name(test: str) -> str:
    """The name of a test as one of a golden."""
    return re.sub(r"[^\w\-\[\]=,+.]", "_", test)[:NAME_CHARS_MAX]
