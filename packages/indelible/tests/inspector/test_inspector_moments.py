"""The moments of a session, in order."""

import indelible
from indelible.inspector.moments import list_moments
from tests.support.stores import Clock


def test_moments_of_one_millisecond_are_in_order():
    with indelible.open("memory:", clock=Clock()) as store:
        store.add_message("s", "user", "one")
        store.save_snapshot("s", label="first")
        store.clear("s")
        store.add_message("s", "user", "two")
        store.save_snapshot("s", label="second")
        store.add_message("s", "user", "three")
        store.trim("s", keep_last=1, align=None)
        store.save_snapshot("s", label="third")
        moments = list_moments(store.timeline("s"))
    assert [(moment.label, moment.extents, len(moment.changes)) for moment in moments] == [
        ("snapshot “first”", ((0, 1),), 0),
        ("before the clear", ((0, 1),), 0),
        ("after the clear", (), 1),
        ("snapshot “second”", ((1, 2),), 1),
        ("before the trim", ((1, 3),), 1),
        ("after the trim", ((2, 3),), 2),
        ("snapshot “third”", ((2, 3),), 2),
        ("now", ((2, 3),), 2),
    ]
