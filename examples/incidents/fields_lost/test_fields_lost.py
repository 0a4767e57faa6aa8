"""Corrupted entry: 2 operations of 2 workers.

B71a35cd1585 came back to final with another checksum or type than it had.
    final  ├──┤  c-1: read saw [!b71a35cd1585]
"""

from pathlib import Path

from memory_contract import replay_trace

TRACE = Path(__file__).with_suffix(".jsonl")
STORE = "agent.db"


def test_fields_lost():
    found = replay_trace(TRACE, STORE, times=10)
    assert found.verdict == "FIXED", found.told
