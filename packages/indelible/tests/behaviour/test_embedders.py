"""Embedders: what may be one, and that one which fails costs nobody an entry."""

import logging
from typing import Annotated, Optional

import pytest

from indelible import (
    ABSENT,
    ConflictError,
    Source,
    StoredMemory,
    Summary,
    UnavailableError,
    UsageError,
)
from indelible.core.plans import embeddings

FACTS = ("users", "ana", "facts")


class Letters:
    """Counts the letters a and b, unless it is told to fail; notes what it was asked for."""

    name = "letters"

    def __init__(self):
        self.calls = []
        self.fails = False

    def embed(self, text):
        self.calls.append(text)
        if self.fails:
            raise TimeoutError(f"no answer for {text}")
        return [text.count("a") + 0.5, text.count("b") + 0.5]


@pytest.fixture
def letters():
    return Letters()


@pytest.fixture
def embedding(make_store, letters):
    """A store with an embedder."""
    return make_store(embedder=letters)


def read_vectors(store, collection=FACTS):
    return {each.id: (each.vector, each.embedder) for each in store.list_memories(collection)}


# What may be an embedder


def count_letters(text):
    return [text.count("a") + 0.5, text.count("b") + 0.5]


async def count_awaited(text):
    return count_letters(text)


def count_several(texts: list[str]):
    return [count_letters(text) for text in texts]


async def count_several_awaited(texts: "list[str]"):
    return count_several(texts)


def count_noted(text: Annotated[str, "one entry of a list"]):
    return count_letters(text)


def count_noted_several(texts: Annotated[Optional["list[str]"], "the texts"]):
    return count_several(texts)


class Model:
    model_name = "small"

    def encode(self, text):
        return count_letters(text)


@pytest.mark.parametrize(
    ("embedder", "name"),
    [
        (count_letters, "count_letters"),
        (count_awaited, "count_awaited"),
        (count_several, "count_several"),
        (count_several_awaited, "count_several_awaited"),
        (count_noted, "count_noted"),
        (count_noted_several, "count_noted_several"),
        (Model().encode, "Model:small.encode"),
        (Letters(), "letters"),
    ],
)
def test_functions_and_objects_are_embedders(make_store, embedder, name):
    store = make_store(embedder=embedder)
    store.remember(FACTS, "aaa", id="a")
    store.add_entries("s", [Summary(text="bbb"), Summary(text="ab")])
    assert read_vectors(store) == {"a": ((3.5, 0.5), name)}
    vectors = [each.summary.vector for each in store.get_summaries("s")]
    assert vectors == [(0.5, 3.5), (1.5, 1.5)]
    assert store.search("aaaa", kinds=["memory"])[0].ranks == {"vector": 1}


class Both:
    """As LangChain's: several texts, a query, and awaited twins."""

    model = "m-1"

    def __init__(self):
        self.calls = []

    def embed_documents(self, texts):
        self.calls.append(list(texts))
        return count_several(texts)

    def embed_query(self, text):
        self.calls.append(text)
        return count_letters(text)


class BothAwaited(Both):
    async def aembed_documents(self, texts):
        return self.embed_documents(texts)

    async def aembed_query(self, text):
        return self.embed_query(text)


@pytest.mark.parametrize("kind", [Both, BothAwaited])
def test_queries_are_embedded_as_queries_and_texts_together(make_store, kind):
    given = kind()
    store = make_store(embedder=given)
    store.add_entries("s", [Summary(text="a"), Summary(text="b")])
    store.remember("s", "ab", id="m")
    store.search("aa")
    store.search_summaries("s", "bb")
    assert given.calls == [["a", "b"], ["ab"], "aa", "bb"]
    assert store.get_memory("s", "m").embedder == f"{kind.__name__}:m-1"


def takes_several(texts):
    return [count_letters(text) for text in texts]


def test_a_function_of_several_texts_that_does_not_say_so_is_told_how(make_store):
    store = make_store(embedder=takes_several)
    with pytest.raises(UsageError, match=r"texts: list\[str\]"):
        store.remember(FACTS, "ab", id="m")
    assert store.get_memory(FACTS, "m") is None


# Memories


def test_a_memory_gets_a_vector_of_its_text(embedding, letters):
    embedding.remember(FACTS, "aab", id="made")
    embedding.remember(FACTS, "aab", id="given", vector=[1, 2])
    embedding.remember(FACTS, value={"text": "a"}, id="no text")
    embedding.remember(FACTS, " ", id="blank")
    assert read_vectors(embedding) == {
        "made": ((2.5, 1.5), "letters"),
        "given": ((1.0, 2.0), "letters"),
        "no text": (None, None),
        "blank": (None, None),
    }
    assert letters.calls == ["aab"]


def test_arguments_are_checked_before_the_embedder_is_called(embedding, letters):
    for options in (
        {"ttl": -1},
        {"source": 5},
        {"id": ""},
        {"key": ""},
        {"expected": "1"},
        {"metadata": 5},
    ):
        with pytest.raises(UsageError):
            embedding.remember(FACTS, "aab", **options)
        assert letters.calls == []


def test_arguments_of_a_summary_are_checked_before_the_embedder_is_called(embedding, letters):
    for options in (
        {"session_id": ""},
        {"ttl": -1},
        {"key": ""},
        {"expected": 5},
        {"replay": "never"},
    ):
        given = {"session_id": "s", **options}
        with pytest.raises(UsageError):
            embedding.add_summary(text="aab", **given)
        with pytest.raises(UsageError):
            embedding.add_entries(values=[Summary(text="aab")], **given)
    for options in ({"metadata": 5}, {"covers": "all"}):
        with pytest.raises(UsageError):
            embedding.add_summary("s", "aab", **options)
    with pytest.raises(UsageError):
        embedding.add_entries("s", [Summary(text="aab"), "no entry"])
    for session, k in (("", 5), ("s", 0)):
        with pytest.raises(UsageError):
            embedding.search_summaries(session, "aab", k)
    assert letters.calls == []


def test_a_failing_embedder_costs_no_memory(embedding, letters, caplog):
    letters.fails = True
    with caplog.at_level(logging.WARNING, "indelible.embedding"):
        receipt = embedding.remember(FACTS, "a secret plan", id="m")
    assert list(receipt.positions) == [0]
    assert read_vectors(embedding) == {"m": (None, None)}
    (told,) = caplog.messages
    assert "'letters' failed with TimeoutError" in told
    assert "secret" not in caplog.text
    letters.fails = False
    assert [hit.ranks for hit in embedding.search("plan")] == [{"text": 1}]


def test_a_failing_embedder_makes_a_search_go_by_words(embedding, letters, caplog):
    embedding.remember(FACTS, "the plan", id="m")
    embedding.add_summary("s", "the plan")
    letters.fails = True
    with caplog.at_level(logging.WARNING, "indelible.embedding"):
        hits = embedding.search("plan", kinds=["memory"])
    assert [hit.ranks for hit in hits] == [{"text": 1}]
    assert "words alone" in caplog.messages[0]
    assert [hit.ranks for hit in embedding.search([1.0, 0.0], kinds=["memory"])] == [{"vector": 1}]
    with pytest.raises(UnavailableError, match="TimeoutError") as caught:
        embedding.search_summaries("s", "plan")
    assert isinstance(caught.value.__cause__, TimeoutError)


def test_a_failing_embedder_refuses_a_summary_and_writes_nothing(embedding, letters):
    letters.fails = True
    with pytest.raises(UnavailableError, match="'letters' failed"):
        embedding.add_summary("s", "so far")
    with pytest.raises(UnavailableError, match="'letters' failed"):
        embedding.add_entries("s", [Summary(text="so far")])
    assert embedding.session("s").logged == 0
    embedding.add_summary("s", "so far", [1.0, 2.0])


@pytest.mark.parametrize("first_fails", [True, False])
@pytest.mark.parametrize("expected", [None, ABSENT])
def test_a_repeat_is_the_same_memory_whatever_the_embedder_says(
    embedding, letters, first_fails, expected
):
    def say(text="aab"):
        return embedding.remember(FACTS, text, id="m", key="k", expected=expected)

    letters.fails = first_fails
    first = say()
    letters.fails = not first_fails
    again = say()
    assert (again.positions, again.replayed) == (first.positions, True)
    with pytest.raises(ConflictError, match="other content"):
        say("other")
    with pytest.raises(ConflictError, match="other content"):
        embedding.remember(FACTS, "aab", id="m", key="k", vector=[9, 9])
    embedding.hide(embedding.get_memory(FACTS, "m").collection, [0])
    with pytest.raises(ConflictError) as caught:
        say()
    assert caught.value.reason == "hidden"
    assert len(embedding.memory_history(FACTS, "m")) == 1


# Completing


def test_missing_vectors_are_completed_once(embedding, letters, clock):
    letters.fails = True
    embedding.remember(
        FACTS,
        "aab",
        id="m",
        value={"n": 1},
        metadata={"topic": "x"},
        source=("chat", [3]),
        ttl=60,
    )
    embedding.remember("elsewhere", "bb", id="n")
    embedding.remember("elsewhere", value=[1], id="no text")
    expires_at = embedding.get_memory(FACTS, "m").expires_at
    clock.advance(20)
    with pytest.raises(UnavailableError):
        embedding.embed_missing()
    letters.fails = False
    letters.calls.clear()
    assert embedding.embed_missing(FACTS) == 1
    assert letters.calls == ["aab"]
    memory = embedding.get_memory(FACTS, "m")
    assert (memory.vector, memory.embedder) == ((2.5, 1.5), "letters")
    assert (memory.text, memory.value, memory.metadata) == ("aab", {"n": 1}, {"topic": "x"})
    assert memory.source == Source(session_id="chat", positions=((3, 4),))
    assert memory.expires_at == expires_at
    assert embedding.embed_missing() == 1
    assert embedding.embed_missing() == 0
    assert letters.calls == ["aab", "bb"]
    assert embedding.get_memory("elsewhere", "n").vector == (0.5, 2.5)
    clock.advance(40)
    assert embedding.get_memory(FACTS, "m") is None


def test_equal_texts_are_embedded_once_and_all_pages_are_completed(embedding, letters, monkeypatch):
    monkeypatch.setattr(embeddings, "_BATCH", 3)
    letters.fails = True
    for n in range(8):
        embedding.remember(FACTS, "a" * (n // 2), id=f"m{n}", value=n)
    letters.fails = False
    letters.calls.clear()
    assert embedding.embed_missing() == 6, "two have no text"
    # Three pages: m0 to m2, m3 to m5, m6 and m7.
    assert letters.calls == ["a", "a", "aa", "aaa"]
    assert all(each.vector for each in embedding.list_memories(FACTS) if each.text)


def test_what_is_gone_is_not_completed(embedding, letters, clock):
    letters.fails = True
    embedding.remember(FACTS, "kept", id="kept")
    snapshot = embedding.save_snapshot("users/ana/facts")
    embedding.remember(FACTS, "rolled back", id="rolled")
    embedding.rollback_to_snapshot("users/ana/facts", snapshot.id)
    embedding.remember(FACTS, "retracted", id="retracted")
    embedding.retract(FACTS, "retracted")
    embedding.remember(FACTS, "expired", id="expired", ttl=5)
    clock.advance(5)
    letters.fails = False
    letters.calls.clear()
    assert embedding.embed_missing() == 1
    assert letters.calls == ["kept"]
    assert [each.id for each in embedding.list_memories(FACTS)] == ["kept"]


class Interrupted(Letters):
    """While it computes, something else happens once."""

    meanwhile = None

    def embed(self, text):
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().embed(text)


def test_a_concurrent_writer_wins(make_store):
    embedder = Interrupted()
    embedder.fails = True
    store = make_store(embedder=embedder)
    for name in ("kept", "replaced", "retracted"):
        store.remember(FACTS, name, id=name)

    def meanwhile():
        store.remember(FACTS, "newer", id="replaced", vector=[1, 1])
        store.retract(FACTS, "retracted")

    embedder.fails, embedder.meanwhile = False, meanwhile
    assert store.embed_missing() == 1
    texts = {each.id: each.text for each in store.list_memories(FACTS)}
    assert texts == {"kept": "kept", "replaced": "newer"}
    assert read_vectors(store)["replaced"] == ((1.0, 1.0), "letters")
    assert len(store.memory_history(FACTS, "replaced")) == 2


def test_vectors_of_another_embedder_count_as_missing(embedding):
    old = StoredMemory(id="m", text="aab", vector=(1.0, 2.0, 3.0), embedder="old")
    embedding.add_entries("s", [old])
    assert embedding.embed_missing("s") == 1
    assert read_vectors(embedding, "s") == {"m": ((2.5, 1.5), "letters")}
    before, _ = embedding.memory_history("s", "m")
    assert before.memory.embedder == "old"


def test_without_an_embedder_nothing_can_be_completed(store):
    with pytest.raises(UsageError, match="embedder="):
        store.embed_missing()
