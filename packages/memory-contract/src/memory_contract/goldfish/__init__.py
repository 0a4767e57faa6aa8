"""Goldfish: stores that are broken on purpose, each in one way, and correct stores beside them.

The kit is tested with them: the case that a goldfish names must catch it, and no case may fail a
correct store. The tests of the kit have more of them, at least one for every case.
"""

from memory_contract.goldfish import incidents, stores
from memory_contract.goldfish.registry import GOLDFISH, RIGHT, Goldfish
from memory_contract.goldfish.survey import Caught, examine, survey

__all__ = [
    "GOLDFISH",
    "RIGHT",
    "Caught",
    "Goldfish",
    "examine",
    "incidents",
    "stores",
    "survey",
]
