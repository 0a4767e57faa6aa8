"""The value of the fixture `snapshot_db`."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_snapshot_db.cell_text import suggest_ignore
from pytest_snapshot_db.compare import Difference, compare_files
from pytest_snapshot_db.copy_live import copy_database
from pytest_snapshot_db.errors import GoldenError, GoldenWarning
from pytest_snapshot_db.golden import (
    NAME_BYTES_MAX,
    Build,
    Golden,
    find_golden,
    hash_builder,
    name_builder,
)
from pytest_snapshot_db.rules import Ignored, Rules, parse_rules
from pytest_snapshot_db.session import Session, shorten_path

VARIABLE: Final = "INDELIBLE_SNAPSHOT_DB"


class SnapshotDb:
    """Goldens for one test: `snapshot_db(name, build=…)` copies one, `assert_matches` compares.

    A golden is a SQLite file that a test never changes. `pytest --snapshot-db-update` writes it.
    """

    def __init__(
        self, session: Session, test: pytest.Item, make_folder: Callable[[], Path]
    ) -> None:
        self._session = session
        self._test = test
        self._make_folder = make_folder
        self._folder: Path | None = None
        self._path: Path | None = None
        self._connections: list[sqlite3.Connection] = []
        self._environment = pytest.MonkeyPatch()

    def __call__(self, name: str, *, build: Build | None = None) -> Path:
        """Return a private, writable copy of the golden `name`, which `build(path)` makes.

        Threads, processes and other languages can use the path. It is also in the environment, as
        INDELIBLE_SNAPSHOT_DB.
        """
        __tracebackhide__ = True
        try:
            return self._copy(name, build)
        except GoldenError as error:
            raise pytest.fail.Exception(str(error)) from None

    @property
    def path(self) -> Path:
        """The file of this test: its latest copy of a golden, or a new path."""
        return self._path or self._set_path(self._find_free_path(_to_name(self._test)))

    def connect(
        self, path: str | os.PathLike[str] | None = None, **options: Any
    ) -> sqlite3.Connection:
        """Connect `sqlite3` to the file of this test, or to another; closed after the test."""
        connection: sqlite3.Connection = sqlite3.connect(
            self.path if path is None else path, **options
        )
        self._connections.append(connection)
        return connection

    def assert_matches(
        self,
        name: str | None = None,
        path: str | os.PathLike[str] | None = None,
        *,
        ignore: Ignored = (),
    ) -> None:
        """Compare a whole file with the golden `name`: schema, every row, header, integrity.

        Without `path` it is the file of this test; without a name, the golden is called like the
        test. What is compared is what a new process would see: committed rows alone.

        `ignore` names columns (`table.column`, `table.*`, and `table.rowid` for the order of rows).
        As a mapping, it gives each a path in the column's JSON, or a list of paths; `$` is the
        whole value.
        """
        __tracebackhide__ = True
        try:
            self._compare(
                find_golden(self._test.path, _to_name(self._test) if name is None else name),
                self.path if path is None else Path(path),
                parse_rules(ignore),
            )
        except GoldenError as error:
            raise pytest.fail.Exception(str(error)) from None

    def close(self, *, keep: bool) -> None:
        """After the test, close connections, and remove the files unless `keep` is true."""
        for connection in self._connections:
            with suppress(sqlite3.Error):
                connection.close()
        self._environment.undo()
        if self._folder is not None and not keep:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _copy(self, name: str, build: Build | None) -> Path:
        golden = find_golden(self._test.path, name)
        if build is not None and self._session.may_write(golden):
            self._session.rebuild(golden, build, self._test.nodeid)
        if not golden.exists():
            raise self._report_missing(golden, can_be_made=build is not None)
        path = self._find_free_path(name)
        manifest = golden.copy(path)
        self._session.record_use(golden, self._test.nodeid)
        if build is not None and manifest["builder"] is not None:
            self._check_builder(golden, build, manifest["builder"])
        return self._set_path(path)

    def _compare(self, golden: Golden, path: Path, rules: Rules) -> None:
        obtained = self._find_free_path(f"{golden.name}.obtained")
        mode = copy_database(path, obtained)
        if self._session.may_write(golden):
            self._session.write(golden, obtained, mode, self._test.nodeid, rules=rules)
        if not golden.exists():
            raise self._report_missing(golden, can_be_made=True)
        with golden.lock():
            golden.check()
        if found := compare_files(golden.path, obtained, rules):
            raise self._report_difference(golden, found, obtained)
        obtained.unlink()
        self._session.record_use(golden, self._test.nodeid)

    def _find_free_path(self, name: str) -> Path:
        if self._folder is None:
            self._folder = self._make_folder()
        path, number = self._folder / f"{name}.db", 1
        while path.exists():
            number += 1
            path = self._folder / f"{name}-{number}.db"
        return path

    def _set_path(self, path: Path) -> Path:
        self._path = path
        self._environment.setenv(VARIABLE, str(path))
        return path

    @property
    def _command(self) -> str:
        """The command that runs this test alone, from the folder where the run was started."""
        module = os.path.relpath(self._test.path, self._session.root)
        _, separator, name = self._test.nodeid.partition("::")
        return f"pytest {shlex.quote(module + separator + name)}"

    def _check_builder(self, golden: Golden, build: Build, known: str) -> None:
        if hash_builder(build) not in (None, known):
            warnings.warn(
                f"{name_builder(build)} has changed since it built {self._shorten(golden.path)}. To"
                f" see whether it still builds the same: {self._command} --snapshot-db-update",
                GoldenWarning,
                stacklevel=4,
            )

    def _report_missing(self, golden: Golden, *, can_be_made: bool) -> GoldenError:
        lines = [f"There is no golden {golden.name!r} yet: {self._shorten(golden.path)}"]
        if can_be_made:
            lines += ["Make it, look at it, and commit it:"]
            lines += [f"  {self._command} --snapshot-db-update-only=new"]
        else:
            lines += ["Nothing says how to make it: give a build=."]
        return GoldenError("\n".join(lines))

    def _report_difference(self, golden: Golden, found: Difference, obtained: Path) -> GoldenError:
        expected = self._shorten(golden.path)
        other = self._shorten(obtained)
        lines = [
            f"The database does not match the golden {golden.name!r}.",
            *found.lines,
            "",
            f"expected: {expected}",
            f"obtained: {other}",
            f"all of it: snapshot-db diff {shlex.join((expected, other))}",
            f"if it is right: {self._command} --snapshot-db-update",
            *self._suggest(golden, found),
        ]
        return GoldenError("\n".join(lines))

    def _suggest(self, golden: Golden, found: Difference) -> Iterator[str]:
        if found.is_only_cells:
            ignore = suggest_ignore(found.cells)
            yield f"if it differs in every run: ignore={ignore}"
        if writer := self._session.find_writer(golden):
            yield f"note: {writer} wrote this golden in this run"
        for connection in self._connections:
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    yield "note: a connection of this test has not committed what it wrote"
                    return

    def _shorten(self, path: Path) -> str:
        return shorten_path(path, self._session.root)


def _to_name(test: pytest.Item) -> str:
    """Turn the names of a test and its classes into the name of a golden."""
    classes = [node.name for node in test.listchain() if isinstance(node, pytest.Class)]
    full = ".".join([*classes, test.name])
    name = re.sub(r"[^\w\-\[\]=,+.]", "_", full)
    if name == full and len(name.encode()) <= NAME_BYTES_MAX:
        return name
    # Other tests may become the same name.
    end = "-" + hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return name.encode()[: NAME_BYTES_MAX - len(end)].decode("utf-8", "ignore") + end
