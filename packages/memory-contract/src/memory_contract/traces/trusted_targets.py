"""Which store a trace is replayed against where only the trace names one.

A trace is data, and may come from anybody. A target can import a module, call it, and connect to a
server with the credentials of this environment. So the name in a trace is used only if the
configuration of the project lists it too, or if it stands for one of our own embedded engines,
which are then opened on temporary files and never on the path that the trace names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import PurePath
from typing import Final

from memory_contract.adapter import Adapter
from memory_contract.redaction import redact_url
from memory_contract.targets import TargetError, resolve

# The option of pytest's configuration that lists the targets a trace may name.
OPTION: Final = "contract_targets"
# Files that are taken for databases by their names.
FILES: Final = {".db", ".sqlite", ".sqlite3"}


def resolve_named_target(named: str, allowed: Iterable[str]) -> str | Adapter:
    """Return the target to use for the name in a trace, or raise `TargetError`.

    A name that is allowed is returned as the configuration spells it.
    """
    for target in allowed:
        if target == named:
            return target
    if named == "memory:":
        return named
    if _is_sqlite(named):
        return _open_temporary_sqlite()
    shown = redact_url(named)
    raise TargetError(
        f"this trace asks for the store {shown!r}, which the project's configuration does not list."
        " Nothing was imported or connected to. If you trust it, add this to the configuration of"
        f" pytest: {OPTION} = {shown}"
        " (or name the store yourself: pytest --contract TARGET, or contract_store)"
    )


def _is_sqlite(named: str) -> bool:
    scheme, separator, _ = named.partition("://")
    if separator:
        return scheme == "sqlite"
    return ":" not in named and PurePath(named).suffix in FILES


@cache
def _open_temporary_sqlite() -> Adapter:
    """Run on SQLite files in the system's folder for temporary files."""
    return replace(resolve("sqlite:///store.db"), home=None)
