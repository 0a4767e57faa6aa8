"""Lost append: 3 operations of 3 workers.

1cb5d853d1d5 was acknowledged to 1.1-t2 and is missing from the final read.
    1.1-t2  ├──┤        c-1: append [1cb5d853d1d5]
    final         ├──┤  c-1: read saw []
"""

from pathlib import Path

from memory_contract import replay_trace

TRACE = Path(__file__).with_suffix(".jsonl")
STORE = "agent.db"


def test_compression_raced():
    found = replay_trace(TRACE, STORE, times=10)
    assert found.verdict == "FIXED", found.told
