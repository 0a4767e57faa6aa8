"""What nobody asked to go stays."""

from __future__ import annotations

import gc
from typing import Final

from memory_contract.case_context import CaseContext
from memory_contract.cases.case import case
from memory_contract.cases.pacing import paced

# More than the small caches hold that people put before a store.
OTHERS: Final = 150


@case("lifecycle", catches="a cache or an eviction that drops sessions which nobody touched")
def nothing_goes_unasked(context: CaseContext) -> None:
    """A session that was written first is still whole after many others came and were read."""
    store, first = context.open(), context.new_session()
    for _ in range(3):
        store.append(first)
    for _ in paced(context, range(OTHERS), "other sessions", least=20):
        other = context.new_session()
        store.append(other)
        store.read(other)
    gc.collect()
    store.read(first)
    context.read_with_fresh_client([first])
