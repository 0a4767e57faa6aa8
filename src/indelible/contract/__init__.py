"""The contract kit: what a store of an agent's memory owes, and how to tell whether it keeps it."""

from indelible.contract.adapter import Adapter, Conflict, Handle, NotFound, Refused
from indelible.contract.checker import check_history, judge
from indelible.contract.checker.explain import explain
from indelible.contract.checker.shrink import minimal
from indelible.contract.checker.verdict import Anomaly, Ok, Undecided, Verdict, Violated
from indelible.contract.checking import check
from indelible.contract.history import (
    CORRUPTED,
    NOT_FOUND,
    HistoryError,
    Operation,
    read_history,
    write_history,
)
from indelible.contract.results import CONTRACT_VERSION, CaseResult, Failure, Report, Unreachable

__all__ = [
    "CONTRACT_VERSION",
    "CORRUPTED",
    "NOT_FOUND",
    "Adapter",
    "Anomaly",
    "CaseResult",
    "Conflict",
    "Failure",
    "Handle",
    "HistoryError",
    "NotFound",
    "Ok",
    "Operation",
    "Refused",
    "Report",
    "Undecided",
    "Unreachable",
    "Verdict",
    "Violated",
    "check",
    "check_history",
    "explain",
    "judge",
    "minimal",
    "read_history",
    "write_history",
]
