"""A snapshot is a few bytes, whatever happened before it; and where that ends, nothing is lost."""

from __future__ import annotations

import pytest

from indelible import Durability, LimitError, view
from indelible.view import EXTENTS_MAX
from tests.support.sqlite.seams import beside, blocking, forging

PAGE_BYTES = 4096
ROW_BYTES = """
    SELECT max(length(id) + ifnull(octet_length(label), 0) + length(extents) + 6 * 9) FROM snapshot
"""
# What is kept and what is rolled back, one after the other: one more piece for each cycle.
KEPT, ROLLED_BACK = "kept", "rolled back"


class Cycles:
    """A session in which all is said twice: rolled back to a snapshot, said anew, and saved."""

    def __init__(self, store, session):
        self._store = store
        self._session = session
        self.snapshots = []

    def begin(self):
        self._store.add_message(self._session, "user", KEPT)
        self._save()

    def cycle(self):
        self._store.add_message(self._session, "user", ROLLED_BACK)
        self._store.rollback_to_snapshot(self._session, self.snapshots[-1].id)
        self._store.add_message(self._session, "user", KEPT)
        self._save()

    def _save(self):
        taken = self._store.save_snapshot(self._session, label=f"cycle {len(self.snapshots)}")
        self.snapshots.append(taken)


def pieces(count):
    """What a session shows after so many cycles."""
    return tuple((2 * n, 2 * n + 1) for n in range(count + 1))


def contents(store, session):
    return [message.content for message in store.get_history(session)]


@pytest.fixture
def store(path):
    with blocking(path, durability=Durability.PROCESS) as store:
        yield store


@pytest.fixture
def almost_full(store, path):
    """A session that is twenty cycles before the end; it was brought there in one go."""
    cycles = EXTENTS_MAX - 21
    said = [KEPT, *[ROLLED_BACK, KEPT] * cycles]
    for start in range(0, len(said), 1000):
        batch = [{"role": "user", "content": text} for text in said[start : start + 1000]]
        store.add_messages("session", batch)
    shown = view.build_view(pieces(cycles), len(said))
    with forging(path) as file:
        file.execute(
            "UPDATE session SET extents = ?, tail = ?",
            (view.encode(shown.extents), shown.tail),
        )
    made = Cycles(store, "session")
    made.snapshots.append(store.save_snapshot("session"))
    return made


def test_each_rollback_and_snapshot_adds_a_piece(store):
    cycles = Cycles(store, "session")
    cycles.begin()
    for count in range(1, 50):
        cycles.cycle()
        assert cycles.snapshots[-1].extents == pieces(count)
        assert contents(store, "session") == [KEPT] * (count + 1)


def test_after_a_thousand_rollbacks_a_snapshot_is_less_than_a_page(store, path, almost_full):
    for _ in range(20):
        almost_full.cycle()
    assert almost_full.snapshots[-1].extents == pieces(EXTENTS_MAX - 1)
    with beside(path) as file:
        assert EXTENTS_MAX <= file.execute(ROW_BYTES).get < PAGE_BYTES


def test_one_rollback_more_is_a_limit_and_nothing_is_lost(store, almost_full):
    for _ in range(20):
        almost_full.cycle()
    taken = list(almost_full.snapshots)
    with pytest.raises(LimitError) as caught:
        almost_full.cycle()
    assert (caught.value.limit, caught.value.actual) == (EXTENTS_MAX, EXTENTS_MAX + 1)

    assert contents(store, "session") == [KEPT] * (EXTENTS_MAX + 1), "all that was said shows"
    assert store.list_snapshots("session") == taken
    for snapshot in taken[::10]:
        store.rollback_to_snapshot("session", snapshot.id)
        assert contents(store, "session") == [KEPT] * snapshot.entries
        store.undo("session")
    assert contents(store, "session") == [KEPT] * (EXTENTS_MAX + 1)


def test_the_two_ways_on_that_the_limit_names_lead_on(store, almost_full):
    for _ in range(20):
        almost_full.cycle()
    with pytest.raises(LimitError, match="trim it, or fork it"):
        almost_full.cycle()
    store.fork("session", "copy")
    assert contents(store, "copy") == [KEPT] * (EXTENTS_MAX + 1)
    assert len(store.save_snapshot("copy").extents) == 1
    store.trim("session", keep_last=10)
    assert store.save_snapshot("session").entries == 10
