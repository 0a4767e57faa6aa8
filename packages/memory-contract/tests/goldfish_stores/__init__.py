"""The goldfish of every case, beside those that the kit itself brings: importing registers them."""

from goldfish_stores import (
    changes,
    checkpoints,
    contents,
    crashes,
    files,
    foreign_data,
    order,
    races,
    recall,
    right,
)
from memory_contract.goldfish import GOLDFISH, RIGHT

__all__ = [
    "GOLDFISH",
    "RIGHT",
    "changes",
    "checkpoints",
    "contents",
    "crashes",
    "files",
    "foreign_data",
    "order",
    "races",
    "recall",
    "right",
]
