"""Lost append: 4 operations of 2 workers.

F7b331d0ec3c was acknowledged to 1.1-t1 and is missing from the final read.
    1.1-t1  ├──┤              c-1: append [f7b331d0ec3c]
    1.1-t1        ├──┤        c-1: append [e2201e33ecc1]
    final               ├──┤  c-1: read saw [e2201e33ecc1]
"""

from pathlib import Path

from memory_contract import replay_trace

TRACE = Path(__file__).with_suffix(".jsonl")
STORE = "agent.db"


def test_window_of_one():
    found = replay_trace(TRACE, STORE, times=10)
    assert found.verdict == "FIXED", found.told
