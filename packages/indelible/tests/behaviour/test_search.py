"""Search: what is visible is found at once, and nothing else is."""

import random
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain

import pytest

from indelible import (
    ChatMessage,
    ConflictError,
    LimitError,
    SnapshotNotFoundError,
    UsageError,
)
from indelible.core.plans import search as plan
from tests.support.stores import say

FACTS = ("users", "ana", "facts")


def found(store, query, **options):
    return [(hit.session_id, hit.position) for hit in store.search(query, **options)]


@pytest.fixture
def filled(store):
    """Two conversations and a collection."""
    say(store, "one", "The cat sat on the mat", "Dogs are running in the park", "Nothing else")
    say(store, "two", "My cat is called Tom", "Rain in Rome")
    store.remember(FACTS, "Ana has a cat", id="pet")
    store.remember(FACTS, "Ana lives in Rome", id="city", metadata={"topic": "home"})
    store.add_summary("one", "They talked about pets")
    return store


# What is found


def test_what_was_acknowledged_is_found_by_the_next_search(filled):
    assert found(filled, "running dogs")[0] == ("one", 1)
    say(filled, "two", "Dogs dogs dogs")
    assert found(filled, "dogs", k=1) == [("two", 2)]
    assert {session for session, _ in found(filled, "cat")} == {"one", "two", "users/ana/facts"}
    assert found(filled, "pets", kinds=["summary"]) == [("one", 3)]
    assert found(filled, "zebra") == []


@pytest.mark.parametrize("query", ["RUN", "runs", "Running"])
def test_words_are_compared_without_case_and_endings(filled, query):
    assert found(filled, query)[0] == ("one", 1)


def test_words_of_other_scripts_are_found(store):
    texts = {
        "russian": "Привет мир",
        "french": "naïve café",
        "nfd": "cafe\u0301 noir",
        "japanese": "猫が好きです",
        "chinese": "我有一只熊猫",
        "thai": "สวัสดีครับ",
        "hindi": "किताब मेज पर है",
        "hindi too": "कमल तालाब में है",
        "hebrew": "שָׁלוֹם עולם",
        "emoji": "❤\ufe0f 🎉",
    }
    for name, text in texts.items():
        say(store, name, text)
    for query, expected in {
        "мир": ["russian"],
        "cafe": ["french", "nfd"],
        "猫": ["japanese", "chinese"],
        "สวัสดี": ["thai"],
        "किताब": ["hindi"],
        "שָׁלוֹם": ["hebrew"],
        "ם": [],
        "☺\ufe0f": [],
    }.items():
        assert {session for session, _ in found(store, query)} == set(expected), query
    (hit,) = store.search("大熊猫", sessions=["chinese"])
    assert hit.snippet == "我有一只[熊猫]"


def test_a_query_may_have_thousands_of_words(filled):
    query = " ".join(f"word{n}" for n in range(2000))
    assert found(filled, f"{query} running dogs", k=1) == [("one", 1)]


def test_a_hit_says_where_it_comes_from(filled):
    (hit,) = filled.search("Rome", under=FACTS)
    assert (hit.session_id, hit.position, hit.entry.value.id) == ("users/ana/facts", 1, "city")
    assert (hit.snippet, hit.ranks) == ("Ana lives in [Rome]", {"text": 1})
    assert hit.score > 0
    assert hit.around == ()


def test_a_snippet_is_short_and_has_the_words(store):
    say(store, "s", "word " * 200 + "needle " + "word " * 200)
    (hit,) = store.search("needles")
    assert "[needle]" in hit.snippet
    assert len(hit.snippet) < 300
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")


def test_neighbours_come_with_a_hit(store):
    say(store, "s", *(f"message {n}" for n in range(6)))
    store.hide("s", [2])
    (hit, *_) = store.search("3", around=2)
    assert [entry.position for entry in hit.around] == [0, 1, 4, 5]
    (hit, *_) = store.search("0", around=1)
    assert [entry.position for entry in hit.around] == [1]


def test_memories_are_no_neighbours(store, clock):
    store.remember("s", "the old one", id="pet")
    store.add_message("s", "user", "a cat")
    store.remember("s", "the new one", id="pet")
    store.remember("s", "in a meeting", id="now", ttl=5)
    clock.advance(5)
    (hit,) = store.search("cat", around=5)
    assert hit.around == ()
    (hit,) = store.search("new one", around=5)
    assert (hit.entry.value.id, hit.around) == ("pet", ())


def test_a_common_word_finds_too(store):
    for n in range(20):
        store.remember(FACTS, f"dog {n}" if n < 15 else f"bird {n}", id=f"m{n}")
    store.remember(FACTS, "Rome", id="city")
    assert len(found(store, "dog rome", k=100)) == 16


def test_neighbours_are_those_of_the_conversation(store):
    roles = ["user", "assistant"] * 10
    for n, role in enumerate(roles):
        store.add_message("ana", role, "zebra" if n == 0 else "nothing")
    say(store, "ana/0", "one", "two")
    assert found(store, "zebra", where={"role": "user"}) == [("ana", 0), ("ana", 2)]
    assert found(store, "zebra") == [("ana", 0), ("ana", 1), ("ana", 2)]


def test_an_answer_is_found_by_the_words_of_its_question(store):
    say(store, "s", "a", "b", "c", "Where was the wedding held?", "In Lisbon!", "d", "e", "f")
    assert set(found(store, "wedding", k=3)) >= {("s", 3), ("s", 4)}


@pytest.mark.parametrize(("calls", "is_found"), [(3, True), (4, False)])
def test_messages_are_beside_each_other_up_to_four_entries_apart(store, calls, is_found):
    say(store, "s", "Where was the wedding held?")
    for n in range(calls):
        store.add_tool_call("s", f"c{n}", "look", {})
    say(store, "s", "In Lisbon!")
    assert (("s", calls + 1) in found(store, "wedding")) == is_found


def test_who_is_named_in_the_query_comes_first(store):
    for name in ("Ann", "Bob", "Cid"):
        message = ChatMessage(role="user", name=name, content="I love the sea")
        store.add_messages(f"by {name}", [message])
    assert found(store, "What does Bob love?", k=1) == [("by Bob", 0)]
    assert found(store, "Bob") == [], "no text says so"


def test_the_same_query_gives_the_same_order(filled):
    for n in range(20):
        say(filled, f"s{n:02}", "the same words")
    first = filled.search("same words", k=30)
    assert filled.search("same words", k=30) == first
    pages = [filled.search("same words", k=7, offset=n) for n in (0, 7, 14, 21)]
    assert [hit for page in pages for hit in page] == first


def test_of_equal_matches_of_a_session_the_newest_come_first(store):
    # Apart, since neighbours count, and more of them than an index reads at first.
    texts = ["rain", "rain", "a cat", "rain", "rain"] * 150
    store.add_messages("s", [ChatMessage(role="user", content=text) for text in texts])
    assert found(store, "cat", k=3) == [("s", 747), ("s", 742), ("s", 737)]


def test_of_equal_vectors_the_newest_come_first(store):
    for n in range(100):
        store.remember(FACTS, f"fact {n}", id=f"m{n}", vector=[1.0, 0.0])
    newest = [("users/ana/facts", position) for position in (99, 98, 97)]
    assert found(store, [2.0, 0.0], k=3) == newest


# Where it looks


def test_sessions_and_collections_narrow_it(filled):
    filled.remember(("users", "anabel"), "a cat too", id="pet")
    assert {session for session, _ in found(filled, "cat", sessions=["one", "two"])} == {
        "one",
        "two",
    }
    assert found(filled, "cat", under=("users", "ana")) == [("users/ana/facts", 0)]
    assert len(found(filled, "cat", under=("users",))) == 2
    assert found(filled, "cat", under=("user",)) == []
    assert found(filled, "cat", sessions=[]) == []
    assert found(filled, "cat", sessions=["nowhere"]) == []
    say(filled, "users/", "a cat under an empty label")
    assert {session for session, _ in found(filled, "cat", under=("users",))} == {
        "users/",
        "users/ana/facts",
        "users/anabel",
    }


def test_namespaces_are_separate(filled, make_store):
    if filled.claims().engine == "memory":
        pytest.skip("a memory store has one namespace")
    assert make_store(namespace="other").search("cat") == []


def test_a_filter_comes_before_the_limit(store):
    for n in range(30):
        store.remember(FACTS, f"fact number {n}", id=f"m{n:02}", metadata={"n": n})
        store.add_message("chat", "assistant" if n % 2 else "user", f"number {n}")
    hits = store.search("number", where={"metadata.n": {"$gte": 27}}, k=3)
    assert {hit.entry.value.id for hit in hits} == {"m27", "m28", "m29"}
    assert len(store.search("number", where={"role": "user"}, k=100)) == 15
    assert len(store.search("number", where={"kind": "memory", "id": "m03"})) == 1
    late = datetime(2100, 1, 1, tzinfo=UTC)
    assert store.search("number", where={"written_at": {"$gt": late}}) == []
    assert {hit.entry.kind for hit in store.search("number", kinds=["message"])} == {"message"}
    with pytest.raises(UsageError, match="no such field"):
        store.search("number", where={"colour": "red"})


# What is gone is not found


def test_what_is_hidden_is_not_found(filled):
    snapshot = filled.save_snapshot("one")
    say(filled, "one", "A zebra came by")
    assert found(filled, "zebra")[0] == ("one", 4)
    filled.rollback_to_snapshot("one", snapshot.id)
    assert found(filled, "zebra") == []
    filled.undo("one")
    assert found(filled, "zebra")[0] == ("one", 4)
    filled.clear("one")
    assert found(filled, "mat") == []
    filled.forget("two")
    assert found(filled, "Tom") == []


def change_at_random(store, clock, rng, snapshots):  # noqa: C901 (a case a change)
    """Add to session "s", or change what is visible there."""
    item, text = f"m{rng.randrange(4)}", rng.choice(["a cat", "a dog"])
    match rng.randrange(16):
        case 0 | 1 | 2:
            say(store, "s", "a cat", "another cat")
        case 3:
            store.add_summary("s", text)
        case 4 | 5 | 6:
            store.remember("s", text, id=item, ttl=rng.choice([None, 1]))
        case 7:
            store.retract("s", item)
        case 8:
            store.erase_memory("s", item)
        case 9:
            snapshots.append(store.save_snapshot("s").id)
        case 10 if snapshots:
            store.rollback_to_snapshot("s", rng.choice(snapshots))
        case 11:
            store.undo("s")
        case 12:
            store.hide("s", [entry.position for entry in store.get_entries("s", last=3)][:2])
        case 13:
            store.trim("s", keep_last=3)
            store.vacuum(undo_window=rng.choice([0, 3600]))
        case 14:
            store.reindex(rebuild=rng.random() < 0.5)
        case _:
            clock.advance(2)


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_changed_a_search_finds_what_a_reader_of_the_log_finds(store, clock, seed):
    rng, snapshots = random.Random(seed), []
    for _ in range(50):
        # Nothing to undo, or a snapshot of an earlier life.
        with suppress(UsageError, ConflictError, SnapshotNotFoundError):
            change_at_random(store, clock, rng, snapshots)
        cats, current = set(), {}
        for entry in store.get_entries("s"):
            if entry.kind != "memory":
                if "cat" in (getattr(entry.value, "text", None) or entry.value.content):
                    cats.add(("s", entry.position))
                continue
            age_s = clock() - entry.written_at.timestamp()
            is_there = entry.value.text == "a cat" and age_s < (entry.value.ttl_s or 100)
            current[entry.value.id] = {("s", entry.position)} if is_there else set()
        expected = cats.union(*current.values())
        hits = found(store, "cat", k=1000)
        assert set(hits) == expected
        assert len(hits) == len(expected)
        assert len(found(store, "cat", k=3)) == min(3, len(expected))


def test_of_a_memory_only_the_current_version_is_found(store, clock):
    store.remember(FACTS, "Ana has a cat", id="pet")
    store.remember(FACTS, "Ana has a dog", id="pet")
    assert found(store, "cat") == []
    assert found(store, "dog") == [("users/ana/facts", 1)]
    store.retract(FACTS, "pet")
    assert found(store, "dog") == []
    store.remember(FACTS, "Ana has a mouse", id="pet", ttl=5)
    assert len(found(store, "mouse")) == 1
    clock.advance(5)
    assert found(store, "mouse") == []
    store.remember(FACTS, "Ana has a secret", id="secret")
    store.erase_memory(FACTS, "secret")
    assert found(store, "secret") == []


def test_what_another_has_erased_before_a_search_is_not_found(store, make_store):
    other = store if store.claims().engine == "memory" else make_store()
    for n in range(3):
        store.remember(FACTS, f"a zebra {n}", id=f"m{n}")
        say(other, f"chat-{n}", "a zebra")
        assert found(store, "zebra")
        other.erase_memory(FACTS, f"m{n}")
        other.forget(f"chat-{n}")
        assert found(store, "zebra") == []
        assert found(store, "zebra", sessions=["users/ana/facts", f"chat-{n}"]) == []


def test_what_has_expired_is_not_found(make_store, clock):
    store = make_store(ttl=5)
    say(store, "s", "short life")
    assert found(store, "life") == [("s", 0)]
    clock.advance(6)
    assert found(store, "life") == []


def test_a_snapshot_can_be_searched(store):
    store.remember(FACTS, "Ana has a cat", id="pet")
    snapshot = store.save_snapshot("users/ana/facts", label="then")
    store.remember(FACTS, "Ana has a dog", id="pet")
    where = {"sessions": ["users/ana/facts"], "as_of": "then"}
    assert found(store, "cat", **where) == [("users/ana/facts", 0)]
    assert found(store, "dog", **where) == []
    assert found(store, "cat", sessions=["users/ana/facts"], as_of=snapshot.id) != []
    with pytest.raises(UsageError, match="one session"):
        store.search("cat", as_of="then")


# Vectors


def test_near_vectors_are_found_without_a_word_in_common(store):
    store.add_summary("s", "about cats", [1.0, 0.0], embedder="e")
    store.add_summary("s", "about dogs", [0.0, 1.0], embedder="e")
    store.add_summary("s", "by another", [1.0, 0.0], embedder="other")
    store.remember("s", "a kitten", id="pet", vector=[0.9, 0.1])
    by_vector = store.search([0.0, 1.0])
    assert [hit.ranks for hit in by_vector] == [{"vector": 1}]
    assert by_vector[0].entry.value.text == "a kitten"


class Letters:
    """An embedder that counts the letters a and b."""

    name = "letters"

    def embed(self, text):
        return [float(text.count("a")), float(text.count("b")) + 0.1]


def test_a_vector_of_another_dimension_by_the_same_embedder_is_an_error(make_store):
    class Model:
        name = "model"
        dimension = 2

        def embed(self, text):
            return [float(len(text)), *[1.0] * (self.dimension - 1)]

    model = Model()
    store = make_store(embedder=model)
    store.remember(FACTS, "Ana has a dog", id="pet")
    model.dimension = 3
    with pytest.raises(UsageError, match="another number of dimensions"):
        store.search("anything")
    store.remember(FACTS, "Ana has a cat", id="pet")
    # The version that was replaced is not compared.
    assert [hit.ranks for hit in store.search("anything")] == [{"vector": 1}]


def test_memories_beside_a_match_count_for_more_but_are_not_found_by_it(store):
    for n, text in enumerate(["tea at five", "zebra", "green tea", "a cup of tea", "x", "y", "z"]):
        store.remember(FACTS, text, id=str(n))
    store.remember(FACTS, "tea at five", id="alone")
    positions = [position for _, position in found(store, "tea")]
    assert sorted(positions) == [0, 2, 3, 7]
    assert positions[-1] == 7


def test_words_and_vectors_are_fused(make_store):
    store = make_store(embedder=Letters())
    store.add_summary("s", "aaaa")
    store.add_summary("s", "bbbb")
    hits = store.search("bbbb")
    assert hits[0].ranks == {"text": 1, "vector": 1}
    assert hits[1].ranks == {"vector": 2}
    assert [hit.entry.value.text for hit in store.search(("aaaa", [0.0, 1.0]), k=2)] == [
        "aaaa",
        "bbbb",
    ]


# What cannot be asked


NOT_ASKED = [
    ("", {}),
    ("  ", {}),
    (5, {}),
    ([], {}),
    ([float("nan")], {}),
    ("cat", {"k": 0}),
    ("cat", {"offset": -1}),
    ("cat", {"around": "one"}),
    ("cat", {"kinds": ["thought"]}),
    ("cat", {"kinds": ["tool_call"]}),
    ("cat", {"sessions": "one"}),
    ("cat", {"sessions": True}),
    ("cat", {"sessions": ["one"], "under": ("a",)}),
    ("cat", {"under": ()}),
]


def test_what_cannot_be_asked_is_refused(store):
    for query, options in NOT_ASKED:
        with pytest.raises(UsageError):
            store.search(query, **options)


def test_too_much_to_read_is_refused_and_not_left_out(make_store, monkeypatch):
    store = make_store(search=False)
    monkeypatch.setattr(plan, "SEARCH_ENTRIES_MAX", 5)
    say(store, "one", "cat", "cat", "cat")
    say(store, "two", "cat", "cat")
    assert len(found(store, "cat")) == 5
    say(store, "two", "cat")
    with pytest.raises(LimitError, match="narrow it"):
        store.search("cat")
    assert len(found(store, "cat", sessions=["two"])) == 3
    with pytest.raises(LimitError, match="narrow it"):
        store.search("cat", where={"role": "nobody"})
    with pytest.raises(LimitError):
        store.search("cat", k=10_000)


def test_pages_fit_together(store, stores):
    rng = random.Random(1)
    for session in ("one", "two", "three"):
        texts = ("walrus " + " ".join(rng.choices(("and", "carpenter"), k=9)) for _ in range(100))
        store.add_messages(session, [ChatMessage(role="user", content=text) for text in texts])
    # With an index, the more pages were asked for, the more matches are ranked, in steps.
    steps = [(0, 30), (40, 120)] if stores.engine in ("sqlite", "postgres") else [(0, 120)]
    for start, stop in steps:
        pages = [found(store, "walrus carpenter", offset=at, k=10) for at in range(start, stop, 10)]
        assert list(chain.from_iterable(pages)) == found(store, "walrus carpenter", k=stop)[start:]
