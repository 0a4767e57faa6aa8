"""The contract kit: what a store of an agent's memory owes, and how to tell whether it keeps it."""

from indelible.contract.checker import check_history, judge
from indelible.contract.checker.explain import explain
from indelible.contract.checker.shrink import minimal
from indelible.contract.checker.verdict import Anomaly, Ok, Undecided, Verdict, Violated
from indelible.contract.history import (
    CORRUPTED,
    NOT_FOUND,
    HistoryError,
    Operation,
    read_history,
    write_history,
)

__all__ = [
    "CORRUPTED",
    "NOT_FOUND",
    "Anomaly",
    "HistoryError",
    "Ok",
    "Operation",
    "Undecided",
    "Verdict",
    "Violated",
    "check_history",
    "explain",
    "judge",
    "minimal",
    "read_history",
    "write_history",
]
