"""The contract as a pytest plugin: `pytest --contract TARGET`, traces in `incidents/` folders.

Also the fixture `memory_faults`. It imports nothing but pytest until it is used, so that a project
which does not use it pays nothing for it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

_IDS = pytest.StashKey[list[str]]()
_SEED = "memory_contract_seed"
# How the file of a recorder begins.
_TRACE = b'{"indelible_trace"'


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the contract."""
    group = parser.getgroup("memory-contract", "the contract of a store of an agent's memory")
    group.addoption(
        "--contract",
        action="append",
        default=[],
        metavar="TARGET",
        help="Run the contract against this store, as `memory-contract check TARGET` does; may be"
        " given again. Without paths, the contract alone is run.",
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
    parser.addini(
        "contract_store",
        "The store that the traces in folders called `incidents` are replayed against, where"
        " --contract names none.",
        default="",
    )


def pytest_configure(config: pytest.Config) -> None:
    """One seed for the whole run, in every worker."""
    if config.option.contract_seed is None:
        given = getattr(config, "workerinput", {}).get(_SEED)
        config.option.contract_seed = secrets.randbits(32) if given is None else given


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the seed to a worker of xdist."""
    node.workerinput[_SEED] = node.config.option.contract_seed


def pytest_report_header(config: pytest.Config) -> str | None:
    """The stores, and the seed that repeats the run."""
    if not config.option.contract:
        return None
    from memory_contract.plugin.items import header  # noqa: PLC0415

    return header(config)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse wrong options, and set what pytest collects beside the contract."""
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
        # Without paths, `pytest --contract TARGET` runs the contract alone.
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
        from memory_contract.plugin.items import collect_items  # noqa: PLC0415

        ids = session.config.stash[_IDS]
        items.extend(collect_items(session, ids))


@pytest.fixture
def memory_faults() -> Iterator[Any]:
    """Make the stores that this test opens fail on cue: `memory_faults.fail_next("add_message")`.

    A store's package offers it by an entry point in the group `memory_contract.faults`. A fault
    that was asked for and never struck fails the test: it proved nothing.
    """
    from memory_contract.registry import FAULTS, load_registered  # noqa: PLC0415

    with ExitStack() as stack:
        offered = [stack.enter_context(watch()) for watch in load_registered(FAULTS)]
        if not offered:
            pytest.fail("no installed package offers faults of its stores", pytrace=False)
        faults = offered[0]
        yield faults
    if faults.unstruck:
        pytest.fail(f"memory_faults never struck: {', '.join(faults.unstruck)}", pytrace=False)


def _is_ours(argument: str, config: pytest.Config) -> bool:
    """Whether an argument is the id of a contract's item, or the beginning of one."""
    named = argument == "contract" or argument.startswith("contract/")
    return named and not (Path(config.invocation_params.dir) / argument).exists()
