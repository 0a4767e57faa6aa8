"""Early expiry: 3 operations of 2 workers.

28d13835f5da was gone before its time: the expiry could not begin until later.
    1.1-t1  ├──┤              c-2: append [28d13835f5da]
    1.1-t1        ├──┤        c-2: read saw []
    clock               ├──┤  c-2: expire
"""

from pathlib import Path

from memory_contract import replay_trace

TRACE = Path(__file__).with_suffix(".jsonl")
STORE = "agent.db"


def test_ttl_changed_in_a_release():
    found = replay_trace(TRACE, STORE, times=10)
    assert found.verdict == "FIXED", found.told
