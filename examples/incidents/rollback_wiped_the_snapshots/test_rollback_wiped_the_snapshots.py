"""Lost snapshot: 4 operations of 2 workers.

Snapshot aff7b5bf69f1441a8490a62704b05560 was acknowledged to 1.1-t1, and 2.1-t1 was told that there
    1.1-t1  ├──┤        c-1: snapshot aff7b5bf
    2.1-t1        ├──┤  c-1: rollback aff7b5bf not found fail
"""

from pathlib import Path

from memory_contract import replay_trace

TRACE = Path(__file__).with_suffix(".jsonl")
STORE = "agent.db"


def test_rollback_wiped_the_snapshots():
    found = replay_trace(TRACE, STORE, times=10)
    assert found.verdict == "FIXED", found.told
