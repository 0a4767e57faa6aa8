"""What pytest loads wherever indelible is installed.

`pytest --contract TARGET`; the fixtures `snapshot_db`, `memory_store`, `async_memory_store`,
`run_in_process` and `start_in_process`.

It stands outside the package and imports nothing but pytest, so that a project which does not use
it pays nothing for it. The kit is loaded when a target is named, the rest when a test asks for it.
"""

from __future__ import annotations

import secrets
import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from indelible import AsyncMemoryStore, MemoryStore
    from indelible.testing import Started
    from pytest_snapshot_db import SnapshotDb
    from pytest_snapshot_db.ending import End
    from pytest_snapshot_db.run import Run

_IDS = pytest.StashKey[list[str]]()
_SEED = "indelible_contract_seed"
_RUN_ID = "indelible_golden_run"
_COLOUR = "indelible_colour"
_GOLDENS: pytest.StashKey[Run] = pytest.StashKey()
_END: pytest.StashKey[End] = pytest.StashKey()
_PASSED = pytest.StashKey[dict[Path, set[str]]]()
_PARTLY = pytest.StashKey[set[Path]]()
_TEST_PASSED = pytest.StashKey[bool]()
# How the file of a recorder begins.
_TRACE = b'{"indelible_trace"'


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the contract."""
    group = parser.getgroup("indelible", "the contract of a store of an agent's memory")
    group.addoption(
        "--contract",
        action="append",
        default=[],
        metavar="TARGET",
        help="Run the contract against this store, as `memory-contract check TARGET` does; may be given"
        " again. Without paths, the contract alone is run.",
    )
    group.addoption(
        "--contract-gate",
        action="append",
        default=[],
        metavar="NAME",
        help="Only the cases of this gate; may be given again.",
    )
    group.addoption(
        "--contract-seed",
        type=int,
        default=None,
        metavar="N",
        help="Runs with the same seed do the same things. Without it: a new one.",
    )
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
    group.addoption(
        "--memory-store",
        default=None,
        metavar="URL",
        help="What the fixtures memory_store and async_memory_store open: memory: (the default),"
        " sqlite: for a new file, or any URL of indelible.",
    )
    parser.addini("memory_store", "The same as --memory-store.", default="memory:")
    parser.addini(
        "contract_store",
        "The store that the traces in folders called `incidents` are replayed against, where"
        " --contract names none.",
        default="",
    )
    parser.addini(
        "contract_targets",
        "Stores that the header of a trace may name, one in each line. A trace that names any other"
        " module or server is not replayed.",
        type="linelist",
        default=[],
    )


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None, object, object]:
    """Offer --snapshot-update unless somebody else does: other plugins for snapshots own it.

    Two plugins that add the same flag stop pytest from starting. Here all of them have been loaded.
    """
    result = yield
    _, unknown = parser.parse_known_and_unknown_args(["--snapshot-update"])
    if unknown:
        parser.getgroup("indelible").addoption(
            "--snapshot-update",
            action="store_true",
            default=False,
            help="The same as --snapshot-db-update.",
        )
    return result


def pytest_configure(config: pytest.Config) -> None:
    """One seed and one name for the whole run, in every worker."""
    handed = getattr(config, "workerinput", {})
    if config.option.contract_seed is None:
        given = handed.get(_SEED)
        config.option.contract_seed = secrets.randbits(32) if given is None else given
    setattr(config, _RUN_ID, handed.get(_RUN_ID) or secrets.token_hex(8))
    passed: dict[Path, set[str]] = defaultdict(set)
    config.stash[_PASSED] = passed
    config.stash[_PARTLY] = set()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand them to a worker of xdist."""
    node.workerinput[_SEED] = node.config.option.contract_seed
    node.workerinput[_RUN_ID] = getattr(node.config, _RUN_ID)
    node.workerinput[_COLOUR] = node.config.get_terminal_writer().hasmarkup


def pytest_report_header(config: pytest.Config) -> str | None:
    """Which stores, and the seed that repeats the run."""
    if not config.option.contract:
        return None
    from memory_contract.plugin.items import header  # noqa: PLC0415

    return header(config)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse wrong options, and say what pytest is to collect beside the contract."""
    config = session.config
    if not config.option.contract:
        if config.option.contract_gate:
            raise pytest.UsageError("--contract-gate says of which store's contract: --contract")
        return
    if not hasattr(config, "workerinput"):
        from memory_contract.plugin.items import validate  # noqa: PLC0415

        validate(config)
    config.stash[_IDS] = [each for each in config.args if _is_ours(each, config)]
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        config.args = [each for each in config.args if each not in config.stash[_IDS]]
    else:
        # Nobody named a path: whoever says `pytest --contract TARGET` wants that and no more.
        config.args = []


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A trace in a folder called `incidents` is a test, unless a test file of its name runs it."""
    if file_path.suffix != ".jsonl" or file_path.parent.name != "incidents":
        return None
    with file_path.open("rb") as file:
        if file.read(len(_TRACE)) != _TRACE:
            return None
    if file_path.with_suffix(".py").exists():
        return None
    from memory_contract.plugin.incidents import IncidentFile  # noqa: PLC0415

    found: pytest.Collector = IncidentFile.from_parent(parent, path=file_path)
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the contract's items before others choose among all of them."""
    if session.config.option.contract:
        from memory_contract.plugin.items import collected  # noqa: PLC0415

        ids = session.config.stash[_IDS]
        items.extend(collected(session, ids))


@pytest.fixture
def memory_faults() -> Iterator[Any]:
    """Make the stores that this test opens fail on cue: `memory_faults.fail_next("add_message")`.

    A fault that was asked for and never struck fails the test: it proved nothing.
    """
    from indelible.testing.faults import watching  # noqa: PLC0415

    with watching() as faults:
        yield faults
    if faults.unstruck:
        pytest.fail(f"memory_faults never struck: {', '.join(faults.unstruck)}", pytrace=False)


def _is_ours(argument: str, config: pytest.Config) -> bool:
    """Whether an argument is the id of a contract's item, or the beginning of one."""
    named = argument == "contract" or argument.startswith("contract/")
    return named and not (Path(config.invocation_params.dir) / argument).exists()


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
    return Path(tempfile.gettempdir()) / f"indelible-goldens-{getattr(config, _RUN_ID)}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Which goldens were written, and which a test has touched."""
    end = terminalreporter.config.stash.get(_END, None)
    if end is not None and end.lines:
        terminalreporter.section("snapshot_db", red=end.failed, bold=True)
        for line in end.lines:
            terminalreporter.write_line(line, red=line.startswith("TOUCHED"))


@pytest.fixture
def memory_store_url(pytestconfig: pytest.Config) -> str:
    """What memory_store and async_memory_store open; return another URL to override it."""
    asked = pytestconfig.getoption("memory_store")
    return str(asked or pytestconfig.getini("memory_store"))


@pytest.fixture
def memory_store(
    memory_store_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MemoryStore]:
    """A store of its own for each test: empty, apart from all others, and erased after it."""
    from indelible.testing.stores import fresh  # noqa: PLC0415

    with fresh(memory_store_url, tmp_path_factory) as store:
        yield store


@pytest.fixture
def async_memory_store(
    memory_store_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AsyncMemoryStore]:
    """The same as memory_store, awaited. It needs no plugin of its own; your test may need one."""
    from indelible.testing.stores import fresh_async  # noqa: PLC0415

    with fresh_async(memory_store_url, tmp_path_factory) as store:
        yield store


@pytest.fixture
def run_in_process() -> Callable[..., Any]:
    """Run a function in a new process: its result comes back, or what it raised is raised."""
    from indelible.testing import run_in_process as run  # noqa: PLC0415

    return run


@pytest.fixture
def start_in_process() -> Iterator[Callable[..., Started]]:
    """Start a function in a new process, to be killed or waited for; none outlives its test."""
    from indelible.testing import starting  # noqa: PLC0415

    with starting() as start:
        yield start
