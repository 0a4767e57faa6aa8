"""Cases with more faults than a check makes, and stores that other processes can import."""

from __future__ import annotations

import os
from dataclasses import replace

import indelible
from indelible.testing.contract_target import StoreHandle, WordEmbedder
from memory_contract import Adapter
from memory_contract.cases.catalogue import all_cases
from memory_contract.runner import StoreUnderTest, run_case
from memory_contract.targets import resolve

# A soak makes ten times as many faults.
TIMES = 10 if os.environ.get("INDELIBLE_SOAK") else 1


def opened_at_process(workspace):
    """indelible, with the level that does not sync at each commit."""
    store = indelible.open(workspace / "store.db", durability="process")
    return StoreHandle(store, WordEmbedder())


def ours(folder, **claims) -> Adapter:
    """indelible on SQLite, as anybody would name it."""
    return replace(resolve(f"sqlite:///{folder}/agent.db"), **claims)


def result_of(adapter, case, run=None, *, seed=1):
    """What a case says of a store; with `run`, done in another way than it usually is."""
    (chosen,) = [known for known in all_cases() if known.name == case]
    if run is not None:
        chosen = replace(chosen, run=run)
    subject = StoreUnderTest(adapter)
    try:
        return run_case(chosen, "processes", subject, seed=seed)
    finally:
        subject.close()


def expect_pass(result):
    assert result.verdict == "PASS", (result.id, result.seed, result.reason)
    assert result.faults
