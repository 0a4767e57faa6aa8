"""One store under test for a whole run of pytest, whoever asks for it; closed at the end."""

from __future__ import annotations

import secrets
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from memory_contract.adapter import Adapter
from memory_contract.checking import BUDGET_S, Item, share_of
from memory_contract.deviations import Deviations, find_deviations
from memory_contract.results import CaseResult
from memory_contract.runner import StoreUnderTest, run_case
from memory_contract.targets import resolve

Target = str | Adapter | type


@dataclass(slots=True)
class Benches:
    """What a run of pytest keeps: opened stores, what is known of them, and the seed."""

    seed: int
    deviations: Deviations
    _opened: dict[int, tuple[Target, StoreUnderTest]] = field(default_factory=dict)
    _named: dict[str, Adapter] = field(default_factory=dict)

    def of(self, target: Target) -> StoreUnderTest:
        """The store, opened when it is first asked for."""
        if isinstance(target, str):
            if target not in self._named:
                self._named[target] = resolve(target)
            target = self._named[target]
        if id(target) not in self._opened:
            with warnings.catch_warnings():
                # Whether a store may warn is not the contract's question.
                warnings.simplefilter("default")
                # The target is kept with it: the id of what is gone could be another's.
                self._opened[id(target)] = (target, StoreUnderTest(resolve(target)))
        return self._opened[id(target)][1]

    def run(self, item: Item, subject: StoreUnderTest) -> CaseResult:
        """What comes of one case in one mode."""
        result = item.known or run_case(
            item.case, item.mode, subject, seed=self.seed, share_s=share_of(BUDGET_S)
        )
        return self.deviations.apply(result)

    def close(self) -> None:
        """End all processes and remove all folders."""
        while self._opened:
            _, subject = self._opened.popitem()[1]
            subject.close()


_BENCHES = pytest.StashKey[Benches]()


def benches_of(config: pytest.Config) -> Benches:
    """Those of this run."""
    if _BENCHES not in config.stash:
        seed = config.getoption("contract_seed", None)
        benches = Benches(
            seed=secrets.randbits(32) if seed is None else seed,
            deviations=find_deviations(Path(config.invocation_params.dir), config.rootpath),
        )
        config.stash[_BENCHES] = benches
        config.add_cleanup(benches.close)
    return config.stash[_BENCHES]
