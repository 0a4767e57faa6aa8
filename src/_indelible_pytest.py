"""What pytest loads wherever indelible is installed: `pytest --contract TARGET`.

It stands outside the package and imports nothing but pytest, so that a project which does not use
it pays nothing for it. The kit is loaded when a target is named.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_IDS = pytest.StashKey[list[str]]()
_SEED = "indelible_contract_seed"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the contract."""
    group = parser.getgroup("indelible", "the contract of a store of an agent's memory")
    group.addoption(
        "--contract",
        action="append",
        default=[],
        metavar="TARGET",
        help="Run the contract against this store, as `indelible check TARGET` does; may be given"
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
    """Which stores, and the seed that repeats the run."""
    if not config.option.contract:
        return None
    from indelible.contract.plugin.items import header  # noqa: PLC0415

    return header(config)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse wrong options, and say what pytest is to collect beside the contract."""
    config = session.config
    if not config.option.contract:
        if config.option.contract_gate:
            raise pytest.UsageError("--contract-gate says of which store's contract: --contract")
        return
    if not hasattr(config, "workerinput"):
        from indelible.contract.plugin.items import validate  # noqa: PLC0415

        validate(config)
    config.stash[_IDS] = [each for each in config.args if _is_ours(each, config)]
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        config.args = [each for each in config.args if each not in config.stash[_IDS]]
    else:
        # Nobody named a path: whoever says `pytest --contract TARGET` wants that and no more.
        config.args = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the contract's items before others choose among all of them."""
    if session.config.option.contract:
        from indelible.contract.plugin.items import collected  # noqa: PLC0415

        ids = session.config.stash[_IDS]
        items.extend(collected(session, ids))


@pytest.fixture
def memory_faults() -> Iterator[Any]:
    """Make the stores that this test opens fail on cue: `memory_faults.fail_next("add_message")`.

    A fault that was asked for and never struck fails the test: it proved nothing.
    """
    from indelible.contract.faults.memory import watching  # noqa: PLC0415

    with watching() as faults:
        yield faults
    if faults.unstruck:
        pytest.fail(f"memory_faults never struck: {', '.join(faults.unstruck)}", pytrace=False)


def _is_ours(argument: str, config: pytest.Config) -> bool:
    """Whether an argument is the id of a contract's item, or the beginning of one."""
    named = argument == "contract" or argument.startswith("contract/")
    return named and not (Path(config.invocation_params.dir) / argument).exists()
