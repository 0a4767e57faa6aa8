"""Memories: versions with an id, of which the newest visible one counts."""

import io

import pytest

from indelible import (
    ABSENT,
    ConflictError,
    LimitError,
    Source,
    StoredMemory,
    UsageError,
    build_collection_id,
    view,
)
from tests.support.stores import say

FACTS = ("users", "ana", "facts")


def texts(store, collection=FACTS, **options):
    return {memory.id: memory.text for memory in store.list_memories(collection, **options)}


def both(store, reopened):
    """The store, and then the same one opened again."""
    yield store
    yield reopened(store)


# Remembering


def test_a_memory_is_read_as_it_was_written(store, clock, reopened):
    receipt = store.remember(
        FACTS,
        "drinks tea",
        id="drink",
        value={"cups": [1, 2.5, None]},
        metadata={"topic": "food"},
        vector=[0.5, 0.25],
        source=("chat", [3, 4]),
        ttl=60,
    )
    for opened in both(store, reopened):
        memory = opened.get_memory(FACTS, "drink")
        assert (memory.collection, memory.id) == ("users/ana/facts", "drink")
        assert (memory.text, memory.value) == ("drinks tea", {"cups": [1, 2.5, None]})
        assert (memory.metadata, memory.vector) == ({"topic": "food"}, (0.5, 0.25))
        assert memory.source == Source(session_id="chat", positions=((3, 5),))
        assert (memory.position, receipt.positions) == (0, range(1))
        assert (memory.expires_at - memory.written_at).total_seconds() == 60


def test_the_newest_version_counts(store):
    for cups in range(3):
        store.remember(FACTS, f"{cups} cups", id="drink")
        store.remember(FACTS, "elsewhere", id=f"other {cups}")
    assert store.get_memory(FACTS, "drink").text == "2 cups"
    assert store.get_memory(FACTS, "drin") is None
    assert store.get_memory("nowhere", "drink") is None


def test_without_an_id_the_key_is_the_id(store):
    made = store.remember(FACTS, "one")
    store.remember(FACTS, "two", key="k")
    assert texts(store) == {made.key: "one", "k": "two"}


def test_the_same_key_is_the_same_version(store):
    first = store.remember(FACTS, "tea", id="drink", key="k")
    store.remember(FACTS, "coffee", id="drink")
    again = store.remember(FACTS, "tea", id="drink", key="k")
    assert (again.positions, again.replayed) == (first.positions, True)
    assert store.get_memory(FACTS, "drink").text == "coffee"
    with pytest.raises(ConflictError, match="other content"):
        store.remember(FACTS, "milk", id="drink", key="k")


def test_a_repeat_of_what_was_hidden_is_refused(store):
    store.remember(FACTS, "tea", id="drink", key="k")
    store.clear(build_collection_id(FACTS))
    with pytest.raises(ConflictError) as caught:
        store.remember(FACTS, "tea", id="drink", key="k")
    assert caught.value.details["reason"] == "hidden"


NOT_REMEMBERED = [
    {"text": None},
    {"id": ""},
    {"id": "a\0b"},
    {"id": 5},
    {"source": 5},
    {"source": ("chat", -1)},
    {"expected": "one"},
    {"expected": True},
    {"ttl": 0},
    {"vector": "no"},
    {"metadata": 5},
    {"value": {1}},
]


def test_what_cannot_be_remembered_is_refused(store):
    for wrong in NOT_REMEMBERED:
        with pytest.raises(UsageError):
            store.remember(FACTS, **{"text": "tea", "id": "drink", **wrong})
        assert store.list_memories(FACTS) == []


def test_an_entry_that_remember_would_refuse_is_refused(store):
    for fields in ({"id": "a\0b"}, {"id": "x" * 3000}, {"id": "m", "ttl_s": 1e15}):
        with pytest.raises(UsageError):
            store.add_entries("s", [StoredMemory(text="tea", **fields)])


def test_a_receipt_is_a_source(store):
    receipt = store.save_context("chat", "I drink tea", "noted")
    store.remember(FACTS, "drinks tea", id="drink", source=receipt)
    assert store.get_memory(FACTS, "drink").source.positions == ((0, 2),)


# Collections


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        (("a",), "a"),
        (("a", "b"), "a/b"),
        (("a/b",), "a~1b"),
        (("a~1b",), "a~01b"),
        (("a", "%", "*"), "a/%/*"),
    ],
)
def test_labels_are_told_apart(labels, name):
    assert build_collection_id(labels) == name


def test_what_is_no_collection_is_refused(store):
    for wrong in ((), ("",), ("a", ""), 5, ["a"], ("a", 5), ""):
        with pytest.raises(UsageError):
            store.remember(wrong, "tea")
        with pytest.raises(LimitError):
            store.remember(("a",) * 10_000, "tea")


@pytest.mark.parametrize("ids", ["a", None, 5])
def test_what_is_no_list_of_ids_is_refused(store, ids):
    with pytest.raises(UsageError):
        store.refresh_ttl("c", ids)


def test_collections_do_not_leak(store):
    every = [("a",), ("a", "b"), ("a/b",), ("ab",), ("a%",), ("a*",), ("a~1b",), ("A",)]
    for labels in every:
        store.remember(labels, repr(labels), id="same")
    for labels in every:
        assert texts(store, labels) == {"same": repr(labels)}


def test_memories_live_beside_messages(store):
    say(store, "s", "hello")
    store.remember("s", "said hello", id="greeting", source=("s", 0))
    assert [message.content for message in store.get_history("s")] == ["hello"]
    assert [entry.kind for entry in store.get_entries("s")] == ["message", "memory"]
    store.trim("s", keep_last=0)
    assert texts(store, "s") == {"greeting": "said hello"}


# Expected versions


def test_a_version_is_replaced_as_expected(store):
    first = store.remember(FACTS, "tea", id="drink", expected=ABSENT).positions[0]
    store.remember(FACTS, "bread", id="food")
    second = store.remember(FACTS, "coffee", id="drink", expected=first).positions[0]
    for expected in (first, ABSENT, second + 1):
        with pytest.raises(ConflictError) as caught:
            store.remember(FACTS, "milk", id="drink", expected=expected)
        assert caught.value.details["reason"] == "item"
        assert caught.value.details["actual"] == second
    assert store.get_memory(FACTS, "drink").text == "coffee"


def test_only_the_expected_version_is_retracted(store):
    first = store.remember(FACTS, "tea", id="drink").positions[0]
    second = store.remember(FACTS, "coffee", id="drink").positions[0]
    with pytest.raises(ConflictError) as caught:
        store.retract(FACTS, "drink", expected=first)
    assert caught.value.details["reason"] == "item"
    with pytest.raises(UsageError):
        store.retract(FACTS, "drink", expected="1")
    assert store.get_memory(FACTS, "drink").text == "coffee"
    done = store.retract(FACTS, "drink", expected=second, key="k")
    assert store.get_memory(FACTS, "drink") is None
    assert store.retract(FACTS, "drink", expected=second, key="k").positions == done.positions


def test_what_was_retracted_or_has_expired_is_absent(store, clock):
    store.remember(FACTS, "tea", id="drink")
    store.retract(FACTS, "drink")
    store.remember(FACTS, "coffee", id="drink", expected=ABSENT, ttl=5)
    with pytest.raises(ConflictError):
        store.remember(FACTS, "milk", id="drink", expected=ABSENT)
    clock.advance(5)
    store.remember(FACTS, "milk", id="drink", expected=ABSENT)
    assert texts(store) == {"drink": "milk"}


def test_a_repeat_that_expected_nothing_finds_its_own_version(store):
    first = store.remember(FACTS, "tea", id="drink", expected=ABSENT, key="k")
    again = store.remember(FACTS, "tea", id="drink", expected=ABSENT, key="k")
    assert (again.positions, again.replayed) == (first.positions, True)


def test_what_a_rollback_hid_is_not_expected(store):
    store.remember(FACTS, "tea", id="drink")
    snapshot = store.save_snapshot("users/ana/facts")
    later = store.remember(FACTS, "coffee", id="drink").positions[0]
    store.rollback_to_snapshot("users/ana/facts", snapshot.id)
    with pytest.raises(ConflictError):
        store.remember(FACTS, "milk", id="drink", expected=later)
    store.remember(FACTS, "milk", id="drink", expected=0)


# What is gone is not found


def test_what_was_retracted_is_not_found(store):
    store.remember(FACTS, "tea", id="drink")
    store.remember(FACTS, "bread", id="food")
    receipt = store.retract(FACTS, "drink", key="k")
    assert store.retract(FACTS, "drink", key="k").positions == receipt.positions
    assert store.get_memory(FACTS, "drink") is None
    assert texts(store) == {"food": "bread"}
    assert list(store.retract(FACTS, "drink").positions) == []
    assert list(store.retract(FACTS, "never there").positions) == []


def test_what_has_expired_is_not_found(store, clock):
    store.remember(FACTS, "tea", id="drink", ttl=5)
    store.remember(FACTS, "bread", id="food")
    clock.advance(4.999)
    assert set(texts(store)) == {"drink", "food"}
    clock.advance(0.001)
    assert store.get_memory(FACTS, "drink") is None
    assert texts(store) == {"food": "bread"}


def test_a_life_begins_again(store, clock):
    store.remember(FACTS, "tea", id="drink", ttl=5)
    store.remember(FACTS, "bread", id="food")
    clock.advance(4)
    (refreshed,) = store.refresh_ttl(FACTS, ["drink", "drink", "none"])
    assert refreshed.text == "tea"
    clock.advance(4)
    assert set(texts(store)) == {"drink", "food"}
    assert [memory.id for memory in store.refresh_ttl(FACTS, ["food"])] == ["food"]
    clock.advance(1)
    assert store.refresh_ttl(FACTS, ["drink"]) == []


def test_rollback_and_undo_decide_what_is_found(store):
    name = build_collection_id(FACTS)
    store.remember(FACTS, "tea", id="drink")
    snapshot = store.save_snapshot(name)
    store.remember(FACTS, "coffee", id="drink")
    store.remember(FACTS, "bread", id="food")
    store.rollback_to_snapshot(name, snapshot.id)
    assert texts(store) == {"drink": "tea"}
    store.undo(name)
    assert texts(store) == {"drink": "coffee", "food": "bread"}
    store.hide(name, [1])
    assert texts(store) == {"drink": "tea", "food": "bread"}
    store.clear(name)
    assert texts(store) == {}


def test_a_new_life_has_no_memories_of_the_last_one(make_store, clock):
    store = make_store(ttl=5)
    store.remember(FACTS, "tea", id="drink")
    clock.advance(6)
    assert texts(store) == {}
    store.remember(FACTS, "bread", id="food", expected=ABSENT)
    store.remember(FACTS, "milk", id="drink", expected=ABSENT)
    assert texts(store) == {"drink": "milk", "food": "bread"}


# Lists


def test_pages_are_by_id_and_complete(store):
    for n in range(30):
        store.remember(FACTS, f"old {n}", id=f"m{n % 10}", metadata={"n": n})
    store.retract(FACTS, "m3")
    expected = {f"m{n}": f"old {20 + n}" for n in range(10) if n != 3}
    assert texts(store) == expected
    found, cursor = {}, None
    while True:
        page = store.list_memories(FACTS, limit=2, cursor=cursor)
        found |= {memory.id: memory.text for memory in page}
        cursor = page.cursor
        if cursor is None:
            break
        assert len(page) == 2
    assert list(found.items()) == sorted(expected.items())


def test_a_filter_comes_before_the_limit(store):
    for n in range(20):
        store.remember(FACTS, f"text {n}", id=f"m{n:02}", metadata={"n": n}, value={"odd": n % 2})
    page = store.list_memories(FACTS, where={"metadata.n": {"$gte": 15}}, limit=3)
    assert ([memory.id for memory in page], page.cursor) == (["m15", "m16", "m17"], "m17")
    page = store.list_memories(FACTS, where={"metadata.n": {"$gte": 15}}, limit=3, cursor="m17")
    assert ([memory.id for memory in page], page.cursor) == (["m18", "m19"], None)
    assert len(store.list_memories(FACTS, where={"value.odd": 1})) == 10
    assert texts(store, where={"text": "text 7"}) == {"m07": "text 7"}
    with pytest.raises(UsageError, match="no such field"):
        store.list_memories(FACTS, where={"n": 1})


def test_many_versions_hide_no_other_memory(store):
    for n in range(300):
        store.remember(FACTS, f"version {n}", id="busy")
    store.remember(FACTS, "last", id="zzz")
    assert texts(store) == {"busy": "version 299", "zzz": "last"}
    assert texts(store, limit=1) == {"busy": "version 299"}
    store.hide(build_collection_id(FACTS), range(1, 300))
    assert texts(store) == {"busy": "version 0", "zzz": "last"}


# History


def test_history_says_what_removed_a_version(store, clock):
    name = build_collection_id(FACTS)
    store.remember(FACTS, "tea", id="drink", source=("chat", 7))
    store.remember(FACTS, "bread", id="food")
    store.remember(FACTS, "coffee", id="drink")
    store.retract(FACTS, "drink")
    store.remember(FACTS, "milk", id="drink", ttl=5)
    clock.advance(6)
    snapshot = store.save_snapshot(name)
    store.remember(FACTS, "wine", id="drink")
    store.rollback_to_snapshot(name, snapshot.id)
    store.remember(FACTS, "water", id="drink")
    told = [(each.memory.text, each.removed_by) for each in store.memory_history(FACTS, "drink")]
    assert told == [
        ("tea", "replaced"),
        ("coffee", "retracted"),
        ("milk", "expired"),
        ("wine", "rollback"),
        ("water", None),
    ]
    history = store.memory_history(FACTS, "drink")
    assert [each.current for each in history] == [False] * 4 + [True]
    assert history[0].memory.source == Source(session_id="chat", positions=((7, 8),))
    assert history[0].removed_at == history[1].memory.written_at
    assert store.memory_history(FACTS, "never") == []


def test_a_version_that_was_replaced_before_it_expired_says_so(store, clock):
    store.remember(FACTS, "tea", id="drink", ttl=10)
    clock.advance(5)
    store.refresh_ttl(FACTS, ["drink"])
    clock.advance(6)
    told = [(each.removed_by, each.current) for each in store.memory_history(FACTS, "drink")]
    assert told == [("replaced", False), (None, True)]


def test_a_repeated_retraction_that_was_rolled_back_is_refused(store):
    store.remember(FACTS, "tea", id="drink")
    snapshot = store.save_snapshot(build_collection_id(FACTS))
    store.retract(FACTS, "drink", key="k")
    store.rollback_to_snapshot(build_collection_id(FACTS), snapshot.id)
    with pytest.raises(ConflictError):
        store.retract(FACTS, "drink", key="k")
    assert texts(store) == {"drink": "tea"}


def test_ids_to_refresh_are_a_list(store):
    with pytest.raises(UsageError):
        store.refresh_ttl(FACTS, "drink")


def test_old_versions_can_be_freed(store):
    for n in range(10):
        store.remember(FACTS, f"tea {n}", id="drink")
        store.remember(FACTS, f"bread {n}", id="food")
    change = store.compact_memories(FACTS, keep=2)
    assert len(change.dropped) == 16
    assert texts(store) == {"drink": "tea 9", "food": "bread 9"}
    assert store.vacuum(undo_window=0).entries == 16
    assert [each.memory.text for each in store.memory_history(FACTS, "drink")] == ["tea 8", "tea 9"]
    assert texts(store) == {"drink": "tea 9", "food": "bread 9"}
    assert store.verify().ok


def test_of_too_many_runs_of_old_versions_the_longest_are_freed(store, monkeypatch):
    monkeypatch.setattr(view, "EXTENTS_MAX", 4)
    for n in range(6):
        store.remember(FACTS, f"fact {n}", id=str(n))
        for _ in range(n + 1):
            store.remember(FACTS, f"tea {n}", id="drink")
    change = store.compact_memories(FACTS, keep=1)
    # Two gaps leave three runs visible. The last one has the newest version, and is one shorter.
    assert len(change.dropped) == 5 + 5
    assert texts(store)["drink"] == "tea 5"
    assert len(texts(store)) == 7


# Erasing


def test_an_erased_memory_never_comes_back(store, reopened):
    name = build_collection_id(FACTS)
    store.remember(FACTS, "secret one", id="secret", key="k")
    store.remember(FACTS, "bread", id="food")
    snapshot = store.save_snapshot(name)
    store.remember(FACTS, "secret two", id="secret")
    receipt = store.erase_memory(FACTS, "secret")
    assert receipt.entries == 2
    store.rollback_to_snapshot(name, snapshot.id)
    store.undo(name)
    for opened in both(store, reopened):
        assert opened.get_memory(FACTS, "secret") is None
        assert opened.memory_history(FACTS, "secret") == []
        assert texts(opened) == {"food": "bread"}
        exported = io.StringIO()
        opened.export(exported)
        assert "secret" not in exported.getvalue()
        assert opened.verify().ok
    with pytest.raises(ConflictError, match="other content"):
        opened.remember(FACTS, "secret one", id="secret", key="k")
    assert opened.erase_memory(FACTS, "secret").entries == 0
    opened.remember(FACTS, "new", id="secret", expected=ABSENT)
    assert texts(opened) == {"food": "bread", "secret": "new"}


def test_what_an_earlier_life_stored_is_erased_too(make_store, clock, reopened):
    store = make_store(ttl=5)
    store.remember(FACTS, "secret one", id="secret")
    clock.advance(6)
    store.remember(FACTS, "bread", id="food")
    store.erase_memory(FACTS, "secret")
    clock.advance(6)
    store.erase_memory(FACTS, "food")
    exported = io.StringIO()
    reopened(store).export(exported)
    assert "secret" not in exported.getvalue()


def test_the_only_memory_of_a_collection_with_a_deadline_is_erased(make_store, clock):
    store = make_store(ttl=100)
    store.remember(FACTS, "secret", id="secret")
    assert store.erase_memory(FACTS, "secret").entries == 1
    clock.advance(50)
    store.remember(FACTS, "tea", id="drink")
    assert texts(store) == {"drink": "tea"}
    clock.advance(101)
    assert texts(store) == {}
    store.remember(FACTS, "milk", id="drink", expected=ABSENT)


def test_erasing_the_newest_entry_keeps_the_end_of_the_log(store, reopened):
    store.remember(FACTS, "bread", id="food")
    store.remember(FACTS, "secret", id="secret")
    version = store.session(build_collection_id(FACTS)).version
    store.erase_memory(FACTS, "secret")
    opened = reopened(store)
    assert opened.session(build_collection_id(FACTS)).version == version
    assert list(opened.remember(FACTS, "tea", id="drink").positions) == [2]


# Whole collections


def test_a_fork_has_its_own_memories(store):
    name = build_collection_id(FACTS)
    store.remember(FACTS, "tea", id="drink")
    store.remember(FACTS, "coffee", id="drink")
    store.remember(FACTS, "bread", id="food")
    store.fork(name, "fork")
    assert texts(store, "fork") == texts(store) == {"drink": "coffee", "food": "bread"}
    store.remember("fork", "milk", id="drink", expected=1)
    assert texts(store)["drink"] == "coffee"
    assert store.erase_memory(FACTS, "drink").forks == ("fork",)
    assert texts(store, "fork")["drink"] == "milk"


def test_memories_are_exported_and_imported(store, make_store):
    store.remember(FACTS, "tea", id="drink", metadata={"a": 1}, vector=[1.0], ttl=500)
    store.remember(FACTS, "bread", id="food", source=("chat", 1))
    store.erase_memory(FACTS, "drink")
    store.remember(FACTS, "coffee", id="drink")
    exported = io.StringIO()
    store.export(exported)
    exported.seek(0)
    other = make_store(namespace="other")
    other.import_(exported)
    assert other.list_memories(FACTS) == store.list_memories(FACTS)
    other.remember(FACTS, "milk", id="drink", expected=2)
    assert other.verify().ok


def test_forget_takes_the_index_with_it(store):
    store.remember(FACTS, "tea", id="drink")
    store.forget(build_collection_id(FACTS))
    assert texts(store) == {}
    store.remember(FACTS, "bread", id="food", expected=ABSENT)
    assert texts(store) == {"food": "bread"}
