"""Cases with more faults than a check makes, and stores that other processes can import."""

from __future__ import annotations

import os
from dataclasses import replace

import indelible
from indelible.contract import Adapter
from indelible.contract.cases import all_cases
from indelible.contract.running import Bench, run_case
from indelible.contract.targets import resolve
from indelible.contract.targets.urls import StoreHandle

# A soak makes ten times as many faults.
TIMES = 10 if os.environ.get("INDELIBLE_SOAK") else 1


def opened_at_process(workspace):
    """indelible, with the level that does not sync at each commit."""
    return StoreHandle(indelible.open(workspace / "store.db", durability="process"))


def ours(folder, **claims) -> Adapter:
    """indelible on SQLite, as anybody would name it."""
    return replace(resolve(f"sqlite:///{folder}/agent.db"), **claims)


def result_of(adapter, case, run=None, *, seed=1):
    """What a case says of a store; with `run`, done in another way than it usually is."""
    (chosen,) = [known for known in all_cases() if known.name == case]
    if run is not None:
        chosen = replace(chosen, run=run)
    bench = Bench(adapter)
    try:
        return run_case(chosen, "processes", bench, seed=seed)
    finally:
        bench.close()


def expect_pass(result):
    assert result.verdict == "PASS", (result.id, result.seed, result.reason)
    assert result.faults
