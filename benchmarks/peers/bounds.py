"""How much is measured, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from benchmarks.peers.roster import POSTGRES, REDIS, SQLITE
from benchmarks.peers.workloads import SIZES

FEWEST_ROUNDS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """How much is done in a round, and how many rounds there are."""

    # At least so many; more while there is time, and never more than the other.
    rounds: int = FEWEST_ROUNDS
    rounds_max: int = 10
    # No round is begun that would probably end later than this after the engine's start.
    engine_s: Mapping[str, float] = field(
        default_factory=lambda: {SQLITE: 420.0, REDIS: 130.0, POSTGRES: 260.0}
    )
    # A round asks everybody for a short batch of calls, several times, each time in another order.
    passes: int = 6
    calls: int = 10
    reads: int = 50
    batch_s: float = 0.02
    # No further batch for a peer that has taken so long for a work in this round.
    limit_s: float = 0.2
    # A call that takes longer is asked once, in the first round, and is told and not compared.
    slow_s: float = 2.0
    fill_s: float = 8.0
    # How long tasks and processes go on appending, and how many messages each at most.
    crowd_s: float = 0.2
    each: int = 64
    # A database grows by pages: the more messages are weighed, the finer.
    weighed: int = 800
    weighed_s: float = 0.3
    sizes: tuple[int, ...] = SIZES

    def with_rounds(self, rounds: int) -> Bounds:
        """The same in exactly so many rounds."""
        return replace(self, rounds=rounds, rounds_max=rounds)


QUICK = Bounds(
    rounds=2,
    rounds_max=2,
    passes=2,
    calls=5,
    limit_s=0.1,
    slow_s=1.0,
    fill_s=3.0,
    crowd_s=0.1,
    weighed=50,
    weighed_s=0.1,
    sizes=SIZES[:2],
)
