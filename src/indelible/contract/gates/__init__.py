"""The gates: every case that a store must pass before it touches production."""

from indelible.contract.gates import (
    capabilities,
    concurrency,
    damage,
    edges,
    expiry,
    keeping,
    keys,
    lifecycle,
    locking,
    names,
    power_loss,
    programs,
    scale,
    sequential,
    snapshots,
)

__all__ = [
    "capabilities",
    "concurrency",
    "damage",
    "edges",
    "expiry",
    "keeping",
    "keys",
    "lifecycle",
    "locking",
    "names",
    "power_loss",
    "programs",
    "scale",
    "sequential",
    "snapshots",
]
