"""The goldfish of every case, beside those that the kit itself brings: importing registers them."""

from memory_contract.goldfish import GOLDFISH, RIGHT
from tests.support.kit.goldfish_stores import (
    audit,
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

__all__ = [
    "GOLDFISH",
    "RIGHT",
    "audit",
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
