"""The gates, the tiers and the modes of cases."""

from __future__ import annotations

from typing import Final, Literal

# `compatibility` has no cases: reports say it of a trace that was explained.
Gate = Literal[
    "sequential", "edges", "lifecycle", "concurrency", "faults", "crash", "recall", "compatibility"
]
GATES: Final[dict[Gate, str]] = {
    "sequential": "one caller at a time: what was said comes back, once, in order",
    "edges": "strange contents, sizes and names",
    "lifecycle": "trimming, expiry, snapshots, rollback, forks, closing",
    "concurrency": "many threads, tasks and processes at once, judged by the checker",
    "faults": "errors, lost replies, full disks, cancelled calls",
    "crash": "kill -9 and power loss",
    "recall": "what was put is found by search, and nothing else is",
}
# What a case needs beyond the store: nothing that Python does not have, or the program of a server.
Tier = Literal["nothing", "server"]
TIERS: Final[dict[Tier, str]] = {
    "nothing": "needs nothing but Python",
    "server": "needs the program of the server",
}
# The gates whose cases make faults: errors are allowed, and without a fault nothing is proved.
FAULT_GATES: Final[frozenset[Gate]] = frozenset({"faults", "crash"})
# The gates that a store may leave out as a whole, because it claims nothing that they ask for.
OPTIONAL_GATES: Final[frozenset[Gate]] = FAULT_GATES | {"recall"}
Mode = Literal["blocking", "async", "threads", "tasks", "processes"]
ONE_CALLER: Final[tuple[Mode, ...]] = ("blocking", "async")
MANY_WORKERS: Final[tuple[Mode, ...]] = ("threads", "tasks", "processes")
