"""The indexes of words and vectors: complete, or known not to be, and gone with their entries."""

import random
import sys

import apsw
import pytest

import indelible
from indelible import ChatMessage
from indelible.backends.sqlite import search, text_index
from indelible.backends.sqlite.connection import SqliteConnection
from indelible.core import index_search
from indelible.core.plans import search as plan
from indelible.core.words import TOKENIZER
from tests.support.stores import say

WORDS = ["cat", "dog", "rome", "paris", "rain", "sun", "tea", "piano", "violin", "walk", "the"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def store(path):
    with indelible.open(path) as store:
        yield store


def ask(path, sql):
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def found(store, query, **options):
    return [(hit.session_id, hit.position) for hit in store.search(query, **options)]


def count_unindexed(path):
    ((count,),) = ask(path, "SELECT count(*) FROM unindexed")
    return count


def refuse_to_read(*_):
    raise AssertionError("no session is read as a whole")


@pytest.fixture
def indexed_at_once(monkeypatch):
    """No entry waits for a portion to be full."""
    monkeypatch.setattr(text_index, "PORTION", 1)


@pytest.fixture
def indexed_only(monkeypatch):
    """A search that reads a session as a whole fails."""
    monkeypatch.setattr(plan, "_read_session", refuse_to_read)


# What is in the index


def test_every_entry_that_can_be_found_is_in_the_index(store, path, indexed_only, indexed_at_once):
    say(store, "s", "one cat", "two dogs")
    store.add_tool_call("s", "c", "look", {"at": "cat"})
    store.add_summary("s", "about pets")
    store.remember("s", None, id="m", value={"likes": ["tea", {"and": "rain"}]})
    assert ask(path, "SELECT id & 255 FROM entry_words_docsize") == [(0,), (1,), (3,), (4,)]
    assert found(store, "dog")[0] == ("s", 1)
    assert found(store, "pet") == [("s", 3)]
    assert found(store, "rain") == [("s", 4)]
    assert store.search("look") == []


def test_the_totals_are_those_of_the_index(store, path, indexed_at_once):
    say(store, "s", "one two three", "four", *("word " * 200 for _ in range(300)))
    totals = []
    store._backend._database.readers.run(lambda db: totals.append(text_index.read_totals(db)))
    assert totals == [(302, 3 + 1 + 300 * 200)]


def test_the_tokenizer_is_recorded_with_the_index(store, path):
    ((recorded,),) = ask(path, "SELECT value FROM about WHERE name = 'tokenizer'")
    assert recorded == ascii(" ".join(TOKENIZER))[1:-1]


def count_indexed(path):
    ((count,),) = ask(path, "SELECT count(*) FROM entry_words_docsize")
    return count


def test_new_entries_are_found_while_they_wait_for_a_full_portion(store, path, indexed_only):
    for n in range(text_index.PORTION - 1):
        say(store, f"s{n % 5}", f"number{n} cat")
        assert found(store, f"number{n}", k=1) == [(f"s{n % 5}", n // 5)]
    assert (count_indexed(path), count_unindexed(path)) == (0, text_index.PORTION - 1)
    say(store, "s", "another cat")
    assert (count_indexed(path), count_unindexed(path)) == (text_index.PORTION, 0)
    assert len(found(store, "cat", k=100)) == text_index.PORTION
    assert store.verify().ok


def test_more_entries_than_a_portion_are_indexed_at_once(store, path):
    say(store, "s", "a cat")
    store.add_messages("s", [ChatMessage(role="user", content=f"cat {n}") for n in range(100)])
    assert (count_indexed(path), count_unindexed(path)) == (101, 0)


def test_what_was_written_without_the_index_is_left_to_reindex(path):
    with indelible.open(path, search=False) as store:
        for n in range(2 * text_index.PORTION):
            say(store, "s", f"a cat {n}")
    with indelible.open(path) as store:
        say(store, "s", "a dog")
        assert (count_indexed(path), count_unindexed(path)) == (1, 2 * text_index.PORTION)
        assert found(store, "dog", k=1) == [("s", 2 * text_index.PORTION)]
        assert store.reindex().entries == 2 * text_index.PORTION


# Vectors


@pytest.fixture(params=["sqlite-vec", "without"])
def compared(request, monkeypatch):
    """Vectors are compared by the extension, or by the store."""
    if request.param == "without":
        monkeypatch.setattr(SqliteConnection, "load_sqlite_vec", lambda _: False)
    else:
        pytest.importorskip("sqlite_vec")


@pytest.mark.parametrize("portion", [1, 7, 64])
def test_the_index_of_vectors_finds_what_reading_finds(path, compared, monkeypatch, portion):
    monkeypatch.setattr(text_index, "PORTION", portion)
    rng = random.Random(portion)
    with indelible.open(path) as store, indelible.open(path, search=False) as reading:
        for n in range(100):
            vector = [rng.choice([-1.0, 0.0, 0.5, 1.0, 1e-300, 1e300]) for _ in range(3)]
            store.remember(f"c{n % 3}", f"fact {n}", id=str(n % 70), vector=vector)
        store.add_summary("c0", "a summary", [1.0, 1.0, 1.0])
        store.trim("c1", keep_last=20)
        store.erase_memory("c2", "5")
        for _ in range(10):
            query = [rng.uniform(-1, 1) for _ in range(3)]
            options = rng.choice([{}, {"sessions": ["c1", "c2"]}, {"where": {"kind": "memory"}}])
            found, expected = (
                [(hit.session_id, hit.position) for hit in each.search(query, k=20, **options)]
                for each in (store, reading)
            )
            assert found == expected
        assert store.verify().ok


# The package for another machine, and one that is not whole.
BROKEN = {
    "the extension": "def loadable_path(): return __file__",
    "the module": "raise ImportError('not whole')",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_vectors_are_compared_without_an_extension_that_cannot_be_loaded(
    path, tmp_path, monkeypatch, broken
):
    package = tmp_path / "sqlite_vec"
    package.mkdir()
    (package / "__init__.py").write_text(BROKEN[broken])
    monkeypatch.syspath_prepend(tmp_path)
    # Set first, so that what is imported here is undone too.
    monkeypatch.setitem(sys.modules, "sqlite_vec", None)
    monkeypatch.delitem(sys.modules, "sqlite_vec")
    with indelible.open(path) as store:
        store.remember("facts", "a cat", id="pet", vector=[3.0, 4.0])
        for _ in range(2):
            (hit,) = store.search([3.0, 4.0])
            assert hit.position == 0


def test_verify_compares_the_index_of_vectors(store, path, indexed_at_once):
    store.remember("facts", "a cat", id="pet", vector=[3.0, 4.0])
    assert store.verify().ok
    ask(path, "UPDATE entry_vector SET vector = zeroblob(8)")
    (finding,) = store.verify().findings
    assert "index" in finding.what
    store.reindex(rebuild=True)
    assert store.verify().ok


# What is gone


def stored_bytes(path):
    parts = (path, path.with_name(path.name + "-wal"))
    return b"".join(part.read_bytes() for part in parts if part.exists())


def fill_around(store, rng):
    for n in range(150):
        say(store, f"other-{n % 7}", " ".join(rng.choices(WORDS, k=12)))


@pytest.mark.parametrize("removal", ["forget", "erase_memory"])
def test_erased_words_are_in_no_byte_of_the_file_or_its_log(store, path, removal):
    rng = random.Random(5)
    fill_around(store, rng)
    for n in range(30):
        text = f"qzjkvxbw{n} {' '.join(rng.choices(WORDS, k=5))} jxqzvkpf"
        store.remember("victim", text, id="secret")
        if n % 10 == 0:
            fill_around(store, rng)
    data = stored_bytes(path)
    assert b"qzjkvxbw" in data
    assert found(store, "jxqzvkpf") == [("victim", 29)]
    if removal == "forget":
        receipt = store.forget("victim")
    else:
        receipt = store.erase_memory("victim", "secret")
    assert not receipt.pending
    data = stored_bytes(path)
    assert [
        word for word in (b"qzjkvxbw", b"jxqzvkpf", b"zjkvxbw", b"xqzvkpf") if word in data
    ] == []
    assert store.search("jxqzvkpf") == []
    assert store.verify().ok


def test_of_erased_words_that_begin_alike_none_is_in_the_file(store, path):
    """FTS5 keeps the beginnings of some deleted words, in its table of pages."""
    rng = random.Random(5)
    stems = ["".join(rng.choices("bcdfghjklmnpqrstvwxz", k=9)) for _ in range(200)]
    for number, stem in enumerate(stems):
        words = " ".join(f"{stem}{n}" for n in range(10, 30))
        say(store, "other" if number % 2 else "victim", words)
    secrets = [stem.encode() for stem in stems[::2]]
    assert secrets[0] in stored_bytes(path)
    store.forget("victim")
    data = stored_bytes(path)
    assert [secret for secret in secrets if secret in data] == []


def test_a_vacuum_removes_the_words_of_what_it_deletes(store, path, indexed_at_once):
    say(store, "s", "cat", "dog", "rain")
    store.trim("s", keep_last=1)
    assert store.search("cat") == []
    store.vacuum(undo_window=0)
    assert ask(path, "SELECT id & 255 FROM entry_words_docsize") == [(2,)]
    assert store.verify().ok


def test_a_damaged_session_can_be_forgotten_and_its_words_with_it(store, path, indexed_only):
    say(store, "victim", "a secret cat", "a dog")
    say(store, "other", "a cat")
    ask(path, "UPDATE entry SET payload = x'00' WHERE id = (1 << 32)")
    store.forget("victim")
    # Nobody knows which words it had: the index begins anew.
    assert b"secret" not in stored_bytes(path)
    assert count_unindexed(path) == 1
    assert store.reindex().entries == 1
    assert found(store, "cat") == [("other", 0)]
    assert store.verify().ok


def test_a_memory_that_is_erased_during_a_search_is_in_no_later_one(store, monkeypatch):
    store.remember("facts", "a zebra", id="m")
    build_hits, erased = plan._build_hits, []

    def erase_first(*arguments):
        erased.append(store.erase_memory("facts", "m"))
        return build_hits(*arguments)

    monkeypatch.setattr(plan, "_build_hits", erase_first)
    # The search has seen the state before.
    assert found(store, "zebra") == [("facts", 0)]
    assert len(erased) == 1
    assert found(store, "zebra") == []


# What the index lacks


def test_a_damaged_entry_is_not_passed_over(path):
    with indelible.open(path, search=False) as store:
        say(store, "s", "one cat", "two cats")
        say(store, "t", "three cats")
        ask(path, "UPDATE entry SET payload = x'00' WHERE id = (1 << 32)")
    with indelible.open(path) as store:
        report = store.reindex()
        assert (report.entries, report.damaged) == (2, 1)
        assert found(store, "cats", sessions=["t"]) == [("t", 0)]
        with pytest.raises(indelible.CorruptEntryError):
            store.search("cats")


A_DOG = " ".join(map(text_index.format_term, ("a", "dog")))
DIFFERENCES = {
    "an entry is missing": "INSERT INTO entry_words (entry_words, rowid, words)"
    f" VALUES ('delete', (1 << 32) + 1, '{A_DOG}')",
    "words are missing": "INSERT INTO entry_words (entry_words, rowid, words)"
    f" VALUES ('delete', (1 << 32) + 1, '{A_DOG}');"
    " INSERT INTO entry_words (rowid, words) VALUES ((1 << 32) + 1, 'dog')",
    "one is too many": "INSERT INTO entry_words (rowid, words) VALUES ((1 << 32) + 9, 'dog')",
    "one of no session": "INSERT INTO entry_words (rowid, words) VALUES ((9 << 32) + 9, 'dog')",
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_verify_compares_the_index_with_the_entries(store, path, indexed_at_once, difference):
    say(store, "s", "a cat", "a dog")
    assert store.verify().ok
    ask(path, DIFFERENCES[difference])
    (finding,) = store.verify().findings
    assert "index of search" in finding.what or "entry_words" in finding.what
    store.reindex(rebuild=True)
    assert store.verify().ok
    assert found(store, "dog")[0] == ("s", 1)


# How it finds


@pytest.mark.parametrize("rows", [1, 100])
def test_scattered_sessions_are_searched_as_a_whole_or_one_by_one(
    store, monkeypatch, indexed_only, indexed_at_once, rows
):
    monkeypatch.setattr(search, "_SPAN_ROWS", rows)
    for n in range(20):
        say(store, f"a/{n}", f"a cat {n}", "a dog")
        say(store, f"b/{n}", f"a cat {n}", "a dog")
    assert {session for session, _ in found(store, "cat", under="a", k=100)} == {
        f"a/{n}" for n in range(20)
    }
    assert found(store, "7", under="a", k=1) == [("a/7", 0)]


@pytest.mark.parametrize("large", [False, True])
def test_what_lies_between_scattered_sessions_makes_no_word_a_common_one(
    store, monkeypatch, indexed_at_once, large
):
    monkeypatch.setattr(search, "_SPANS_MAX", 2)
    if large:
        monkeypatch.setattr(search, "COMMON_WORD_ENTRIES", 10)
        monkeypatch.setattr(index_search, "COMMON_WORD_ENTRIES", 10)
    for n in range(20):
        say(store, f"a/{n}", "a piano" if n == 7 else "a dog")
        say(store, f"b/{n}", "a tree")
    for n in range(400):
        say(store, f"c/{n}", "a piano and a violin" if n < 5 else "nothing")
    say(store, "a/last", "nothing")
    hits = store.search("piano violin", under="a")
    assert [(hit.session_id, hit.position, hit.dropped) for hit in hits] == [("a/7", 0, ())]


def test_an_upgraded_file_is_searched_before_it_is_indexed(path):
    with indelible.open(path) as store:
        say(store, "s", "a cat", "a dog")
        say(store, "t", "a cat")
    # As the migration leaves it.
    ask(path, "INSERT INTO entry_words (entry_words) VALUES ('delete-all')")
    with indelible.open(path) as store:
        assert {session for session, _ in found(store, "cat")} == {"s", "t"}
        say(store, "new", "a cat")
        assert {session for session, _ in found(store, "cat")} == {"s", "t", "new"}
        assert store.reindex().entries == 4
        assert {session for session, _ in found(store, "cat")} == {"s", "t", "new"}


def test_unindexed_entries_between_scattered_sessions_do_not_count(tmp_path, monkeypatch):
    """More sessions than have a range of row ids each."""
    monkeypatch.setattr("indelible.core.index_search.SEARCH_ENTRIES_MAX", 200)
    path = tmp_path / "agent.db"
    with indelible.open(path, search=False) as store:
        for number in range(300):
            store.add_message(f"s{number}", "user", "tea")
    with indelible.open(path) as store:
        wanted = [f"s{number}" for number in range(0, 300, 2)]
        hits = store.search("tea", sessions=wanted, k=300)
        assert {hit.session_id for hit in hits} == set(wanted)


def test_unindexed_entries_of_other_namespaces_do_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr("indelible.core.index_search.SEARCH_ENTRIES_MAX", 20)
    path = tmp_path / "agent.db"
    with indelible.open(path, namespace="other", search=False) as other:
        for number in range(30):
            other.add_message(f"s{number}", "user", "tea")
    with indelible.open(path) as store:
        store.add_message("late", "user", "tea")
        assert [hit.session_id for hit in store.search("tea")] == ["late"]
