"""The contract kit: what a store of an agent's memory owes, and how to tell whether it keeps it."""

from typing import TYPE_CHECKING, Any

from indelible.contract.adapter import Adapter, Conflict, Handle, NotFound, Refused
from indelible.contract.checker import check_history, judge
from indelible.contract.checker.explain import explain
from indelible.contract.checker.shrink import minimal
from indelible.contract.checker.verdict import Anomaly, Ok, Undecided, Verdict, Violated
from indelible.contract.checking import check
from indelible.contract.deviations import Deviations, read_deviations
from indelible.contract.explaining import Explanation, explain_trace
from indelible.contract.explorer import explore
from indelible.contract.history import (
    CORRUPTED,
    NOT_FOUND,
    HistoryError,
    Operation,
    read_history,
    write_history,
)
from indelible.contract.incidents.writing import write_test
from indelible.contract.recording import Policy, record, recorded
from indelible.contract.replaying import Replay, load_trace, replay_trace
from indelible.contract.results import CONTRACT_VERSION, CaseResult, Failure, Report, Unreachable
from indelible.contract.shrinking import shrink_trace

if TYPE_CHECKING:
    from indelible.contract.plugin.suite import MemoryContract as MemoryContract

# Without MemoryContract: a star import must not need pytest.
__all__ = [
    "CONTRACT_VERSION",
    "CORRUPTED",
    "NOT_FOUND",
    "Adapter",
    "Anomaly",
    "CaseResult",
    "Conflict",
    "Deviations",
    "Explanation",
    "Failure",
    "Handle",
    "HistoryError",
    "NotFound",
    "Ok",
    "Operation",
    "Policy",
    "Refused",
    "Replay",
    "Report",
    "Undecided",
    "Unreachable",
    "Verdict",
    "Violated",
    "check",
    "check_history",
    "explain",
    "explain_trace",
    "explore",
    "judge",
    "load_trace",
    "minimal",
    "read_deviations",
    "read_history",
    "record",
    "recorded",
    "replay_trace",
    "shrink_trace",
    "write_history",
    "write_test",
]


def __getattr__(name: str) -> Any:
    """What needs pytest is loaded when it is asked for."""
    if name == "MemoryContract":
        from indelible.contract.plugin.suite import MemoryContract  # noqa: PLC0415

        return MemoryContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
