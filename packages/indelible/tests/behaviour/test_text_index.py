"""The index of words, on engines that have one: it is complete, or known not to be."""

import random

import pytest

import indelible
from indelible.backends.postgres import search as postgres_search
from indelible.backends.sqlite import search as sqlite_search
from indelible.backends.sqlite import text_index
from indelible.core import index_search, ranking
from indelible.core.limits import ITEMS_FIRST
from indelible.core.plans import maintenance
from indelible.core.plans import search as plan
from tests.support import postgres_server
from tests.support.stores import Stores, say

WORDS = ["cat", "dog", "rome", "paris", "rain", "sun", "tea", "piano", "violin", "walk", "the"]


@pytest.fixture(params=["sqlite-blocking", "postgres-blocking", "postgres-async"])
def stores(request, tmp_path):
    opened = Stores(request.param, tmp_path)
    if opened.engine == "postgres":
        # Without the statistics that the server has made of rows of other tests.
        opened.target = postgres_server.fresh_database()
    yield opened
    opened.close()


def found(store, query, **options):
    return [(hit.session_id, hit.position) for hit in store.search(query, **options)]


def refuse_to_read(*_):
    raise AssertionError("no session is read as a whole")


@pytest.fixture
def indexed_only(monkeypatch):
    """A search that reads a session as a whole fails."""
    monkeypatch.setattr(plan, "_read_session", refuse_to_read)


@pytest.fixture
def indexed_at_once(monkeypatch):
    """No entry waits for a portion to be full."""
    monkeypatch.setattr(text_index, "PORTION", 1)


@pytest.fixture
def all_large(monkeypatch):
    """Every scope counts as a large one."""
    set_large(monkeypatch, 0)


def set_large(monkeypatch, entries):
    for module in (sqlite_search, index_search):
        monkeypatch.setattr(module, "COMMON_WORD_ENTRIES", entries)
    monkeypatch.setattr(postgres_search, "SCAN_ENTRIES_MAX", entries)


# What is in the index


def test_every_entry_that_can_be_found_is_in_the_index(store, indexed_only):
    say(store, "s", "one cat", "two dogs")
    store.add_tool_call("s", "c", "look", {"at": "cat"})
    store.add_summary("s", "about pets")
    store.remember("s", None, id="m", value={"likes": ["tea", {"and": "rain"}]})
    assert found(store, "dog")[0] == ("s", 1)
    assert found(store, "pet") == [("s", 3)]
    assert found(store, "rain") == [("s", 4)]
    assert store.search("look") == []
    assert store.verify().ok


def test_copies_are_found_too(store, make_store, indexed_only, tmp_path):
    say(store, "s", "a cat", "a dog")
    store.fork("s", "copy")
    assert {session for session, _ in found(store, "cat")} == {"s", "copy"}
    store.export(tmp_path / "out.jsonl")
    other = make_store(namespace="other")
    other.import_(tmp_path / "out.jsonl")
    assert {session for session, _ in found(other, "dog")} == {"s", "copy"}
    assert other.verify().ok


@pytest.mark.parametrize("large", [False, True])
def test_namespaces_do_not_see_each_other(store, make_store, indexed_only, monkeypatch, large):
    if large:
        set_large(monkeypatch, 0)
    other = make_store(namespace="other")
    for n in range(20):
        say(store, f"a/{n}", "a cat")
        say(other, f"a/{n}", "a cat and a dog")
    assert found(store, "dog") == []
    assert len(found(store, "cat", k=100)) == 20
    assert len(found(store, "cat", under="a", k=100)) == 20
    assert found(store, "cat", sessions=["a/7"]) == [("a/7", 0)]
    assert len(found(other, "dog", k=100)) == 20


def test_what_is_gone_is_not_found_by_the_index(store, clock, indexed_only, all_large):
    say(store, "cleared", "a zebra")
    store.clear("cleared")
    store.remember("facts", "a zebra", id="m")
    store.retract("facts", "m")
    store.remember("facts", "a zebra", id="erased")
    store.erase_memory("facts", "erased")
    say(store, "forgotten", "a zebra")
    store.forget("forgotten")
    say(store, "expired", "a zebra", ttl=10)
    clock.advance(11)
    assert store.search("zebra") == []
    store.vacuum(undo_window=0)
    assert store.search("zebra") == []
    say(store, "expired", "another zebra")
    assert found(store, "zebra") == [("expired", 1)]
    assert store.verify().ok


# What the index lacks


def test_without_an_index_a_search_reads_and_reindex_completes_it(
    make_store, monkeypatch, indexed_at_once
):
    without = make_store(search=False)
    for n in range(30):
        say(without, f"s{n % 3}", f"number {n} cat")
    assert found(without, "number 17", k=1) == [("s2", 5)]
    store = make_store()
    say(store, "s0", "number 31 cat")
    assert len(found(store, "cat", k=100)) == 31
    assert store.verify().ok
    assert (store.reindex().entries, store.reindex().entries) == (30, 0)
    monkeypatch.setattr(plan, "_read_session", refuse_to_read)
    assert len(found(store, "cat", k=100)) == 31
    assert store.verify().ok


def test_a_reindex_goes_on_where_it_was_interrupted(make_store, monkeypatch):
    monkeypatch.setattr(maintenance, "INDEX_PAGE", 7)
    without = make_store(search=False)
    for n in range(30):
        say(without, f"s{n % 3}", f"number {n} cat")
    store = make_store()
    with pytest.raises(ZeroDivisionError):
        store.reindex(progress=lambda _, entries: 1 // (entries < 10))
    assert len(found(store, "cat", k=100)) == 30
    assert store.reindex().entries == 30 - 14
    monkeypatch.setattr(plan, "_read_session", refuse_to_read)
    assert len(found(store, "cat", k=100)) == 30
    assert store.verify().ok


def test_a_rebuilt_index_has_every_entry(make_store, indexed_only, monkeypatch):
    monkeypatch.setattr(maintenance, "INDEX_PAGE", 7)
    store, without = make_store(), make_store(search=False)
    for n in range(30):
        say(without if n % 5 == 0 else store, f"s{n % 3}", f"number {n} cat")
    assert store.reindex(rebuild=True).entries == 30
    assert len(found(store, "cat", k=100)) == 30
    assert store.reindex().entries == 0
    assert store.verify().ok


@pytest.mark.parametrize("rebuild", [False, True])
def test_what_is_erased_between_two_steps_of_a_reindex_is_not_found(
    stores, monkeypatch, indexed_only, rebuild
):
    monkeypatch.setattr(maintenance, "INDEX_PAGE", 2)
    store, without = stores.open(), stores.open(search=False)
    for n in range(8):
        without.remember("facts", f"zebra number {n}", id=f"m{n}")

    def erase(_, entries):
        # One that is indexed by now, and one that is not.
        with indelible.open(stores.target, clock=stores.clock) as other:
            other.erase_memory("facts", f"m{entries - 1}")
            other.erase_memory("facts", f"m{(entries + 1) % 8}")

    store.reindex(rebuild=rebuild, progress=erase)
    left = [memory.position for memory in store.list_memories("facts")]
    assert left == [0, 2, 4, 6]
    assert sorted(found(store, "zebra")) == [("facts", position) for position in left]
    assert store.verify().ok


# How it finds


def test_words_that_many_have_are_dropped_in_large_scopes(store, monkeypatch, indexed_at_once):
    set_large(monkeypatch, 50)
    for n in range(60):
        say(store, "s", f"a cat number {n}")
    say(store, "s", "a zebra")
    (best, *_) = store.search("Cats and zebras", k=100)
    assert (best.position, best.dropped) == (60, ("Cats",))
    # Common words find too, where there are no others.
    assert len(store.search("cat", k=100)) == 61, "all and the one beside them"
    assert {hit.dropped for hit in store.search("cat unheard")} == {()}
    assert store.search("cats zebra", sessions=["s"])[0].dropped == ("cats",)


@pytest.mark.parametrize("where", ["hidden", "expired", "elsewhere", "filtered out"])
def test_common_words_find_where_rarer_ones_find_nothing(
    store, make_store, clock, monkeypatch, indexed_at_once, where
):
    for n in range(60):
        say(store, "s", f"a cat number {n}")
    if where == "hidden":
        say(store, "other", "a zebra")
        store.clear("other")
    elif where == "expired":
        store.remember("other", "a zebra", ttl=5)
        clock.advance(5)
    elif where == "elsewhere":
        say(make_store(namespace="elsewhere"), "other", "a zebra")
    else:
        say(store, "other", "a zebra", role="assistant")
    set_large(monkeypatch, 50)
    hits = store.search("cats zebra", k=100, where={"role": "user"})
    assert len(hits) == 60
    assert {hit.dropped for hit in hits} == {()}


def test_small_scopes_drop_no_word(store):
    for n in range(60):
        say(store, "s", f"a cat number {n}")
    say(store, "s", "a zebra")
    hits = store.search("cats zebra", k=100)
    assert len(hits) == 61
    assert {hit.dropped for hit in hits} == {()}


@pytest.mark.parametrize("large", [False, True])
def test_matches_that_a_filter_leaves_out_make_room_for_others(
    store, monkeypatch, indexed_only, large
):
    monkeypatch.setattr(plan, "SEARCH_MATCHES", 4)
    if large:
        set_large(monkeypatch, 0)
    for n in range(200):
        role = "assistant" if n >= 190 else "user"
        store.add_message(f"s{n}", role, "cat cat cat" if n < 190 else "a cat, and many more words")
    hits = store.search("cat", where={"role": "assistant"}, k=5)
    assert len(hits) == 5
    assert len(store.search("cat", where={"role": "assistant"}, k=100)) == 10
    assert len(store.search("cat", k=1000)) == 200


def test_hidden_matches_make_room_for_others(store, monkeypatch, indexed_only):
    monkeypatch.setattr(plan, "SEARCH_MATCHES", 4)
    for n in range(40):
        store.remember("facts", f"cat {n}", id="same")
        say(store, "chat", "cat cat")
    store.clear("chat")
    say(store, "chat", "a cat among other words")
    assert set(found(store, "cat")) == {("facts", 39), ("chat", 40)}


@pytest.mark.parametrize("portion", [1, 8, 64])
def test_hidden_vectors_make_room_for_others(make_store, monkeypatch, portion):
    monkeypatch.setattr(text_index, "PORTION", portion)
    for module in (plan, index_search):
        monkeypatch.setattr(module, "SEARCH_MATCHES", 4)
    store, reading = make_store(), make_store(search=False)
    for n in range(60):
        store.remember("facts", f"fact {n}", id=f"m{n}", vector=[1.0, n / 100])
        store.add_summary("chat", f"fact {n}", [1.0, n / 100], embedder="e")
    store.hide("facts", range(1, 40))
    store.hide("chat", range(1, 40))
    store.remember("facts", "another", id="m45", vector=[0.0, 1.0])
    for k in (1, 5, 30):
        nearest = store.search_summaries("chat", [1.0, 0.0], k, embedder="e")
        assert [each.position for each in nearest] == [0, *range(40, 60)][:k]
        hits = found(store, [1.0, 0.0], k=k)
        assert hits == found(reading, [1.0, 0.0], k=k)
        assert len(hits) == min(k, 21)
        assert hits[0] == ("facts", 0)


@pytest.mark.parametrize("versions", [1, 3, ITEMS_FIRST, ITEMS_FIRST + 1, 20])
def test_newer_versions_that_are_hidden_do_not_replace_a_memory(store, indexed_only, versions):
    store.remember("facts", "an older cat", id="pet")
    store.remember("facts", "an old cat", id="pet")
    snapshot = store.save_snapshot("facts")
    for n in range(versions):
        store.remember("facts", f"cat {n}", id="pet")
    assert found(store, "cat") == [("facts", versions + 1)]
    assert found(store, "cat", sessions=["facts"], as_of=snapshot.id) == [("facts", 1)]
    store.rollback_to_snapshot("facts", snapshot.id)
    assert found(store, "cat") == [("facts", 1)]
    store.remember("facts", "a cat again", id="pet")
    assert found(store, "cat") == [("facts", versions + 2)]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_index_finds_what_reading_finds(make_store, monkeypatch, seed, large):
    if large:
        set_large(monkeypatch, 0)
        # No word is a common one.
        monkeypatch.setattr(ranking, "COMMON_WORD_SHARE", 1.0)
    rng = random.Random(seed)
    store, reading = make_store(), make_store(search=False)
    for _ in range(120):
        say(store, f"s{rng.randrange(6)}", " ".join(rng.choices(WORDS, k=rng.randrange(1, 9))))
        if rng.random() < 0.1:
            text = " ".join(rng.choices(WORDS, k=3))
            store.remember("facts", text, id=f"m{rng.randrange(4)}")
        if rng.random() < 0.1:
            store.add_tool_call(f"s{rng.randrange(6)}", f"c{rng.random()}", "look", {})
    store.trim("s1", keep_last=5)
    store.hide("s2", [store.get_entries("s2")[1].position])
    for _ in range(20):
        query = " ".join(rng.choices(WORDS, k=rng.randrange(1, 4)))
        options = rng.choice([{}, {"sessions": ["s1", "s2"]}, {"where": {"kind": "memory"}}])
        expected = reading.search(query, k=1000, **options)
        hits = store.search(query, k=1000, **options)
        assert {(hit.session_id, hit.position) for hit in hits} == {
            (hit.session_id, hit.position) for hit in expected
        }
