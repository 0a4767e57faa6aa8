"""The contract as a class of tests, for those who run tests from an editor.

class TestMyStore(MemoryContract):
    adapter = "mystore.contract:adapter"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import pytest

from memory_contract.cases.case import Case
from memory_contract.cases.catalogue import all_cases
from memory_contract.contract_run import Item, list_items
from memory_contract.errors import KitError
from memory_contract.plugin.stores import Target, format_unclaimed, get_stores, raise_outcome

# Members that a subclass may not replace.
HELD: Final = ("test_", "pytest_generate_tests")
_GUARD: Final = "test_nothing_is_overridden"


class MemoryContract:
    """The contract as a class: subclass it and set `adapter`, nothing else.

    `adapter` is an `Adapter`, a class that the kit can drive, or a target of the command `check`.
    """

    __test__: ClassVar[bool] = False
    adapter: ClassVar[Target | None] = None
    # A project may turn warnings into errors; a store's verdict must not depend on that.
    pytestmark: ClassVar = [pytest.mark.filterwarnings("default")]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if _GUARD in vars(cls):
            raise TypeError(f"{cls.__name__} replaces {_GUARD}, which holds it to the contract")
        cls.__test__ = True

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Each case in each mode that the store has."""
        found = getattr(metafunc.function, "contract_case", None)
        if isinstance(found, Case):
            items = _items(found, self.adapter, metafunc.config)
            metafunc.parametrize("item", [_parameter(item) for item in items])

    def test_nothing_is_overridden(self) -> None:
        """Fail if a subclass replaces a case, which would then not run."""
        ours = {
            name: value for name, value in vars(MemoryContract).items() if name.startswith(HELD)
        }
        touched = sorted(name for name in ours if getattr(type(self), name, None) is not ours[name])
        if touched:
            pytest.fail(f"these belong to the contract: {', '.join(touched)}", pytrace=False)


def _items(found: Case, adapter: Target | None, config: pytest.Config) -> list[Item]:
    if adapter is None:
        pytest.fail("say what the `adapter` is", pytrace=False)
    try:
        return list_items([found], get_stores(config).of(adapter))
    except KitError as error:
        pytest.fail(str(error), pytrace=False)


def _parameter(item: Item) -> Any:
    known = item.known
    if known is not None and known.verdict == "NOT CLAIMED":
        return pytest.param(
            item, id=item.mode, marks=pytest.mark.skip(reason=format_unclaimed(known))
        )
    return pytest.param(item, id=item.mode)


def _test_of(found: Case) -> Callable[..., None]:
    def test(self: MemoryContract, item: Item, pytestconfig: pytest.Config) -> None:
        assert self.adapter is not None
        stores = get_stores(pytestconfig)
        target = self.adapter if isinstance(self.adapter, str) else ""
        raise_outcome(stores.run(item, stores.of(self.adapter)), target)

    test.__name__ = f"test_{found.gate}_{found.name}"
    test.__qualname__ = f"MemoryContract.{test.__name__}"
    test.__doc__ = found.does
    test.contract_case = found  # type: ignore[attr-defined]
    return test


for _found in all_cases():
    setattr(MemoryContract, f"test_{_found.gate}_{_found.name}", _test_of(_found))
