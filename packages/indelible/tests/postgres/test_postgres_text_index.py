"""The index of words in the rows of entries: it is what its entries are, and goes with them."""

import threading

import psycopg
import pytest

import indelible
from indelible.backends.postgres import search
from indelible.core.plans import search as plan
from indelible.core.words import TOKENIZER
from tests.support.postgres.vector_stores import opened
from tests.support.stores import say
from tests.support.wait import wait_until

ENTRY = "WHERE session = (SELECT number FROM indelible.session WHERE name = 's') AND position ="


@pytest.fixture
def url(fresh_url):
    """A database whose server has no statistics of rows of other tests."""
    return fresh_url


@pytest.fixture
def store(url):
    with indelible.open(url) as store:
        yield store


@pytest.fixture
def run(url):
    """Run statements as an administrator would."""

    def run(statement):
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else cursor.rowcount

    return run


def found(store, query, **options):
    return [(hit.session_id, hit.position) for hit in store.search(query, **options)]


def test_words_are_in_the_rows_of_what_can_be_found_unless_no_index_is_wanted(store, url, run):
    words = "SELECT array_agg(cardinality(words) ORDER BY position) FROM indelible.entry"
    say(store, "s", "one cat, one dog", "")
    store.add_tool_call("s", "c", "look", {"at": "cat"})
    assert run(words) == [([3, 0, None],)]
    with indelible.open(url, search=False) as other:
        say(other, "s", "two cats")
    assert run(words) == [([3, 0, None, None],)]


def test_a_store_without_the_index_of_words_still_has_vectors(url, run):
    with indelible.open(url, search=False) as store:
        store.add_summary("s", "He likes cats.", [3.0, 4.0], embedder="mine")
    assert run("SELECT words, embedder, vector FROM indelible.entry") == [
        (None, b"mine", pytest.approx([0.6, 0.8]))
    ]


@pytest.mark.parametrize("removal", ["forget", "erase_memory"])
def test_erased_words_leave_their_rows_and_the_receipt_names_the_index(store, run, removal):
    for n in range(3):
        store.remember("victim", f"a secret of {n}", id="secret")
    if removal == "forget":
        receipt = store.forget("victim")
    else:
        receipt = store.erase_memory("victim", "secret")
    assert any("index of words and the pending list" in place for place in receipt.left)
    assert run("SELECT position FROM indelible.entry WHERE cardinality(words) > 0") == []
    assert store.verify().ok


def test_a_damaged_entry_is_not_passed_over(store, url, run):
    with indelible.open(url, search=False) as without:
        say(without, "s", "one cat", "two cats")
        say(without, "t", "three cats")
    assert run(f"UPDATE indelible.entry SET payload = '\\x00' {ENTRY} 0") == 1
    report = store.reindex()
    assert (report.entries, report.damaged) == (2, 1)
    assert found(store, "cats", sessions=["t"]) == [("t", 0)]
    with pytest.raises(indelible.CorruptEntryError):
        store.search("cats")
    assert store.reindex(rebuild=True).damaged == 1


DIFFERENCES = {
    "words are missing": f"UPDATE indelible.entry SET words = words[2:] {ENTRY} 1",
    "words of another": f"UPDATE indelible.entry SET words = '{{1, 2}}' {ENTRY} 1",
    "words of what is not searched": f"UPDATE indelible.entry SET words = '{{1}}' {ENTRY} 2",
    "no vector": f"UPDATE indelible.entry SET embedder = NULL, vector = NULL {ENTRY} 4",
    "vector of another": f"UPDATE indelible.entry SET vector = '{{0, 1}}' {ENTRY} 4",
    "vector of another length": f"UPDATE indelible.entry SET vector = '{{1}}' {ENTRY} 4",
    "vector without a part": f"UPDATE indelible.entry SET vector = '{{NULL, 0}}' {ENTRY} 4",
    "another embedder": f"UPDATE indelible.entry SET embedder = 'other' {ENTRY} 4",
    "vector of what has none": f"UPDATE indelible.entry SET vector = '{{1, 0}}' {ENTRY} 1",
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_verify_compares_the_index_with_the_entries(store, run, difference):
    say(store, "s", "a cat", "a dog")
    store.add_tool_call("s", "c", "look", {})
    store.add_tool_result("s", "c", "found")
    store.remember("s", "a fish", id="pet", vector=[2.0, 1.0, *[0.1] * 100])
    assert store.verify().ok
    assert run(DIFFERENCES[difference]) == 1
    (finding,) = store.verify().findings
    assert "index of search" in finding.what
    store.reindex(rebuild=True)
    assert store.verify().ok
    assert found(store, "dog")[0] == ("s", 1)
    assert [hit.ranks for hit in store.search([1.0] * 102)] == [{"vector": 1}]


def test_unindexed_entries_of_other_namespaces_do_not_count(url, store, monkeypatch):
    monkeypatch.setattr("indelible.core.index_search.SEARCH_ENTRIES_MAX", 20)
    with indelible.open(url, namespace="other", search=False) as other:
        for number in range(30):
            other.add_message(f"s{number}", "user", "tea")
    say(store, "late", "tea")
    monkeypatch.setattr("indelible.backends.postgres.search.SCAN_ENTRIES_MAX", 0)
    assert found(store, "tea") == [("late", 0)]


def test_entries_that_nothing_was_indexed_of_are_read_and_completed(store, run):
    say(store, "s", "a cat", "a dog")
    run("UPDATE indelible.entry SET words = NULL")
    assert found(store, "dog")[0] == ("s", 1)
    assert store.verify().ok
    assert store.reindex().entries == 2


def test_the_tokenizer_is_recorded_with_the_index(store, run):
    ((comment,),) = run("SELECT obj_description('indelible.entry_words'::regclass)")
    assert comment == ascii(" ".join(TOKENIZER))[1:-1]


def test_an_entry_that_is_erased_while_it_is_indexed_has_no_words_afterwards(url, run):
    with indelible.open(url, search=False) as other:
        other.remember("facts", "a secret zebra", id="secret")
    erasing: list[threading.Thread] = []

    def erase():
        with indelible.open(url) as other:
            other.erase_memory("facts", "secret")

    class Watch:
        def __call__(self, step, go):
            if "SET words" in getattr(step, "text", "") and not erasing:
                # The entry was read. Whoever erases it waits for its lock.
                erasing.append(threading.Thread(target=erase))
                erasing[0].start()
                waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                wait_until(lambda: run(waiting) != [(0,)])
            return go()

    with opened(url, Watch()) as store:
        assert store.reindex().entries == 1
        (thread,) = erasing
        thread.join()
        assert store.search("zebra") == []
        assert run("SELECT words FROM indelible.entry") == [([],)]
        assert store.verify().ok


def test_the_statistics_of_the_server_say_which_words_are_common(store, run, monkeypatch):
    monkeypatch.setattr(search, "SCAN_ENTRIES_MAX", 500)
    monkeypatch.setattr(plan, "SEARCH_MATCHES", 20)
    for n in range(10):
        texts = (f"a cat number{m} and {'zebra' if m % 50 == 0 else 'dog'}" for m in range(100))
        store.add_messages(
            f"s{n}", [indelible.ChatMessage(role="user", content=text) for text in texts]
        )
    before = store.search("cats number7 zebra", k=30)
    run("ANALYZE indelible.entry")
    looked: list[str] = []
    find = search.find_words

    def find_words(db, words, scope, among):
        looked.extend(words)
        return find(db, words, scope, among)

    monkeypatch.setattr(search, "find_words", find_words)
    hits = store.search("cats number7 zebra", k=30)
    assert [(hit.session_id, hit.position) for hit in hits] == [
        (hit.session_id, hit.position) for hit in before
    ]
    assert {hit.dropped for hit in hits} == {("cats",)}
    assert set(looked) == {"number7", "zebra"}
    assert {text for hit in hits for text in hit.entry.value.content.split()} >= {"zebra"}
    assert {hit.session_id for hit in store.search("zebra", k=100)} == {f"s{n}" for n in range(10)}


def test_a_search_is_complete_where_the_server_limits_what_its_index_returns(url, run, monkeypatch):
    monkeypatch.setattr(search, "SCAN_ENTRIES_MAX", 0)
    run(f"ALTER DATABASE {url.rpartition('/')[2]} SET gin_fuzzy_search_limit = 5")
    texts = ["a cat" if n % 10 == 0 else "rain" for n in range(800)]
    with indelible.open(url) as store:
        store.add_messages("s", [indelible.ChatMessage(role="user", content=t) for t in texts])
        run("VACUUM indelible.entry")
        # Behind them come their neighbours.
        assert {*found(store, "cat", k=100)} >= {("s", n) for n in range(0, 800, 10)}


def test_entries_with_leading_words_are_looked_at_for_the_others(store, run, monkeypatch):
    monkeypatch.setattr(search, "SCAN_ENTRIES_MAX", 500)
    monkeypatch.setattr(plan, "SEARCH_MATCHES", 8)
    monkeypatch.setattr("indelible.core.ranking.COMMON_WORD_SHARE", 0.5)
    for n in range(10):
        texts = [
            f"{'violin' if m == 7 else 'piano'} {'tea' if m % 3 == n % 3 else 'milk'}"
            for m in range(100)
        ]
        store.add_messages(
            f"s{n}", [indelible.ChatMessage(role="user", content=text) for text in texts]
        )
    run("ANALYZE indelible.entry")
    sent: list[object] = []
    find = search.find_words

    def find_words(db, words, scope, among):
        sent.append((tuple(words), among is not None))
        return find(db, words, scope, among)

    monkeypatch.setattr(search, "find_words", find_words)
    hits = store.search("violin tea", k=4)
    assert sent == [(("violin",), False), (("tea",), True)]
    assert [hit.entry.value.content for hit in hits[:3]] == ["violin tea"] * 3


def test_found_entries_are_looked_up_by_the_primary_key(store, run):
    for n in range(10):
        texts = (f"number {m}" for m in range(300))
        store.add_messages(
            f"s{n}", [indelible.ChatMessage(role="user", content=text) for text in texts]
        )
    run("VACUUM ANALYZE indelible.entry")
    starts = [(session << 32) + at for session in range(1, 11) for at in range(0, 300, 40)]
    arrays = (starts, [start + 9 for start in starts], [0] * len(starts))
    statement = search._READ
    for nth, numbers in enumerate(arrays, 1):
        statement = statement.replace(f"${nth}", f"'{{{','.join(map(str, numbers))}}}'")
    assert len(run(statement)) == 9 * len(starts)
    plan = "".join(line for (line,) in run(f"EXPLAIN {statement}"))
    assert "Index Scan using entry_pkey" in plan
    assert "Seq Scan" not in plan


def test_a_search_of_many_sessions_takes_few_operations(store, monkeypatch):
    for n in range(50):
        say(store, f"s{n}", "a cat", "a dog", "rain")
        store.remember("facts", f"dog {n}", id=f"m{n}")
    performed: list[str] = []
    perform = store._backend.perform

    def count(op):
        performed.append(type(op).__name__)
        return perform(op)

    monkeypatch.setattr(store._backend, "perform", count)
    assert len(store.search("dog", k=100)) == 100
    assert performed == ["FindMatches", "ReadFound"]
