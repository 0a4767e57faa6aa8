"""Traces in `tests/incidents/` as items of pytest: each must be FIXED.

The store comes from the command line or the configuration. The name in a trace is used only if
`incidents.trusted_targets` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_contract.adapter import Adapter
from memory_contract.history import HistoryError
from memory_contract.plugin.stores import get_stores
from memory_contract.plugin.verdicts import format_target
from memory_contract.results import Unreachable
from memory_contract.targets import TargetError
from memory_contract.traces.regression_test import TIMES
from memory_contract.traces.replay import LoadedTrace, load_trace, replay_lines
from memory_contract.traces.trusted_targets import OPTION, resolve_named_target


class IncidentFile(pytest.File):
    """A trace."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item for each store that it is held against."""
        try:
            trace = load_trace(self.path)
        except HistoryError as error:
            raise self.CollectError(str(error)) from error
        named: list[str] = self.config.getoption("contract")
        if not named and (configured := self.config.getini("contract_store")):
            named = [configured]
        stores = named or [trace.metadata.store]
        for store in stores:
            name = "replay" if len(stores) == 1 else f"replay[{format_target(store)}]"
            yield IncidentItem.from_parent(
                self, name=name, trace=trace, store=store, trusted=bool(named)
            )


class IncidentItem(pytest.Item):
    """One trace against one store."""

    def __init__(self, *, trace: LoadedTrace, store: str, trusted: bool, **options: Any) -> None:
        super().__init__(**options)
        self._trace = trace
        self._against = store
        # Whether the person who runs the tests named the store, and not the trace.
        self._trusted = trusted
        # A project may hold that warnings are errors; a store's verdict must not depend on it.
        self.add_marker(pytest.mark.filterwarnings("default"))

    def runtest(self) -> None:
        """Replay it; everything but FIXED is a failure, or not claimed."""
        if not self._against:
            pytest.fail(
                "nobody said which store this is about: pytest --contract TARGET,"
                " or contract_store in the configuration of pytest",
                pytrace=False,
            )
        stores = get_stores(self.config)
        try:
            subject = stores.of(self._target())
        except (Unreachable, TargetError) as error:
            pytest.fail(format_target(f"{self._against}: {error}"), pytrace=False)
        found = replay_lines(
            self._trace, subject, level=self._trace.metadata.level, seed=stores.seed, times=TIMES
        )
        if found.lacking:
            pytest.skip(f"NOT CLAIMED: {found.reason}")
        if found.verdict != "FIXED":
            pytest.fail(found.told, pytrace=False)

    def _target(self) -> str | Adapter:
        if self._trusted:
            return self._against
        return resolve_named_target(self._against, self.config.getini(OPTION))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it stands."""
        return self.path, 0, f"{self.path.stem} against {format_target(self._against)}"
