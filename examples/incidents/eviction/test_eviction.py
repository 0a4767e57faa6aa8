"""Lost append: 130 operations of 2 workers.

F1b987a5216e was acknowledged to 1.1-t1 and is missing from the final read.
    1.1-t1  ├──┤        c-237: append [f1b987a5216e]
    final         ├──┤  c-237: read saw []
"""

from pathlib import Path

from memory_contract import replay_trace

TRACE = Path(__file__).with_suffix(".jsonl")
STORE = "agent.db"


def test_eviction():
    found = replay_trace(TRACE, STORE, times=10)
    assert found.verdict == "FIXED", found.told
