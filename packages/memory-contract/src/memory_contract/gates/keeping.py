"""What nobody asked to go stays."""

from __future__ import annotations

import gc
from typing import Final

from memory_contract.cases import case
from memory_contract.gates.pacing import paced
from memory_contract.room import Room

# More than the small caches hold that people put before a store.
OTHERS: Final = 150


@case("lifecycle", catches="a cache or an eviction that drops sessions which nobody touched")
def nothing_goes_unasked(room: Room) -> None:
    """A session that was written first is still whole after many others came and were read."""
    store, first = room.open(), room.session()
    for _ in range(3):
        store.append(first)
    for _ in paced(room, range(OTHERS), "other sessions", least=20):
        other = room.session()
        store.append(other)
        store.read(other)
    gc.collect()
    store.read(first)
    room.read_afresh([first])
