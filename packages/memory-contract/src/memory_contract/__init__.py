"""The contract kit: what a store of an agent's memory owes, and how to tell whether it keeps it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from memory_contract.adapter import Adapter, Conflict, Handle, NotFound, Refused
    from memory_contract.checker import check_history, judge
    from memory_contract.checker.explain import explain
    from memory_contract.checker.shrink import minimal
    from memory_contract.checker.verdict import Anomaly, Ok, Undecided, Verdict, Violated
    from memory_contract.contract_run import check
    from memory_contract.deviations import Deviations, read_deviations
    from memory_contract.explorer import explore
    from memory_contract.history import (
        CORRUPTED,
        NOT_FOUND,
        HistoryError,
        Operation,
        read_history,
        write_history,
    )
    from memory_contract.plugin.suite import MemoryContract as MemoryContract
    from memory_contract.results import (
        CONTRACT_VERSION,
        CaseResult,
        Report,
        Unreachable,
    )
    from memory_contract.traces.diagnosis import Explanation, explain_trace
    from memory_contract.traces.recorder import Policy, record, recorded
    from memory_contract.traces.regression_test import write_test
    from memory_contract.traces.replay import Replay, load_trace, replay_trace
    from memory_contract.traces.shrink import shrink_trace

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
