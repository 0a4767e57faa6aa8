"""The contract kit: what a store of an agent's memory owes, and how to tell whether it keeps it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from memory_contract.adapter import Adapter as Adapter
    from memory_contract.adapter import Conflict as Conflict
    from memory_contract.adapter import Handle as Handle
    from memory_contract.adapter import NotFound as NotFound
    from memory_contract.adapter import Refused as Refused
    from memory_contract.checker import check_history as check_history
    from memory_contract.checker import judge as judge
    from memory_contract.checker.explain import explain as explain
    from memory_contract.checker.shrink import minimal as minimal
    from memory_contract.checker.verdict import Anomaly as Anomaly
    from memory_contract.checker.verdict import Ok as Ok
    from memory_contract.checker.verdict import Undecided as Undecided
    from memory_contract.checker.verdict import Verdict as Verdict
    from memory_contract.checker.verdict import Violated as Violated
    from memory_contract.contract_run import check as check
    from memory_contract.deviations import Deviations as Deviations
    from memory_contract.deviations import read_deviations as read_deviations
    from memory_contract.explorer import explore as explore
    from memory_contract.history import CORRUPTED as CORRUPTED
    from memory_contract.history import NOT_FOUND as NOT_FOUND
    from memory_contract.history import HistoryError as HistoryError
    from memory_contract.history import Operation as Operation
    from memory_contract.history import read_history as read_history
    from memory_contract.history import write_history as write_history
    from memory_contract.plugin.suite import MemoryContract as MemoryContract
    from memory_contract.results import CONTRACT_VERSION as CONTRACT_VERSION
    from memory_contract.results import CaseResult as CaseResult
    from memory_contract.results import Report as Report
    from memory_contract.results import Unreachable as Unreachable
    from memory_contract.traces.diagnosis import Explanation as Explanation
    from memory_contract.traces.diagnosis import explain_trace as explain_trace
    from memory_contract.traces.recorder import Policy as Policy
    from memory_contract.traces.recorder import record as record
    from memory_contract.traces.recorder import recorded as recorded
    from memory_contract.traces.regression_test import write_test as write_test
    from memory_contract.traces.replay import Replay as Replay
    from memory_contract.traces.replay import load_trace as load_trace
    from memory_contract.traces.replay import replay_trace as replay_trace
    from memory_contract.traces.shrink import shrink_trace as shrink_trace

# The module of each public name: loaded when it is asked for, since a process that is forked for
# every check has no use for most of them.
_MODULES: Final = {
    "adapter": "Adapter Conflict Handle NotFound Refused",
    "checker": "check_history judge",
    "checker.explain": "explain",
    "checker.shrink": "minimal",
    "checker.verdict": "Anomaly Ok Undecided Verdict Violated",
    "contract_run": "check",
    "deviations": "Deviations read_deviations",
    "traces.diagnosis": "Explanation explain_trace",
    "explorer": "explore",
    "history": "CORRUPTED NOT_FOUND HistoryError Operation read_history write_history",
    "traces.regression_test": "write_test",
    "traces.recorder": "Policy record recorded",
    "traces.replay": "Replay load_trace replay_trace",
    "results": "CONTRACT_VERSION CaseResult Report Unreachable",
    "traces.shrink": "shrink_trace",
    "plugin.suite": "MemoryContract",
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names.split()}
# Without MemoryContract: a star import must not need pytest.
__all__ = [name for name in _MODULE_OF if name != "MemoryContract"]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """All public names, loaded or not."""
    return sorted({*globals(), *__all__})
