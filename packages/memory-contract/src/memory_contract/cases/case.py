"""What a case is, and the registry of all cases."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from memory_contract.adapter import Reach
from memory_contract.case_context import CaseContext
from memory_contract.gates import FAULT_GATES, MANY_WORKERS, ONE_CALLER, Gate, Mode, Tier


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
    # Whether it asks nothing of a store that claims no durability.
    durable: bool = False
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
    reach: Reach | None = None,
    modes: tuple[Mode, ...] | None = None,
    overlaps: bool | None = None,
    durable: bool = False,
    tier: Tier = "nothing",
) -> Callable[[Callable[[CaseContext], None]], Callable[[CaseContext], None]]:
    """Register a function as a case. Its name is the case's, its docstring says what it does."""

    def enter(run: Callable[[CaseContext], None]) -> Callable[[CaseContext], None]:
        ours = modes or (MANY_WORKERS if gate == "concurrency" else ONE_CALLER)
        found = Case(
            gate=gate,
            name=run.__name__,
            does=(inspect.getdoc(run) or "").splitlines()[0],
            catches=catches,
            run=run,
            needs=frozenset(needs),
            reach=reach or ("machine" if gate in FAULT_GATES else "handle"),
            modes=ours,
            overlaps=gate == "concurrency" if overlaps is None else overlaps,
            durable=durable,
            tier=tier,
        )
        assert found.id not in REGISTRY, f"two cases are called {found.id}"
        REGISTRY[found.id] = found
        return run

    return enter
