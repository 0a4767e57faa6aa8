"""Stores that forget, each in one way of its own, and stores that do not.

The kit is tested with them: every goldfish must be caught by the case that names it, and a right
store by none.
"""

from memory_contract.goldfish import (
    changes,
    contents,
    crashes,
    files,
    foreign_data,
    order,
    races,
    stores,
)
from memory_contract.goldfish.registry import GOLDFISH, RIGHT, Goldfish
from memory_contract.goldfish.survey import Caught, examine, run_goldfish, survey

__all__ = [
    "GOLDFISH",
    "RIGHT",
    "Caught",
    "Goldfish",
    "changes",
    "contents",
    "crashes",
    "examine",
    "files",
    "foreign_data",
    "order",
    "races",
    "run_goldfish",
    "stores",
    "survey",
]
