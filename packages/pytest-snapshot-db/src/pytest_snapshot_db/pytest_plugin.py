"""The fixture `snapshot_db` and its options.

It imports nothing but pytest until the fixture is used, so that it costs other projects nothing.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_snapshot_db import SnapshotDb
    from pytest_snapshot_db.session import Session

# syrupy and other plugins own this flag; without them it is another name of ours.
_SHARED_FLAG = "--snapshot-update"
_RUN_ID = "snapshot_db_run"
_SESSION: pytest.StashKey[Session] = pytest.StashKey()
_TOUCHED = pytest.StashKey[list[str]]()
_WRITTEN = pytest.StashKey[list[str]]()
_TEST_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the fixture."""
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
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None, None, None]:
    """Add the shared flag, after all other plugins have added their options."""
    yield
    _, unknown = parser.parse_known_and_unknown_args([_SHARED_FLAG])
    if unknown:
        parser.getgroup("snapshot-db").addoption(
            _SHARED_FLAG,
            dest="snapshot_db_update",
            action="store_true",
            default=False,
            help="The same as --snapshot-db-update, unless another plugin has a flag of this name.",
        )


def pytest_configure(config: pytest.Config) -> None:
    """Give the run an id that all of its workers share."""
    handed = getattr(config, "workerinput", {})
    setattr(config, _RUN_ID, handed.get(_RUN_ID) or secrets.token_hex(8))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the id of the run to a worker of xdist."""
    node.workerinput[_RUN_ID] = getattr(node.config, _RUN_ID)


def _get_session(config: pytest.Config) -> Session:
    """Return the goldens of this process, which the first use creates."""
    if _SESSION not in config.stash:
        from pytest_snapshot_db.session import Session  # noqa: PLC0415

        only = config.getoption("snapshot_db_update_only")
        every = ("new", "changed") if config.getoption("snapshot_db_update") else ()
        config.stash[_SESSION] = Session(
            _get_folder(config),
            worker=getattr(config, "workerinput", {}).get("workerid", "main"),
            root=config.invocation_params.dir,
            update=frozenset((only,) if only else every),
        )
    return config.stash[_SESSION]


@pytest.fixture
def snapshot_db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SnapshotDb]:
    """SQLite files as goldens: private copies of them, and whole files compared with them.

    `path = snapshot_db("name", build=function)`, then `snapshot_db.assert_matches("other", path)`.
    `pytest --snapshot-db-update` writes the goldens.
    """
    from pytest_snapshot_db.fixture import SnapshotDb  # noqa: PLC0415

    session = _get_session(request.config)
    snapshots = SnapshotDb(session, request.node, lambda: tmp_path_factory.mktemp("snapshot_db"))
    try:
        yield snapshots
    finally:
        snapshots.close(keep=not request.node.stash.get(_TEST_PASSED, False))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test passed: its copies of goldens are then removed."""
    report = yield
    if call.when == "call":
        item.stash[_TEST_PASSED] = report.passed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """After each test, check the goldens that this process has used."""
    try:
        return (yield)
    finally:
        if _SESSION in item.config.stash:
            item.config.stash[_SESSION].record_touched(item.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a golden was touched. Runs last, after xdist has ended its workers."""
    config = session.config
    folder = _get_folder(config)
    if hasattr(config, "workerinput") or not folder.exists():
        return
    from pytest_snapshot_db.session import end_session  # noqa: PLC0415

    config.stash[_TOUCHED], config.stash[_WRITTEN] = end_session(
        folder, config.invocation_params.dir
    )
    if config.stash[_TOUCHED] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _get_folder(config: pytest.Config) -> Path:
    """Return the folder that the processes of this run share; the first use creates it."""
    return Path(tempfile.gettempdir()) / f"snapshot-db-{getattr(config, _RUN_ID)}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print which goldens were written, and which a test has touched."""
    stash = terminalreporter.config.stash
    touched, written = stash.get(_TOUCHED, []), stash.get(_WRITTEN, [])
    if touched or written:
        terminalreporter.section("snapshot_db", red=bool(touched), bold=True)
        for line in touched:
            terminalreporter.write_line(line, red=True)
        for line in written:
            terminalreporter.write_line(line)
