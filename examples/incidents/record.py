"""How the incidents in this folder came about: `python examples/incidents/record.py NAME ...`.

Each is a store of the kit that forgets in one way. The case that catches it is run with a recorder
before the store; what was recorded is the incident. It is then shrunk against the store, and
written as a test. Run it for a name whose folder you removed, or for a new one.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from memory_contract import load_trace, recorded, shrink_trace, write_test
from memory_contract.cases.catalogue import all_cases
from memory_contract.goldfish import GOLDFISH
from memory_contract.runner import StoreUnderTest, run_case
from memory_contract.traces.shrink import write_small_trace

HERE = Path(__file__).parent
# The folder, the goldfish, and how its case is run.
INCIDENTS = {
    "rollback_wiped_the_snapshots": ("rollback_wipes_snapshots", "blocking"),
    "key_overwritten": ("read_modify_write_in_a_file", "processes"),
    "write_that_was_not": ("swallowed_error", "threads"),
    "fields_lost": ("dropped_fields", "blocking"),
    "ttl_changed_in_a_release": ("expires_early", "blocking"),
    "eviction": ("evicted_sessions", "blocking"),
    "shared_instance": ("shared_instance", "tasks"),
    "compression_raced": ("trim_of_an_old_list", "threads"),
    "window_of_one": ("window_of_one", "blocking"),
}
# What every run of the kit asks first, to see whether the store is there.
_WAS_HERE = "memory-contract-was-here"


def main(names: list[str]) -> None:
    """Record, shrink, write."""
    for name in names or INCIDENTS:
        fish, mode = INCIDENTS[name]
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as place:
            _record(Path(place) / "trace", fish, mode)
            trace = load_trace(Path(place) / "trace")
        lines = tuple(line for line in trace.lines if line.session != _WAS_HERE)
        write_small_trace(folder / "trace.jsonl", replace(trace, lines=lines))
        small = shrink_trace(folder / "trace.jsonl", GOLDFISH[fish].adapter, budget_s=300)
        write_test(folder / f"test_{name}.py", small.trace, store="agent.db")
        print(f"{name}: {len(lines)} operations became {small.operations}")


def _record(path: Path, fish: str, mode: str) -> None:
    goldfish = GOLDFISH[fish]
    (case,) = (each for each in all_cases() if each.name == goldfish.caught_by)
    workers = mode if mode != "blocking" else None
    subject = StoreUnderTest(recorded(goldfish.adapter, path, workers=workers))
    try:
        assert run_case(case, mode, subject, seed=7).verdict == "FAIL"
    finally:
        subject.close()


if __name__ == "__main__":
    main(sys.argv[1:])
