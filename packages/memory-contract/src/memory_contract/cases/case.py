"""What a case is, and the book in which all of them stand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from memory_contract.adapter import Reach

if TYPE_CHECKING:
    from memory_contract.case_context import CaseContext

Gate = Literal[
    "sequential", "edges", "lifecycle", "concurrency", "faults", "crash", "compatibility"
]
GATES: Final[dict[Gate, str]] = {
    "sequential": "one caller at a time: what was said comes back, once, in order",
    "edges": "strange contents, sizes and names",
    "lifecycle": "trimming, expiry, snapshots, rollback, forks, closing",
    "concurrency": "many threads, tasks and processes at once, judged by the checker",
    "faults": "errors, lost replies, full disks, cancelled calls",
    "crash": "kill -9 and power loss",
    "compatibility": "data of other versions, and recorded incidents",
}
# What a case needs beyond the store: nothing that Python does not have, the program of a server,
# or rights that not every user has.
Tier = Literal["nothing", "server", "privileges"]
TIERS: Final[dict[Tier, str]] = {
    "nothing": "needs nothing but Python",
    "server": "needs the program of the server",
    "privileges": "needs user namespaces or root",
}
# The gates whose cases make bad days: an error is no surprise there, and no fault no proof.
FAULT_GATES: Final[frozenset[Gate]] = frozenset({"faults", "crash"})
Mode = Literal["blocking", "async", "threads", "tasks", "processes"]
ONE_CALLER: Final[tuple[Mode, ...]] = ("blocking", "async")
MANY_WORKERS: Final[tuple[Mode, ...]] = ("threads", "tasks", "processes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing that every store must do, and the failure that shows where it does not."""

    gate: Gate
    name: str
    # What it does, in one sentence, and the failure that it catches, in a few words.
    does: str
    catches: str
    run: Callable[[CaseContext], None]
    # What the store must declare for the case to mean anything.
    needs: frozenset[str]
    reach: Reach
    modes: tuple[Mode, ...]
    # Whether the case proves nothing unless operations overlapped.
    overlaps: bool
    tier: Tier = "nothing"

    @property
    def repeats(self) -> bool:
        """Whether another seed shows more: another race, or other faults."""
        return self.overlaps or self.gate in FAULT_GATES

    @property
    def races(self) -> bool:
        """Whether several workers meet in it, so that a round may end otherwise than the last."""
        return self.overlaps or (self.gate in FAULT_GATES and self.modes == MANY_WORKERS)

    @property
    def id(self) -> str:
        """The name with its gate: `concurrency/append_storm`."""
        return f"{self.gate}/{self.name}"


REGISTRY: Final[dict[str, Case]] = {}


def case(
    gate: Gate,
    *,
    catches: str,
    needs: Collection[str] = (),
    reach: Reach = "handle",
    modes: tuple[Mode, ...] | None = None,
    overlaps: bool | None = None,
    tier: Tier = "nothing",
) -> Callable[[Callable[[CaseContext], None]], Callable[[CaseContext], None]]:
    """Put a function into the book. Its name is the case's, its docstring says what it does."""

    def enter(run: Callable[[CaseContext], None]) -> Callable[[CaseContext], None]:
        ours = modes or (MANY_WORKERS if gate == "concurrency" else ONE_CALLER)
        found = Case(
            gate=gate,
            name=run.__name__,
            does=(inspect.getdoc(run) or "").splitlines()[0],
            catches=catches,
            run=run,
            needs=frozenset(needs),
            reach=reach,
            modes=ours,
            overlaps=gate == "concurrency" if overlaps is None else overlaps,
            tier=tier,
        )
        assert found.id not in REGISTRY, f"two cases are called {found.id}"
        REGISTRY[found.id] = found
        return run

    return enter
