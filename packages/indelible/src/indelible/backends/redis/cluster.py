"""Which server has which keys: the map of a cluster, without any I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from redis.crc import key_slot


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


class Range(NamedTuple):
    """Slots that one primary serves, both ends included."""

    first: int
    last: int
    primary: Address


class SlotMap:
    """The primaries of a cluster and their slots, as one of them described it."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._ranges = sorted(ranges)
        self._starts = [each.first for each in self._ranges]
        # In the order of their first slots: after a failover, the new one stands where the old did.
        self.primaries = tuple(dict.fromkeys(each.primary for each in self._ranges))

    def primary_of(self, key: str) -> Address | None:
        """Who serves a key; None if nobody does."""
        slot = key_slot(key.encode())
        at = bisect_right(self._starts, slot) - 1
        if at >= 0 and slot <= self._ranges[at].last:
            return self._ranges[at].primary
        return None

    def moved(self, slot: int, to: Address) -> SlotMap:
        """The map after one slot moved."""
        ranges = []
        for each in self._ranges:
            if not each.first <= slot <= each.last:
                ranges.append(each)
                continue
            if each.first < slot:
                ranges.append(each._replace(last=slot - 1))
            if slot < each.last:
                ranges.append(each._replace(first=slot + 1))
        return SlotMap([*ranges, Range(slot, slot, to)])


def map_of(reply: Sequence[Any], asked: Address) -> SlotMap:
    """The map that CLUSTER SLOTS describes. A server without a host is the one that was asked."""
    ranges = []
    for first, last, primary, *_ in reply:
        host = primary[0]
        name = host.decode() if isinstance(host, bytes) else host
        address = Address(name if name and name != "?" else asked.host, int(primary[1]))
        ranges.append(Range(int(first), int(last), address))
    return SlotMap(ranges)
