"""The index of words: complete, or known not to be, and gone with its entries."""

import random

import apsw
import pytest

import indelible
from indelible.backends.sqlite import search, text_index
from indelible.core.plans import maintenance
from indelible.core.plans import search as plan
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
def indexed_only(monkeypatch):
    """A search that reads a session as a whole fails."""
    monkeypatch.setattr(plan, "_read_documents", refuse_to_read)


# What is in the index


def test_every_entry_that_can_be_found_is_in_the_index(store, path, indexed_only):
    say(store, "s", "one cat", "two dogs")
    store.add_tool_call("s", "c", "look", {"at": "cat"})
    store.add_summary("s", "about pets")
    store.remember("s", None, id="m", value={"likes": ["tea", {"and": "rain"}]})
    assert ask(path, "SELECT id & 255 FROM entry_text_docsize") == [(0,), (1,), (3,), (4,)]
    assert found(store, "dog")[0] == ("s", 1)
    assert found(store, "pet") == [("s", 3)]
    assert found(store, "rain") == [("s", 4)]
    assert store.search("look") == []


def test_copies_are_found_too(store, indexed_only, tmp_path):
    say(store, "s", "a cat", "a dog")
    store.fork("s", "copy")
    assert {session for session, _ in found(store, "cat")} == {"s", "copy"}
    store.export(tmp_path / "out.jsonl")
    with indelible.open(tmp_path / "other.db") as other:
        other.import_(tmp_path / "out.jsonl")
        assert {session for session, _ in found(other, "dog")} == {"s", "copy"}
        assert other.verify().ok


def test_the_totals_are_those_of_the_index(store, path):
    say(store, "s", "one two three", "four", *("word " * 200 for _ in range(300)))
    totals = []
    store._backend._database.readers.run(lambda db: totals.append(text_index.read_totals(db)))
    assert totals == [(302, 3 + 1 + 300 * 200)]


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


def test_a_vacuum_removes_the_words_of_what_it_deletes(store, path):
    say(store, "s", "cat", "dog", "rain")
    store.trim("s", keep_last=1)
    assert store.search("cat") == []
    store.vacuum(undo_window=0)
    assert ask(path, "SELECT id & 255 FROM entry_text_docsize") == [(2,)]
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


# What the index lacks


def test_without_an_index_a_search_reads_and_reindex_completes_it(path, monkeypatch):
    with indelible.open(path, search=False) as store:
        for n in range(30):
            say(store, f"s{n % 3}", f"number {n} cat")
        assert found(store, "number 17", k=1) == [("s2", 5)]
    with indelible.open(path) as store:
        say(store, "s0", "number 31 cat")
        assert len(found(store, "cat", k=100)) == 31
        assert count_unindexed(path) == 3
        assert store.verify().ok
        assert (store.reindex().entries, store.reindex().entries) == (30, 0)
        assert count_unindexed(path) == 0
        monkeypatch.setattr(plan, "_read_documents", refuse_to_read)
        assert len(found(store, "cat", k=100)) == 31
        assert store.verify().ok


def test_a_reindex_goes_on_where_it_was_interrupted(path, monkeypatch):
    monkeypatch.setattr(maintenance, "INDEX_PAGE", 7)
    with indelible.open(path, search=False) as store:
        for n in range(30):
            say(store, f"s{n % 3}", f"number {n} cat")
    with indelible.open(path) as store:
        with pytest.raises(KeyboardInterrupt):
            store.reindex(progress=lambda _, entries: interrupt() if entries > 10 else None)
        assert len(found(store, "cat", k=100)) == 30
        assert store.reindex().entries == 30 - 14
        assert count_unindexed(path) == 0
        assert store.verify().ok


def interrupt():
    raise KeyboardInterrupt


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


DIFFERENCES = {
    "an entry is missing": "INSERT INTO entry_text (entry_text, rowid, text)"
    " VALUES ('delete', (1 << 32) + 1, 'a dog')",
    "words are missing": "INSERT INTO entry_text (entry_text, rowid, text)"
    " VALUES ('delete', (1 << 32) + 1, 'a dog');"
    " INSERT INTO entry_text (rowid, text) VALUES ((1 << 32) + 1, 'dog')",
    "one is too many": "INSERT INTO entry_text (rowid, text) VALUES ((1 << 32) + 9, 'dog')",
    "one of no session": "INSERT INTO entry_text (rowid, text) VALUES ((9 << 32) + 9, 'dog')",
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_verify_compares_the_index_with_the_entries(store, path, difference):
    say(store, "s", "a cat", "a dog")
    assert store.verify().ok
    ask(path, DIFFERENCES[difference])
    (finding,) = store.verify().findings
    assert "index of words" in finding.what or "entry_text" in finding.what
    store.reindex(rebuild=True)
    assert store.verify().ok
    assert found(store, "dog")[0] == ("s", 1)


# How it finds


def test_words_that_many_have_are_dropped_in_large_scopes(store, monkeypatch):
    monkeypatch.setattr(search, "COMMON_WORD_ENTRIES", 50)
    for n in range(60):
        say(store, "s", f"a cat number {n}")
    say(store, "s", "a zebra")
    (best, *_) = store.search("Cats and zebras", k=100)
    assert (best.position, best.dropped) == (60, ("Cats",))
    # Common words find too, where there are no others.
    assert len(store.search("cat", k=100)) == 61, "all and the one beside them"
    assert {hit.dropped for hit in store.search("cat unheard")} == {()}
    assert store.search("cats zebra", sessions=["s"])[0].dropped == ("cats",)


def test_small_scopes_drop_no_word(store):
    for n in range(60):
        say(store, "s", f"a cat number {n}")
    say(store, "s", "a zebra")
    hits = store.search("cats zebra", k=100)
    assert len(hits) == 61
    assert {hit.dropped for hit in hits} == {()}


def test_many_scattered_sessions_are_searched_at_once(store, monkeypatch, indexed_only):
    monkeypatch.setattr(search, "_SPANS_MAX", 2)
    for n in range(20):
        say(store, f"a/{n}", f"a cat {n}", "a dog")
        say(store, f"b/{n}", f"a cat {n}", "a dog")
    assert {session for session, _ in found(store, "cat", under="a", k=100)} == {
        f"a/{n}" for n in range(20)
    }
    assert found(store, "7", under="a", k=1) == [("a/7", 0)]


def test_matches_that_a_filter_leaves_out_make_room_for_others(store, monkeypatch, indexed_only):
    monkeypatch.setattr(plan, "SEARCH_MATCHES", 4)
    monkeypatch.setattr(plan, "SEARCH_RANKED", 4)
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


@pytest.mark.parametrize("seed", range(5))
def test_the_index_finds_what_reading_finds(path, seed):
    rng = random.Random(seed)
    with indelible.open(path) as store:
        for _ in range(120):
            say(store, f"s{rng.randrange(6)}", " ".join(rng.choices(WORDS, k=rng.randrange(1, 9))))
            if rng.random() < 0.1:
                store.remember(
                    "facts", " ".join(rng.choices(WORDS, k=3)), id=f"m{rng.randrange(4)}"
                )
            if rng.random() < 0.1:
                store.add_tool_call(f"s{rng.randrange(6)}", f"c{rng.random()}", "look", {})
        store.trim("s1", keep_last=5)
        store.hide("s2", [store.get_entries("s2")[1].position])
        with indelible.open(path, search=False) as reading:
            for _ in range(20):
                query = " ".join(rng.choices(WORDS, k=rng.randrange(1, 4)))
                options = rng.choice(
                    [{}, {"sessions": ["s1", "s2"]}, {"where": {"kind": "memory"}}]
                )
                expected = reading.search(query, k=1000, **options)
                hits = store.search(query, k=1000, **options)
                assert {(hit.session_id, hit.position) for hit in hits} == {
                    (hit.session_id, hit.position) for hit in expected
                }


def test_an_upgraded_file_is_searched_before_it_is_indexed(path):
    with indelible.open(path) as store:
        say(store, "s", "a cat", "a dog")
        say(store, "t", "a cat")
    # As the migration leaves it.
    ask(path, "INSERT INTO entry_text (entry_text) VALUES ('delete-all')")
    ask(path, "INSERT INTO unindexed SELECT number FROM session")
    with indelible.open(path) as store:
        assert {session for session, _ in found(store, "cat")} == {"s", "t"}
        say(store, "new", "a cat")
        assert {session for session, _ in found(store, "cat")} == {"s", "t", "new"}
        assert store.reindex().entries == 3
        assert {session for session, _ in found(store, "cat")} == {"s", "t", "new"}
