"""indelible as the store of LangGraph, compared with LangGraph's own `InMemoryStore`."""

import logging
from datetime import timedelta

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

import indelible
from indelible.adapters.langgraph import IndelibleLangGraphStore

FOOD = ("users", "ana", "food")
ITEMS = {
    ("users", "ana", "food"): {
        "tea": {"text": "Ana drinks green tea", "cups": 3, "tags": ["a", 1]}
    },
    ("users", "ana", "pets"): {
        "dog": {"text": "Tom is a dog", "cups": 0, "home": {"city": "Rome", "floor": 2}},
        "cat": {"text": "Ida is a cat", "cups": 7},
    },
    ("users", "anabel"): {"tea": {"text": "Anabel drinks tea too", "cups": 5}},
}


@pytest.fixture
def items(store):
    return IndelibleLangGraphStore(store)


def put_all(items):
    for namespace, values in ITEMS.items():
        for key, value in values.items():
            items.put(namespace, key, value)


def names(found):
    return {(item.namespace, item.key) for item in found}


def test_an_item_reads_back_equal_until_it_is_deleted(items):
    value = {"a": [1, None, {"b": "ü"}], "c": 1.5, "d": True}
    assert items.get(FOOD, "tea") is None
    items.put(FOOD, "tea", value)
    first = items.get(FOOD, "tea")
    assert (first.value, first.key, first.namespace) == (value, "tea", FOOD)
    items.put(FOOD, "tea", {"a": 2})
    second = items.get(FOOD, "tea")
    assert second.value == {"a": 2}
    assert second.created_at == first.created_at <= first.updated_at <= second.updated_at
    items.delete(FOOD, "tea")
    items.delete(FOOD, "tea")
    assert items.get(FOOD, "tea") is None


async def test_the_async_methods_do_the_same(any_store):
    items = IndelibleLangGraphStore(any_store)
    await items.aput(FOOD, "tea", {"text": "green tea"})
    assert (await items.aget(FOOD, "tea")).value == {"text": "green tea"}
    assert names(await items.asearch(("users",), query="tea")) == {(FOOD, "tea")}
    assert await items.alist_namespaces() == [FOOD]
    await items.adelete(FOOD, "tea")
    assert await items.asearch((), query="tea") == []


@pytest.mark.parametrize("prefix", [(), ("users",), ("users", "ana"), ("users", "an"), FOOD])
@pytest.mark.parametrize(
    "where",
    [
        None,
        {"cups": 3},
        {"cups": {"$gt": 0, "$lte": 5}},
        {"cups": {"$ne": 3}},
        {"home": {"city": "Rome"}},
        {"tags": ["a", 1]},
        {"tags": ["a"]},
        {"absent": "x"},
    ],
)
def test_filters_find_what_the_store_of_langgraph_finds(items, prefix, where):
    theirs = InMemoryStore()
    put_all(items)
    put_all(theirs)
    wanted = names(theirs.search(prefix, filter=where, limit=100))
    assert names(items.search(prefix, filter=where, limit=100)) == wanted


@pytest.mark.parametrize(
    "where",
    [
        {"a.b": 1},
        {"a": {"b": 1}},
        {'"a"': {"x.y": 1}},
        {'"a"': {"x": {"y": 1}}},
        {"b\\": {"$gte": 2}},
    ],
    ids=str,
)
def test_keys_with_dots_and_quotes_are_not_paths(items, where):
    theirs = InMemoryStore()
    for each in (items, theirs):
        each.put(FOOD, "nested", {"a": {"b": 1}, '"a"': {"x": {"y": 1}}, "b\\": 1})
        each.put(FOOD, "flat", {"a.b": 1, '"a"': {"x.y": 1}, "b\\": 2})
    wanted = names(theirs.search(FOOD, filter=where))
    assert len(wanted) == 1
    assert names(items.search(FOOD, filter=where)) == wanted


def test_pages_are_disjoint_and_complete(items):
    put_all(items)
    pages = [items.search((), limit=2, offset=at) for at in (0, 2, 4)]
    assert [len(page) for page in pages] == [2, 2, 0]
    assert names(item for page in pages for item in page) == names(items.search((), limit=100))


def test_a_query_ranks_by_words_and_filters_before_the_limit(items):
    put_all(items)
    for number in range(30):
        items.put(("noise",), str(number), {"text": "tea tea tea", "cups": 0})
    (found,) = items.search((), query="tea", filter={"cups": 5}, limit=1)
    assert (found.namespace, found.key) == (("users", "anabel"), "tea")
    assert found.score > 0
    assert names(items.search(("users", "ana"), query="tea")) == {(FOOD, "tea")}


def test_fields_choose_what_is_searched(store):
    items = IndelibleLangGraphStore(store, index={"fields": ["title", "parts[*].text"]})
    items.put(FOOD, "a", {"title": "tea", "secret": "coffee", "parts": [{"text": "milk"}]})
    items.put(FOOD, "b", {"title": "tea", "secret": "coffee"}, index=["secret"])
    items.put(FOOD, "c", {"title": "tea", "secret": "coffee"}, index=False)
    found = {
        query: {item.key for item in items.search((), query=query)}
        for query in ("tea", "milk", "coffee")
    }
    assert found == {"tea": {"a"}, "milk": {"a"}, "coffee": {"b"}}
    assert {item.key for item in items.search(())} == {"a", "b", "c"}


def test_an_index_ranks_by_vectors_too(store):
    index = {"dims": 8, "embed": DeterministicFakeEmbedding(size=8), "fields": ["text"]}
    items = IndelibleLangGraphStore(store, index=index)
    items.put(FOOD, "tea", {"text": "green tea"})
    items.put(FOOD, "milk", {"text": "cold milk"})
    found = items.search((), query="cold milk")
    assert [item.key for item in found] == ["milk", "tea"]


def test_an_item_is_stored_though_its_embedder_fails(store, caplog):
    def fail(texts):
        raise OSError(f"no route to the model for {texts}")

    items = IndelibleLangGraphStore(store, index={"dims": 8, "embed": fail})
    with caplog.at_level(logging.WARNING, "indelible.langgraph"):
        items.put(FOOD, "tea", {"text": "green tea"})
    assert "failed with OSError: words alone count" in caplog.text
    assert "green tea" not in caplog.text
    assert items.search((), query="tea")[0].key == "tea", "by words alone"


def test_an_embedder_of_single_texts_is_refused(store):
    items = IndelibleLangGraphStore(store, index={"dims": 2, "embed": lambda text: [1.0, 2.0]})
    with pytest.raises(indelible.UsageError, match="2 vectors for 1 texts"):
        items.put(FOOD, "tea", {"text": "green tea"})
    assert items.get(FOOD, "tea") is None


def test_puts_of_a_batch_into_one_namespace_are_one_append(items, store):
    puts = [PutOp(FOOD, str(number), {"n": number}) for number in range(3)]
    answers = items.batch([GetOp(FOOD, "0"), *puts, PutOp(FOOD, "0", {"n": "last"})])
    assert answers == [None] * 5, "reads come before the puts"
    assert store.session("users/ana/food").logged == 3, "of two puts of one item the last counts"
    assert items.get(FOOD, "0").value == {"n": "last"}
    with pytest.raises(indelible.UsageError):
        items.batch([PutOp(FOOD, "3", {"n": 3}), PutOp(FOOD, "4", {"n": object()})])
    assert items.get(FOOD, "3") is None, "a batch is stored as a whole or not at all"


def test_namespaces_are_listed_as_langgraph_lists_them(items, store):
    theirs = InMemoryStore()
    put_all(items)
    put_all(theirs)
    store.add_message("a-chat", "user", "hello")
    for options in (
        {},
        {"prefix": ("users", "ana")},
        {"prefix": ("users", "*", "pets")},
        {"suffix": ("food",)},
        {"max_depth": 2},
        {"limit": 1, "offset": 1},
    ):
        assert items.list_namespaces(**options) == theirs.list_namespaces(**options), options


def test_a_namespace_without_items_is_not_listed(items):
    items.put(FOOD, "tea", {"text": "tea"})
    items.delete(FOOD, "tea")
    assert items.list_namespaces() == []


def test_labels_that_langgraph_refuses_are_refused_in_a_batch_too(items):
    for op in (GetOp(("a.b",), "k"), PutOp(("",), "k", {}), SearchOp(("a.b",))):
        with pytest.raises(InvalidNamespaceError):
            items.batch([op])


def test_labels_with_slashes_do_not_meet(items):
    items.put(("a/b",), "k", {"n": 1})
    items.put(("a", "b"), "k", {"n": 2})
    assert items.get(("a/b",), "k").value == {"n": 1}
    assert items.list_namespaces() == [("a", "b"), ("a/b",)]
    assert names(items.search(("a",))) == {(("a", "b"), "k")}


def test_an_item_expires_unless_reading_renews_it(url):
    now_s = [1_700_000_000.0]
    with indelible.open(url, clock=lambda: now_s[0]) as store:
        items = IndelibleLangGraphStore(store, ttl={"default_ttl": 10, "refresh_on_read": True})
        items.put(FOOD, "tea", {"text": "tea"})
        items.put(FOOD, "milk", {"text": "milk"}, ttl=None)
        before = items.get(FOOD, "tea", refresh_ttl=False)
        now_s[0] += timedelta(minutes=9).total_seconds()
        assert items.get(FOOD, "tea") == before, "renewing changes no time of the item"
        now_s[0] += timedelta(minutes=9).total_seconds()
        assert items.search((), query="tea")[0].key == "tea"
        now_s[0] += timedelta(minutes=9).total_seconds()
        assert items.get(FOOD, "tea", refresh_ttl=False) is not None
        now_s[0] += timedelta(minutes=2).total_seconds()
        assert items.get(FOOD, "tea") is None
        assert [item.key for item in items.search(())] == ["milk"]


@pytest.mark.parametrize("minutes", [-1, 0, "soon"])
def test_a_ttl_that_is_not_positive_is_refused_in_minutes(items, minutes):
    with pytest.raises(indelible.UsageError, match=f"a number of minutes above 0, not {minutes!r}"):
        items.put(FOOD, "tea", {"text": "tea"}, ttl=minutes)


def test_a_rollback_brings_items_back(items, store):
    items.put(FOOD, "tea", {"text": "green tea"})
    snapshot = store.save_snapshot("users/ana/food")
    items.put(FOOD, "tea", {"text": "black tea"})
    items.put(FOOD, "milk", {"text": "milk"})
    store.rollback_to_snapshot("users/ana/food", snapshot.id)
    assert items.get(FOOD, "tea").value == {"text": "green tea"}
    assert items.search((), query="milk") == []


def test_memories_of_the_store_are_items(items, store):
    store.remember(FOOD, "Ana likes tea", id="tea")
    assert items.get(FOOD, "tea").value == {"text": "Ana likes tea"}
    items.put(FOOD, "milk", {"text": "milk"})
    assert store.get_memory(FOOD, "milk").value == {"text": "milk"}


def test_a_graph_remembers_across_threads(items):
    def answer(state, *, store):
        store.put(("facts",), "name", {"text": state["messages"][-1].content})
        return {"messages": [("assistant", "noted")]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(store=items)
    graph.invoke({"messages": [("user", "I am Ana")]})
    assert items.search(("facts",), query="Ana")[0].value == {"text": "I am Ana"}
