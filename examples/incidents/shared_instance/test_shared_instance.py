"""Cross-session leak and lost append: 4 operations of 3 workers.

2b0d187b8476 was appended to session c-5 and seen in c-6.
    1.1-a2  ├──┤        c-5: append [2b0d187b8476]
    final         ├──┤  c-6: read saw [2b0d187b8476 edbce3d88c8f]
"""

from pathlib import Path

from memory_contract import replay_trace

TRACE = Path(__file__).with_suffix(".jsonl")
STORE = "agent.db"


def test_shared_instance():
    found = replay_trace(TRACE, STORE, times=10)
    assert found.verdict == "FIXED", found.told
