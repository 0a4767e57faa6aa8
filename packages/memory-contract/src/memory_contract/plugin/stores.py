"""The stores of a run of pytest, and how results become outcomes of pytest."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from memory_contract.adapter import Adapter
from memory_contract.contract_run import BUDGET_S, Item, get_share_s, run_item
from memory_contract.deviations import Deviations, find_deviations
from memory_contract.printable import escape_unseen
from memory_contract.redaction import redact
from memory_contract.report.text import failure_lines
from memory_contract.results import CaseResult, Report
from memory_contract.runner import StoreUnderTest, run_case
from memory_contract.targets import resolve

Target = str | Adapter | type


@dataclass(slots=True)
class ContractStores:
    """The opened stores of a run of pytest, its deviations, and its seed."""

    seed: int
    deviations: Deviations
    _opened: dict[int, tuple[Target, StoreUnderTest]] = field(default_factory=dict)
    _named: dict[str, Adapter] = field(default_factory=dict)

    def of(self, target: Target) -> StoreUnderTest:
        """The store of a target, opened at its first use."""
        if isinstance(target, str):
            target = self.resolve(target)
        if id(target) not in self._opened:
            with _allow_warnings():
                # The target is kept too, so that its id is not reused.
                self._opened[id(target)] = (target, StoreUnderTest(resolve(target)))
        return self._opened[id(target)][1]

    def resolve(self, target: str) -> Adapter:
        """The adapter of a target; a store is probed once."""
        if target not in self._named:
            with _allow_warnings():
                self._named[target] = resolve(target)
        return self._named[target]

    def run(self, item: Item, subject: StoreUnderTest) -> CaseResult:
        """Run one case in one mode."""
        run = partial(run_case, subject=subject, seed=self.seed, share_s=get_share_s(BUDGET_S))
        return run_item(item, run, self.deviations)

    def close(self) -> None:
        """End all processes and remove all folders."""
        while self._opened:
            _, subject = self._opened.popitem()[1]
            subject.close()


@contextmanager
def _allow_warnings() -> Iterator[None]:
    """A project may treat warnings as errors; a store's verdict must not depend on that."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield


_STORES = pytest.StashKey[ContractStores]()


def get_stores(config: pytest.Config) -> ContractStores:
    """The stores of this run."""
    if _STORES not in config.stash:
        seed = config.getoption("contract_seed", None)
        stores = ContractStores(
            seed=secrets.randbits(32) if seed is None else seed,
            deviations=find_deviations(Path(config.invocation_params.dir), config.rootpath),
        )
        config.stash[_STORES] = stores
        config.add_cleanup(stores.close)
    return config.stash[_STORES]


def raise_outcome(result: CaseResult, target: str) -> None:
    """Pass, or raise the outcome that pytest has for a result. Only PASS passes."""
    if result.verdict == "PASS":
        return
    if result.verdict == "NOT CLAIMED":
        pytest.skip(format_unclaimed(result))
    if result.verdict == "DEVIATION":
        pytest.xfail(escape_unseen(result.reason))
    # A DEVIATION comes here too if pytest was told to --runxfail.
    pytest.fail(format_proof(result, target), pytrace=False)


def format_unclaimed(result: CaseResult) -> str:
    """The reason for a skip."""
    return f"NOT CLAIMED: {escape_unseen(result.reason)}"


def format_proof(result: CaseResult, target: str) -> str:
    """The proof of a failure, with the command that repeats it in the last line."""
    report = Report(target=target, seed=0, gates=(), results=(result,))
    lines = failure_lines(report, result)
    if not result.failures:
        return f"{result.verdict}: {escape_unseen(result.reason)}\n{lines[-1]}"
    # pytest says the id itself.
    return "\n".join(lines).removeprefix(result.id).lstrip()


def format_target(text: str) -> str:
    """A text about a target, without passwords."""
    return escape_unseen(redact(text))
