"""What every store of the scoreboard is asked, and with how much time: the same for all."""

from __future__ import annotations

from typing import Final

from memory_contract.cases.case import Case
from memory_contract.cases.catalogue import all_cases
from memory_contract.gates import Gate

GATES: Final[tuple[Gate, ...]] = (
    "sequential",
    "edges",
    "lifecycle",
    "concurrency",
    "faults",
    "crash",
)
# Has a table of its own: few stores can search.
SEARCH_GATE: Final[Gate] = "recall"
# The seed of all runs: the same calls in the same order of each worker.
SEED: Final = 1
# How often each race is run: rounds and not seconds, so that a slow store meets as many as a fast
# one, and a verdict does not depend on what else the machine does. Of the races that were lost in
# some rounds and not in others, the rarest were lost in one of three.
ROUNDS: Final = 10
RACES: Final = frozenset(case.id for case in all_cases() if case.races)
# How long bad days, and races beyond their rounds, are repeated, as `--budget` takes it.
BUDGET_S: Final = 60.0
# A bound on a store that hangs.
STORE_S_MAX: Final = 1200.0
# Cases that are about costs and waiting, or take minutes on a slow store; what is lost they do not
# ask. `memory-contract check` alone asks all.
LEFT_OUT: Final = {
    "many_sessions": "it is about cost",
    "long_session": "it is about cost",
    "huge_message_is_whole_or_refused": "it is about size",
    "nothing_goes_unasked": "it is about cost",
    "lock_is_bounded": "it is about waiting",
    "slow_server_deadline": "it is about waiting",
    "server_frozen": "it is about waiting",
    "server_failover": "only one kind of server has it",
    "server_emptied": "whoever runs the server sets it up anew, not the store",
    "fork_safety": "drivers of servers forbid it",
    "damaged_file_is_loud": "nobody here but indelible claims checksums",
}


def list_cases(gate: str = "") -> list[Case]:
    """The cases, gate by gate, or those of one."""
    cases = [case for case in all_cases() if case.name not in LEFT_OUT]
    return [case for case in cases if gate in ("", case.gate)]
