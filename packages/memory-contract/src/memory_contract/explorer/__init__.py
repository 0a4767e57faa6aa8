"""The schedule explorer: races between tasks, found by a seed and brought back by it."""

from memory_contract.explorer.exploration import SCHEDULES, explore

__all__ = ["SCHEDULES", "explore"]
