"""Lost append: 3 operations of 3 workers.

77687548ed8e was acknowledged to 2.1-t1 and is missing from the final read.
    2.1-t1  ├─────┤           c-2: append [77687548ed8e]
    1.1-t1     ├─────┤        c-2: append [d920878441de]
    final               ├──┤  c-2: read saw [d920878441de]
"""

from pathlib import Path

from memory_contract import replay_trace

TRACE = Path(__file__).with_suffix(".jsonl")
STORE = "agent.db"


def test_key_overwritten():
    found = replay_trace(TRACE, STORE, times=10)
    assert found.verdict == "FIXED", found.told
