"""The fixture `snapshot_db` and its options.

It imports nothing but pytest until it is used, so that a project which does not use it pays nothing
for it.
"""

from __future__ import annotations

import secrets
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_snapshot_db import SnapshotDb
    from pytest_snapshot_db.ending import End
    from pytest_snapshot_db.run import Run

_RUN_ID = "snapshot_db_run"
_COLOUR = "snapshot_db_colour"
_GOLDENS: pytest.StashKey[Run] = pytest.StashKey()
_END: pytest.StashKey[End] = pytest.StashKey()
_PASSED = pytest.StashKey[dict[Path, set[str]]]()
_PARTLY = pytest.StashKey[set[Path]]()
_TEST_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the fixture."""
    group = parser.getgroup("snapshot-db", "golden SQLite files")
    group.addoption(
        "--snapshot-db-update",
        action="store_true",
        default=False,
        help="Write the goldens of snapshot_db that are missing or differ.",
    )
    group.addoption(
        "--snapshot-db-update-only",
        choices=("new", "changed"),
        default=None,
        help="Of the goldens of snapshot_db, write only those that are missing (new), or only those"
        " that are there and differ (changed).",
    )


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None, object, object]:
    """Offer --snapshot-update unless somebody else does: other plugins for snapshots own it.

    Two plugins that add the same flag stop pytest from starting. Here all of them have been loaded.
    """
    result = yield
    _, unknown = parser.parse_known_and_unknown_args(["--snapshot-update"])
    if unknown:
        parser.getgroup("snapshot-db").addoption(
            "--snapshot-update",
            action="store_true",
            default=False,
            help="The same as --snapshot-db-update.",
        )
    return result


def pytest_configure(config: pytest.Config) -> None:
    """One name for the whole run, in every worker."""
    handed = getattr(config, "workerinput", {})
    setattr(config, _RUN_ID, handed.get(_RUN_ID) or secrets.token_hex(8))
    passed: dict[Path, set[str]] = defaultdict(set)
    config.stash[_PASSED] = passed
    config.stash[_PARTLY] = set()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand it to a worker of xdist."""
    node.workerinput[_RUN_ID] = getattr(node.config, _RUN_ID)
    node.workerinput[_COLOUR] = node.config.get_terminal_writer().hasmarkup


def _goldens_of(config: pytest.Config) -> Run:
    """What this process knows of the goldens of the run."""
    if _GOLDENS not in config.stash:
        from pytest_snapshot_db.plugin import begun  # noqa: PLC0415

        handed = getattr(config, "workerinput", {})
        colour = handed.get(_COLOUR, config.get_terminal_writer().hasmarkup)
        config.stash[_GOLDENS] = begun(config, _folder_of(config), colour=colour)
    return config.stash[_GOLDENS]


@pytest.fixture
def snapshot_db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SnapshotDb]:
    """SQLite files as goldens: private copies of them, and whole files compared with them.

    `path = snapshot_db("name", build=function)`, then `snapshot_db.assert_matches("other", path)`.
    `pytest --snapshot-db-update` writes the goldens.
    """
    from pytest_snapshot_db.plugin import given  # noqa: PLC0415

    def passed() -> bool:
        return bool(request.node.stash.get(_TEST_PASSED, False))

    yield from given(_goldens_of(request.config), request, tmp_path_factory, passed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember which tests passed: their copies of goldens are of no use to anybody."""
    report = yield
    if call.when == "call" and report.passed:
        item.stash[_TEST_PASSED] = True
        item.config.stash[_PASSED][item.path].add(item.nodeid)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """After each test, a look at the goldens that were used so far."""
    try:
        return (yield)
    finally:
        if _GOLDENS in item.config.stash:
            item.config.stash[_GOLDENS].look(item.nodeid)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """A run without all tests of a module does not know which of its goldens are unused."""
    for item in items:
        item.config.stash[_PARTLY].add(item.path)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A golden that was touched fails the run. Last of all: xdist ends its workers here."""
    config = session.config
    if not _folder_of(config).exists():
        return
    from pytest_snapshot_db import plugin  # noqa: PLC0415

    if not config.pluginmanager.has_plugin("dsession"):
        run = _goldens_of(config)
        plugin.tell_what_ran(run, session, config.stash[_PASSED], config.stash[_PARTLY])
    if not hasattr(config, "workerinput"):
        end = config.stash[_END] = plugin.ended(session, _folder_of(config))
        if end.failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _folder_of(config: pytest.Config) -> Path:
    """Where the processes of this run meet; it is there if a golden was used."""
    return Path(tempfile.gettempdir()) / f"snapshot-db-{getattr(config, _RUN_ID)}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Which goldens were written, and which a test has touched."""
    end = terminalreporter.config.stash.get(_END, None)
    if end is not None and end.lines:
        terminalreporter.section("snapshot_db", red=end.failed, bold=True)
        for line in end.lines:
            terminalreporter.write_line(line, red=line.startswith("TOUCHED"))
