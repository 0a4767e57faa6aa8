"""Adapters whose methods are made in pairs, blocking and awaited."""

import inspect
import pickle

import pytest

from indelible.adapters.store_variants import StoreVariants, make_pair


class Counter(StoreVariants):
    async def _count(self, store, session, *, more=0):
        return more

    count, acount = make_pair(_count)


@pytest.mark.parametrize("name", ["count", "acount"])
def test_a_method_of_a_pair_has_the_name_under_which_it_is_found(name):
    method = getattr(Counter, name)
    assert (method.__name__, method.__qualname__) == (name, f"Counter.{name}")
    assert str(inspect.signature(method)) == "(self, session, *, more=0)"
    assert inspect.iscoroutinefunction(method) == (name == "acount")
    assert pickle.loads(pickle.dumps(method)) is method
    assert pickle.loads(pickle.dumps(getattr(Counter(), name))).__func__ is method
