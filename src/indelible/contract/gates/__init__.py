"""The gates: every case that a store must pass before it touches production."""

from indelible.contract.gates import concurrency, edges, lifecycle, sequential

__all__ = ["concurrency", "edges", "lifecycle", "sequential"]
