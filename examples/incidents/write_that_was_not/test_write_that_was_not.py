"""Lost append: 4 operations of 4 workers.

4b1a425d9315 was acknowledged to 1.1-t3 and is missing from the final read.
    1.1-t2  ├──────────────┤        c-1: append [7208898e0eeb]
    1.1-t1     ├────────┤           c-1: append [d61f0a52768b]
    1.1-t3        ├──┤              c-1: append [4b1a425d9315]
    final                     ├──┤  c-1: read saw [d61f0a52768b 7208898e0eeb]
"""

from pathlib import Path

from memory_contract import replay_trace

TRACE = Path(__file__).with_suffix(".jsonl")
STORE = "agent.db"


def test_write_that_was_not():
    found = replay_trace(TRACE, STORE, times=10)
    assert found.verdict == "FIXED", found.told
