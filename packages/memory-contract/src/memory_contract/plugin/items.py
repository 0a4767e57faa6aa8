"""The contract as items of pytest: `contract/concurrency/append_storm[processes]`."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memory_contract.cli.check import explain_factory
from memory_contract.contract_run import Item, list_items, select
from memory_contract.errors import KitError, UsageError
from memory_contract.plugin.stores import (
    ContractStores,
    format_target,
    format_unclaimed,
    get_stores,
    raise_outcome,
)
from memory_contract.results import Unreachable
from memory_contract.runner import StoreUnderTest

ROOT = "contract"


def validate(config: pytest.Config) -> None:
    """Refuse options that cannot be run with a message, before anything runs."""
    try:
        select(config.getoption("contract_gate"))
        for target in config.getoption("contract"):
            get_stores(config).resolve(target)
    except UsageError as error:
        lines = [str(error), *explain_factory(error.hint).splitlines()]
        raise pytest.UsageError("\n".join(map(format_target, lines))) from error
    except Unreachable:
        # The target is valid but cannot be opened: an error of the run, not of the command line.
        return


def header(config: pytest.Config) -> str:
    """Which stores, and the seed that repeats the run."""
    targets = ", ".join(map(format_target, config.getoption("contract")))
    return f"contract: {targets}, seed {get_stores(config).seed}"


def collect_items(session: pytest.Session, ids: Sequence[str]) -> Iterator[pytest.Item]:
    """The items of every store; only those of `ids`, if there are any."""
    targets: list[str] = session.config.getoption("contract")
    for target in targets:
        node = Contract.from_parent(
            session, name=ROOT, nodeid=ROOT, target=target, alone=len(targets) == 1, ids=ids
        )
        for found in session.genitems(node):
            assert isinstance(found, pytest.Item)
            yield found


class Contract(pytest.Collector):
    """The selected cases against one store."""

    def __init__(self, *, target: str, alone: bool, ids: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._target = target
        self._alone = alone
        self._ids = ids

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        """An item for each case in each mode."""
        stores = get_stores(self.config)
        try:
            subject = stores.of(self._target)
        except KitError as error:
            raise self.CollectError(format_target(f"{self._target}: {error}")) from error
        found = list_items(select(self.config.getoption("contract_gate")), subject)
        chosen = [item for item in found if self._is_asked_for(item)]
        if not chosen:
            raise self.CollectError(
                f"{format_target(self._target)}: there is no {' or '.join(self._ids)}"
            )
        return [
            ContractItem.from_parent(
                self,
                name=self._named(item),
                nodeid=f"{ROOT}/{item.case.gate}/{self._named(item)}",
                found=item,
                subject=subject,
                target=self._target,
            )
            for item in chosen
        ]

    def _named(self, item: Item) -> str:
        """The item's name in its gate; with several stores, it says which."""
        which = item.mode if self._alone else f"{format_target(self._target)}-{item.mode}"
        return f"{item.case.name}[{which}]"

    def _is_asked_for(self, item: Item) -> bool:
        ours = f"{ROOT}/{item.case.gate}/{self._named(item)}"
        return not self._ids or any(
            ours == wanted or ours.startswith((f"{wanted}/", f"{wanted}[")) for wanted in self._ids
        )

    def teardown(self) -> None:
        """Collect what a store left open here, so that warnings do not show up in other tests."""
        gc.collect()


class ContractItem(pytest.Item):
    """One case in one mode, against one store."""

    def __init__(
        self, *, found: Item, subject: StoreUnderTest, target: str, **options: Any
    ) -> None:
        super().__init__(**options)
        self._found = found
        self._subject = subject
        self._target = target
        # For `pytest -k concurrency`.
        self.extra_keyword_matches.add(found.case.gate)
        # A project may turn warnings into errors; a store's verdict must not depend on that.
        self.add_marker(pytest.mark.filterwarnings("default"))
        if found.known is not None and found.known.verdict == "NOT CLAIMED":
            self.add_marker(pytest.mark.skip(reason=format_unclaimed(found.known)))

    def runtest(self) -> None:
        """Run the case; its verdict is the item's outcome."""
        stores: ContractStores = get_stores(self.config)
        self.user_properties.append(("contract_seed", stores.seed))
        raise_outcome(stores.run(self._found, self._subject), self._target)

    def reportinfo(self) -> tuple[Path, int, str]:
        """One location for all items, so that pytest groups skips with the same reason."""
        return self.config.rootpath / ROOT, 0, self.nodeid
