"""Traces in folders called `incidents` as items of pytest: each must be FIXED.

A trace is data, and may come from anybody: the store that it is replayed against comes from the
command line or the configuration of pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_contract.errors import KitError
from memory_contract.history import HistoryError
from memory_contract.plugin.stores import format_target, get_stores
from memory_contract.traces.regression_test import TIMES
from memory_contract.traces.replay import LoadedTrace, load_trace, replay_lines


class IncidentFile(pytest.File):
    """A trace."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item for each store that it is replayed against."""
        stores: list[str] = self.config.getoption("contract")
        stores = stores or [self.config.getini("contract_store")]
        if not stores[0]:
            raise self.CollectError(
                "name the store that this trace is replayed against: pytest --contract TARGET, or"
                " contract_store in the configuration of pytest"
            )
        try:
            trace = load_trace(self.path)
        except HistoryError as error:
            raise self.CollectError(str(error)) from error
        for store in stores:
            name = "replay" if len(stores) == 1 else f"replay[{format_target(store)}]"
            yield IncidentItem.from_parent(self, name=name, trace=trace, store=store)


class IncidentItem(pytest.Item):
    """One trace against one store."""

    def __init__(self, *, trace: LoadedTrace, store: str, **options: Any) -> None:
        super().__init__(**options)
        self._trace = trace
        self._against = store
        # A project may turn warnings into errors; a store's verdict must not depend on that.
        self.add_marker(pytest.mark.filterwarnings("default"))

    def runtest(self) -> None:
        """Replay it; everything but FIXED is a failure, or not claimed."""
        stores = get_stores(self.config)
        try:
            subject = stores.of(self._against)
        except KitError as error:
            pytest.fail(format_target(f"{self._against}: {error}"), pytrace=False)
        found = replay_lines(self._trace, subject, seed=stores.seed, times=TIMES)
        if found.lacking:
            pytest.skip(f"NOT CLAIMED: {found.reason}")
        if found.verdict != "FIXED":
            pytest.fail(found.told, pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The location that pytest reports."""
        return self.path, 0, f"{self.path.stem} against {format_target(self._against)}"
