"""Values beside the log read back as they were written, whatever callers name things."""

import pytest

import indelible
from indelible.core.operations import ChangeView, Quarantine, ReadHead, ReadQuarantine

HOSTILE = ["a b", "a|b", "|", "a\nb", "1 2 3 4|0 |0 |x", "\0", "é ü", " ", "\N{GRINNING FACE}"]


@pytest.fixture
def store(url):
    with indelible.open(url) as opened:
        opened.add_message("s", "user", "hi")
        yield opened


@pytest.mark.parametrize("name", HOSTILE)
def test_a_change_and_its_key_may_be_named_anything(store, name):
    backend = store._backend
    head = backend.perform(ReadHead("s"))
    change = ChangeView(
        "s",
        head.life,
        head.generation,
        head.vacuums,
        change=name,
        key=name,
        extents=(),
        tail=None,
    )
    made = backend.perform(change).line
    assert (made.change, made.key) == (name, name)
    again = backend.perform(change)
    assert again.replayed
    assert again.line == made
    (listed,) = store.timeline("s").changes
    assert (listed.change, listed.key) == (name, name)
    store.undo("s")
    assert len(store.get_history("s")) == 1
    assert store.verify().ok


@pytest.mark.parametrize("name", HOSTILE)
def test_a_label_may_be_anything(store, name):
    snapshot = store.save_snapshot("s", label=name)
    store.clear("s")
    store.rollback_to_snapshot("s", snapshot.id)
    assert [each.label for each in store.list_snapshots("s")] == [name]
    assert len(store.get_history("s")) == 1


@pytest.mark.parametrize("reason", HOSTILE)
def test_a_reason_for_quarantine_may_be_anything(store, reason):
    backend = store._backend
    backend.perform(Quarantine("s", ((0, reason, b"\n1 2\xff"),)))
    assert backend.perform(ReadQuarantine("s")) == ((0, reason, b"\n1 2\xff"),)
