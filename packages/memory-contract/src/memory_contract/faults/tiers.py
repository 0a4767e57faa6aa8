"""Which faults can be injected on this machine, and why others cannot."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from memory_contract.faults.servers import postgres, valkey
from memory_contract.faults.servers.process import ServerError
from memory_contract.faults.vfs.sqlite import SymbolsMissing, find_standard
from memory_contract.gates import Tier


@dataclass(frozen=True, slots=True)
class FaultTool:
    """Something that faults are injected with."""

    tier: Tier
    name: str
    # The faults that it makes.
    makes: str
    # Why it is not here, and what would bring it; empty if it is here.
    missing: str


def list_fault_tools() -> list[FaultTool]:
    """Return all tools, in the order of the tiers."""
    can_fork = hasattr(os, "fork") and hasattr(signal, "SIGSTOP")
    no_fork = "" if can_fork else "this system cannot fork and stop processes"
    no_apsw = "" if importlib.util.find_spec("apsw") else "pip install apsw"
    return [
        FaultTool("nothing", "processes", "kill -9, forks, pauses, clocks", no_fork),
        FaultTool("nothing", "SQLite by apsw", "power loss, I/O errors, full disks", no_apsw),
        FaultTool(
            "nothing",
            "SQLite of Python",
            "the same for stores on sqlite3",
            _explain_missing(find_standard),
        ),
        FaultTool(
            "server",
            "Valkey or Redis",
            "servers killed, frozen or emptied",
            _explain_missing(valkey.find_program),
        ),
        FaultTool("server", "PostgreSQL", "the same", _explain_missing(postgres.find_programs)),
    ]


def _explain_missing(find: Callable[[], object]) -> str:
    try:
        find()
    except (ServerError, SymbolsMissing, ImportError) as error:
        return str(error)
    return ""
