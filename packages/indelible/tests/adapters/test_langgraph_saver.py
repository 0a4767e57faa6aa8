"""indelible as a checkpointer of LangGraph: its own conformance kit, its graphs, and sharing."""

import gc
import sys
import threading
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TypedDict

import ormsgpack
import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command

import indelible
from indelible.adapters import checkpoint_reader, checkpoint_threads
from indelible.adapters.checkpoint_reader import ThreadCache
from indelible.adapters.checkpoint_records import CheckpointRecord, parse_pack
from indelible.adapters.checkpoint_threads import Threads
from indelible.adapters.langgraph import IndelibleSaver, Keep, PruneReceipt
from indelible.core.plans import checkpoints
from indelible.testing.processes import starting
from memory_contract import check
from memory_contract.targets import resolve
from tests.support.adapters.graphs import (
    GRAPHS,
    LONG,
    THREAD,
    Numbers,
    build_asking,
    build_delta,
    build_steps,
    describe,
    run_delta,
    run_steps,
    run_time_travel,
)
from tests.support.stores import ENGINES, empty_url


@pytest.mark.parametrize("engine", [*ENGINES, "cluster"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
async def test_the_kit_of_langgraph_passes_on_every_engine(engine, tmp_path):
    @checkpointer_test(name=engine)
    async def registered():
        async with indelible.open_async(empty_url(engine, tmp_path)) as store:
            yield IndelibleSaver(store)

    report = await validate(registered)
    results = report.results.values()
    assert [failure for result in results for failure in result.failures or ()] == []
    assert sum(result.tests_passed for result in results) == 81


# Graphs


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_has_the_same_states_as_with_the_saver_of_langgraph(store, name):
    build, run = GRAPHS[name]
    theirs, ours = (
        build().compile(checkpointer=saver) for saver in (InMemorySaver(), IndelibleSaver(store))
    )
    run(theirs)
    run(ours)
    assert describe(ours) == describe(theirs)
    # Another process has no cache.
    again = build().compile(checkpointer=IndelibleSaver(store))
    assert describe(again) == describe(theirs)


async def test_an_async_graph_goes_on_in_another_process(any_store):
    graph = build_asking().compile(checkpointer=IndelibleSaver(any_store))
    await graph.ainvoke({"total": 0, "seen": []}, THREAD)
    again = build_asking().compile(checkpointer=IndelibleSaver(any_store))
    final = await again.ainvoke(Command(resume="yes"), THREAD)
    assert (final["total"], final["seen"][-1]) == (3, "yes")


@pytest.mark.parametrize("engine", [*ENGINES, "cluster"])
def test_pruned_delta_threads_keep_their_values(engine, tmp_path):
    with indelible.open(empty_url(engine, tmp_path)) as store:
        prune_delta_thread(store)


def prune_delta_thread(store):
    saver = IndelibleSaver(store)
    graph = build_delta().compile(checkpointer=saver)
    run_delta(graph)
    before = graph.get_state(THREAD).values
    saver.prune(["t"])
    again = build_delta().compile(checkpointer=IndelibleSaver(store))
    assert again.get_state(THREAD).values == before
    assert len(before["items"]) == 8


def test_deleted_runs_leave_what_later_states_are_rebuilt_from(store, saver):
    graph = build_delta().compile(checkpointer=saver)
    for number in range(4):
        config = THREAD | {"metadata": {"run_id": f"run {number}"}}
        graph.invoke({"items": [f"item {number}"]}, config)
    before = graph.get_state(THREAD).values
    saver.delete_for_runs(["run 1"])
    again = build_delta().compile(checkpointer=IndelibleSaver(store))
    assert again.get_state(THREAD).values == before
    assert len(before["items"]) == 8
    saver.delete_for_runs(["run 3"])
    left = [each.metadata["run_id"] for each in IndelibleSaver(store).list(THREAD)]
    assert "run 3" not in left
    assert again.get_state(THREAD).values["items"] == before["items"][:6]


@pytest.mark.parametrize("engine", [*ENGINES, "cluster"])
def test_the_history_of_delta_channels_is_that_of_the_parents(engine, tmp_path):
    with indelible.open(empty_url(engine, tmp_path)) as store:
        compare_delta_history(IndelibleSaver(store))


def compare_delta_history(saver):
    graph = build_delta().compile(checkpointer=saver)
    run_delta(graph)
    past = list(graph.get_state_history(THREAD))[5]
    graph.update_state(past.config, {"items": ["branch"]}, as_node="add")
    graph.invoke({"items": ["on the branch"]}, THREAD)
    for each in range(2):
        for found in list(saver.list(THREAD)):
            wanted = {"config": found.config, "channels": ["items", "branch:to:add", "none"]}
            theirs = BaseCheckpointSaver.get_delta_channel_history(saver, **wanted)
            assert saver.get_delta_channel_history(**wanted) == theirs
        if each == 0:
            saver.compact()
    newest = saver.get_delta_channel_history(config=THREAD, channels=["items"])
    assert ["on the branch"] in [value for *_, value in newest["items"]["writes"]]


def test_a_checkpoint_that_names_itself_as_its_parent_ends_the_history(saver, config):
    # An application that puts a checkpoint again with the config that it got for it makes this.
    metadata = {"counters_since_delta_snapshot": {"items": 1}}
    for _ in range(2):
        config = saver.put(config, empty_checkpoint() | {"id": "1"}, metadata, {})
    saver.put_writes(config, [("items", "a")], "task")
    child = saver.put(config, empty_checkpoint() | {"id": "2"}, metadata, {})
    history = saver.get_delta_channel_history(config=child, channels=["items"])
    assert history == {"items": {"writes": [("task", "items", "a")]}}
    assert saver.prune(["t"]).kept == 2


def put_at_random(random, savers, number):
    """Put a checkpoint or writes for one, the same to each saver."""
    known = sorted(each.config["configurable"]["checkpoint_id"] for each in savers[0].list(THREAD))
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    if known:
        config["configurable"]["checkpoint_id"] = random.choice([random.choice(known), known[-1]])
    if known and random.random() < 0.3:
        writes = [(random.choice(["a", "b", "__error__"]), number), ("b", LONG * 2)]
        task = f"task {random.randrange(3)}"
        for saver in savers:
            saver.put_writes(config, writes, task)
        return
    found = savers[0].get_tuple(config) if known else None
    values, versions = {"a": [], "b": {}}, {}
    if found is not None:
        values |= found.checkpoint["channel_values"]
        versions |= found.checkpoint["channel_versions"]
    new = f"{number} {LONG}"
    items = [*values["a"], new] * random.choice([1, 1, 2])
    random.shuffle(items)
    values = {"a": items[: random.randrange(40)], "b": {**values["b"], str(number % 7): new}}
    changed = dict.fromkeys(random.sample("ab", random.randrange(3)), number)
    checkpoint = empty_checkpoint() | {"id": f"{number:04}", "channel_values": values}
    checkpoint["channel_versions"] = versions | changed
    for saver in savers:
        saver.put(config, checkpoint, {"step": number}, changed)


@pytest.mark.parametrize("seed", range(5))
def test_random_histories_are_those_of_the_saver_of_langgraph(store, seed):
    random = Random(seed)
    theirs, ours = InMemorySaver(), IndelibleSaver(store)
    for number in range(60):
        put_at_random(random, [theirs, ours], number)
        if random.random() < 0.05:
            ours.compact()
        if random.random() < 0.1:
            ours = IndelibleSaver(store)
    for reader in (ours, IndelibleSaver(store)):
        assert describe_tuples(reader) == describe_tuples(theirs)
        for each in theirs.list(THREAD):
            wanted = {"config": each.config, "channels": ["a", "b", "none"]}
            history = theirs.get_delta_channel_history(**wanted)
            assert reader.get_delta_channel_history(**wanted) == history


# Sharing


def build(values, version, channels=("messages",)):
    versions = dict.fromkeys(channels, f"{version:032}.0")
    return empty_checkpoint() | {"channel_values": values, "channel_versions": versions}


def put(saver, config, values, *, version, channels=("messages",)):
    checkpoint = build(values, version, channels)
    metadata = {"source": "loop", "step": version}
    return saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])


def messages(count):
    return [HumanMessage(f"{number} {LONG}", id=str(number)) for number in range(count)]


def logged(store):
    return store.session("~thread/t").logged


@pytest.fixture
def saver(store):
    return IndelibleSaver(store)


@pytest.fixture
def config():
    return {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def read(saver, config):
    return saver.get_tuple(config).checkpoint["channel_values"]["messages"]


@pytest.mark.parametrize(
    ("change", "new"),
    [
        (lambda old: [*old, AIMessage(LONG, id="new")], 1),
        (lambda old: add_messages(old, [HumanMessage("other " + LONG, id="5")]), 1),
        (lambda old: add_messages(old, [RemoveMessage(id="5")]), 0),
        (lambda old: old[::-1], 0),
        (lambda old: [*old, *old], 0),
        (lambda old: old[:3], 0),
        (lambda old: old, 0),
    ],
    ids=["appended", "replaced", "removed", "reversed", "repeated", "cut", "same"],
)
@pytest.mark.parametrize("process", ["same", "another"])
def test_a_checkpoint_stores_what_is_new(store, saver, config, change, new, process):
    config = put(saver, config, {"messages": messages(20)}, version=1)
    if process == "another":
        saver = IndelibleSaver(store)
        saver.get_tuple(config)
    # Not the same objects: what is loaded never is.
    changed = change(messages(20))
    before = logged(store)
    config = put(saver, config, {"messages": changed}, version=2)
    assert logged(store) - before == new + 1
    assert read(saver, config) == changed
    assert read(IndelibleSaver(store), config) == changed


def test_records_refer_to_values_as_their_module_draws_it(store, saver, config):
    a, b, c, d = (f"{letter} {LONG * 2}" for letter in "abcd")
    for number, found in enumerate(([a, b], [a, b, c], [a, d, c]), start=1):
        changed = {"messages": number, "name": 1} if number == 1 else {"messages": number}
        checkpoint = empty_checkpoint() | {
            "id": f"c{number}",
            "channel_values": {"messages": found, "name": "ana"},
            "channel_versions": {"messages": number, "name": 1},
        }
        config = saver.put(config, checkpoint, {}, changed)
        if number == 1:
            saver.put_writes(config, [("messages", c)], "t")
    kinds = [entry.kind for entry in store.get_entries("~thread/t")]
    assert [kinds.index("checkpoint"), len(kinds)] == [3, 9]
    stored = {entry.position: entry.value for entry in store.get_entries("~thread/t")}
    assert {at: stored[at].id for at in (3, 5, 6, 8)} == (
        {3: "c\x1f", 5: "w\x1f\x1fc1", 6: "c\x1f", 8: "c\x1f"}
    )
    assert stored[3].record["channels"] == {
        "messages": [1, "list", [[-3, 2]]],
        "name": [1, "one", [[-1, 1]]],
    }
    assert stored[5].record == {"task": "t", "path": "", "writes": [[0, "messages", -1]]}
    assert [stored[at].record["channels"]["messages"][2] for at in (6, 8)] == [
        [[0, 2, 1], [4, 1]],
        [[0, 1, 1], [-1, 1], [2, 1, 1]],
    ]
    assert [stored[at].record.get("chain") for at in (3, 6, 8)] == [None, [3], [3, 6]]


def test_the_first_value_of_a_thread_may_follow_new_ones(store, saver, config):
    first, *others = messages(4)
    mixed = [*others, first, *others]
    config = put(saver, config, {"messages": [first]}, version=1)
    config = put(saver, config, {"messages": mixed}, version=2)
    for each in (saver, IndelibleSaver(store)):
        assert read(each, config) == mixed
    saver.compact()
    assert read(IndelibleSaver(store), config) == mixed


def test_dicts_share_their_items(store, saver, config):
    files = {f"file {n}": LONG + str(n) for n in range(20)}
    config = put(saver, config, {"messages": files}, version=1)
    before = logged(store)
    changed = {**files, "file 3": LONG + "changed", "file 20": LONG}
    del changed["file 4"]
    config = put(saver, config, {"messages": changed}, version=2)
    assert logged(store) - before == 4, "two items, the list of keys, and the record"
    found = read(IndelibleSaver(store), config)
    assert found == changed
    assert list(found) == list(changed), "in the same order"
    before = logged(store)
    config = put(saver, config, {"messages": {**changed, "file 3": LONG}}, version=3)
    assert logged(store) - before == 1, "the record alone"


def test_a_message_that_was_changed_in_place_is_stored_as_changed(store, saver, config):
    changing = messages(20)
    config = put(saver, config, {"messages": changing}, version=1)
    first = config
    changing[3].content = "changed " + LONG
    config = put(saver, config, {"messages": changing}, version=2)
    assert read(IndelibleSaver(store), config)[3].content == "changed " + LONG
    assert read(saver, first) == messages(20)


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: [data, LONG]])
def test_a_bytearray_that_was_changed_in_place_is_stored_as_changed(store, saver, config, wrap):
    changing = bytearray(1000)
    first = put(saver, config, {"messages": wrap(changing)}, version=1)
    saver.put_writes(first, [("messages", changing)], "task")
    changing[0] = 1
    second = put(saver, first, {"messages": wrap(changing)}, version=2)
    for each in (saver, IndelibleSaver(store)):
        assert read(each, second) == wrap(changing)
        assert read(each, first) == wrap(bytearray(1000))
        assert each.get_tuple(first).pending_writes == [("task", "messages", bytearray(1000))]


def test_what_is_returned_is_nobody_elses(saver, config):
    config = put(saver, config, {"messages": messages(20)}, version=1)
    read(saver, config)[0].content = "changed"
    assert read(saver, config) == messages(20)


def test_pending_writes_and_channels_share_values(store, saver, config):
    config = put(saver, config, {"messages": messages(20)}, version=1)
    answer = AIMessage(LONG, id="new")
    saver.put_writes(config, [("messages", answer)], "task")
    before = logged(store)
    config = put(saver, config, {"messages": [*messages(20), answer]}, version=2)
    assert logged(store) - before == 1, "the record alone"


def test_more_values_than_fit_into_one_batch_are_stored(store, saver, config):
    many = messages(2500)
    config = put(saver, config, {"messages": many}, version=1)
    assert read(IndelibleSaver(store), config) == many


def test_long_chains_of_differences_read_back(store, saver, config):
    configs = []
    for number in range(1, 100):
        config = put(saver, config, {"messages": messages(number)}, version=number)
        configs.append(config)
    fresh = IndelibleSaver(store)
    for number in (1, 31, 32, 33, 34, 64, 65, 98, 99):
        assert read(fresh, configs[number - 1]) == messages(number), number
    assert [each.metadata["step"] for each in fresh.list(config)] == [99]
    everything = {"configurable": {"thread_id": "t"}}
    assert [each.metadata["step"] for each in fresh.list(everything)] == list(range(99, 0, -1))


# Others


def test_an_empty_checkpoint_id_is_none(saver, config):
    config["configurable"]["checkpoint_id"] = ""
    stored = put(saver, config, {"messages": messages(1)}, version=1)
    assert read(saver, config) == messages(1)
    (found,) = saver.list(config)
    assert found.config == saver.get_tuple(stored).config
    assert found.parent_config is None


def test_one_id_instead_of_several_is_refused(saver, config):
    # Iterated, the text would name a thread for each of its letters.
    put(saver, config, {"messages": messages(1)}, version=1)
    for work in (
        lambda: saver.prune("t", strategy="delete"),
        lambda: saver.compact("t"),
        lambda: saver.delete_for_runs("t"),
    ):
        with pytest.raises(indelible.UsageError, match="a list of ids, not 't'"):
            work()
    assert len(list(saver.list(None))) == 1


def test_what_another_saver_pruned_is_stored_again(store, config):
    one, other = IndelibleSaver(store), IndelibleSaver(store)
    config = put(one, config, {"messages": messages(20)}, version=1)
    config = put(one, config, {"messages": messages(21)}, version=2)
    other.prune(["t"])
    config = put(one, config, {"messages": messages(22)}, version=3)
    assert read(IndelibleSaver(store), config) == messages(22)


def test_a_rollback_shows_an_earlier_checkpoint(store, saver, config):
    config = put(saver, config, {"messages": messages(20)}, version=1)
    snapshot = store.save_snapshot("~thread/t", label="good")
    put(saver, config, {"messages": messages(21)}, version=2)
    store.rollback_to_snapshot("~thread/t", snapshot.id)
    assert read(saver, THREAD) == messages(20)
    store.vacuum(undo_window=0.0)
    config = put(saver, config, {"messages": messages(21)}, version=2)
    assert read(IndelibleSaver(store), THREAD) == messages(21)


def test_a_graph_goes_on_from_a_label_and_after_an_undo(store):
    graph = build_steps().compile(checkpointer=IndelibleSaver(store, on_conflict="refuse"))
    graph.invoke({"total": 0, "seen": []}, THREAD)
    store.save_snapshot("~thread/t", label="good")
    graph.invoke({"total": 5}, THREAD)
    store.rollback_to_snapshot("~thread/t", "good")
    for each in (graph, build_steps().compile(checkpointer=IndelibleSaver(store))):
        assert each.get_state(THREAD).values["total"] == 3
    store.undo("~thread/t")
    assert graph.get_state(THREAD).values["total"] == 11
    store.rollback_to_snapshot("~thread/t", "good")
    assert graph.invoke({"total": 10}, THREAD)["total"] == 16
    assert len(list(graph.get_state_history(THREAD))) == 8, "none of the run that was rolled back"


def test_a_copy_of_a_view_in_which_ids_do_not_grow_has_all_checkpoints(store, saver):
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}

    def put_many(letter, count):
        nonlocal config
        for number in range(count):
            checkpoint = empty_checkpoint() | {"id": f"{letter}{number:03}"}
            config = saver.put(config, checkpoint, {}, {})

    put_many("a", 40)
    snapshot = store.save_snapshot("~thread/t")
    put_many("z", 60)
    store.rollback_to_snapshot("~thread/t", snapshot.id)
    put_many("m", 50)
    store.undo("~thread/t")
    saver.copy_thread("t", "u")
    for thread in ("t", "u"):
        listed = [each.config for each in saver.list({"configurable": {"thread_id": thread}})]
        assert len(listed) == 150
        assert None not in [saver.get_tuple(each) for each in listed]


def test_a_run_that_a_rollback_overtook_is_refused(store):
    def roll_back(state):
        if state["total"] > 0:
            store.rollback_to_snapshot("~thread/t", "good")
        return {"total": 1}

    builder = StateGraph(Numbers)
    builder.add_node("add", roll_back)
    builder.add_edge(START, "add")
    graph = builder.compile(checkpointer=IndelibleSaver(store, on_conflict="refuse"))
    graph.invoke({"total": 0}, THREAD)
    store.save_snapshot("~thread/t", label="good")
    with pytest.raises(indelible.ConflictError, match="went on without this run"):
        graph.invoke({"total": 5}, THREAD, durability="sync")
    assert graph.get_state(THREAD).values["total"] == 1


def test_a_thread_is_forked_at_a_label(store, saver, config):
    config = put(saver, config, {"messages": messages(1)}, version=1)
    saver.compact()
    config = put(saver, config, {"messages": messages(20)}, version=2)
    store.save_snapshot("~thread/t", label="good")
    put(saver, config, {"messages": messages(21)}, version=3)
    store.fork("~thread/t", "~thread/copy", at="good")
    copied = {"configurable": {"thread_id": "copy", "checkpoint_ns": ""}}
    assert [len(each.checkpoint["channel_values"]["messages"]) for each in saver.list(copied)] == (
        [20, 1]
    )
    newest = saver.get_tuple(copied).config
    put(saver, newest, {"messages": messages(22)}, version=3)
    assert read(IndelibleSaver(store), copied) == messages(22)
    assert read(IndelibleSaver(store), THREAD) == messages(21)
    assert store.verify().ok


def test_a_thread_and_a_chat_of_one_id_do_not_meet(store, saver, config):
    store.add_message("t", "user", "hello")
    store.remember("t", "a fact", id="fact")
    config = put(saver, config, {"messages": messages(20)}, version=1)
    saver.delete_thread("t")
    assert [message.content for message in store.get_history("t")] == ["hello"]
    assert saver.get_tuple(config) is None


def test_search_and_history_do_not_show_values(store, saver, config):
    put(saver, config, {"messages": messages(20)}, version=1)
    assert store.search("words") == []
    assert store.get_history("~thread/t") == []
    assert store.verify().ok


def test_many_threads_of_a_process_write_one_namespace(store, saver, config):
    config = put(saver, config, {"messages": messages(5)}, version=1)

    def work(number):
        own = [*messages(5), HumanMessage(f"own {number} {LONG}", id=f"own{number}")]
        configs[number] = put(saver, config, {"messages": own}, version=2)

    configs = {}
    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    fresh = IndelibleSaver(store)
    for number, own in configs.items():
        assert read(fresh, own)[-1].id == f"own{number}"
    assert len(list(fresh.list(THREAD))) == 9


def count_up(url, thread, turns, refused):
    """In another process: count up what the thread holds, and try again when refused."""
    builder = StateGraph(Numbers)
    builder.add_node("add", lambda state: {"total": 1})
    builder.add_edge(START, "add")
    with indelible.open(url) as store:
        saver = IndelibleSaver(store, on_conflict="refuse" if refused else "fork")
        graph = builder.compile(checkpointer=saver)
        for _ in range(turns):
            while True:
                try:
                    graph.invoke({"total": 0}, thread, durability="sync")
                    break
                except indelible.ConflictError as error:
                    if error.reason != "thread":
                        raise


def test_no_turn_of_eight_processes_is_lost_if_conflicts_are_refused(tmp_path):
    url = str(tmp_path / "agent.db")
    with starting() as start:
        workers = [start(count_up, url, THREAD, 4, refused=True) for _ in range(8)]
        for worker in workers:
            worker.result(120)
    with indelible.open(url) as store:
        assert IndelibleSaver(store).get_tuple(THREAD).checkpoint["channel_values"]["total"] == 32


@pytest.mark.parametrize("earlier_turns", [0, 1])
def test_a_run_that_was_overtaken_is_refused(store, earlier_turns):
    saver = IndelibleSaver(store, on_conflict="refuse")
    overtaking = []

    def run():
        graph.invoke({"total": 0}, THREAD, durability="sync")

    def add(state):
        if overtaking:
            overtaking.pop()()
        return {"total": 1}

    builder = StateGraph(Numbers)
    builder.add_node("add", add)
    builder.add_edge(START, "add")
    graph = builder.compile(checkpointer=saver)
    for _ in range(earlier_turns):
        run()
    overtaking.append(run)
    with pytest.raises(indelible.ConflictError, match="went on without this run"):
        run()
    assert graph.get_state(THREAD).values["total"] == earlier_turns + 1


def test_runs_that_take_turns_in_several_processes_are_not_refused(store, config):
    first, second = (IndelibleSaver(store, on_conflict="refuse") for _ in range(2))
    for number, saver in enumerate((first, second, first, first, second), start=1):
        found = saver.get_tuple(THREAD)
        put(
            saver, found.config if found else config, {"messages": messages(number)}, version=number
        )
    first.delete_thread("t")
    put(second, config, {"messages": messages(1)}, version=1)
    assert [found.metadata["step"] for found in first.list(THREAD)] == [1]


def test_a_run_that_asked_for_a_checkpoint_by_its_id_is_not_refused(store):
    ours, theirs = IndelibleSaver(store, on_conflict="refuse"), InMemorySaver()
    graphs = [build_steps().compile(checkpointer=saver) for saver in (ours, theirs)]
    for graph in graphs:
        run_time_travel(graph)
    assert describe(graphs[0]) == describe(graphs[1])


def test_a_copy_of_the_first_checkpoint_is_not_refused(store):
    graph = build_steps().compile(checkpointer=IndelibleSaver(store, on_conflict="refuse"))
    run_steps(graph)
    first = list(graph.get_state_history(THREAD))[-1]
    assert first.parent_config is None
    copied = graph.update_state(first.config, None, "__copy__")
    assert graph.get_state(copied).next == first.next
    assert graph.get_state(THREAD).next == first.next


def test_a_graph_of_messages_keeps_every_message(store):
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: {"messages": [AIMessage(LONG)]})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    graph = builder.compile(checkpointer=IndelibleSaver(store))
    for number in range(20):
        graph.invoke({"messages": [("user", f"{number} {LONG}")]}, THREAD)
    found = graph.get_state(THREAD).values["messages"]
    assert [message.content for message in found[::2]] == [f"{n} {LONG}" for n in range(20)]
    assert sum(entry.kind == "value" for entry in store.get_entries("~thread/t")) < 200


def test_channels_come_and_go_in_long_chains(store, saver, config):
    for number in range(1, 80):
        names = ("messages",) if number % 2 else ("messages", "even")
        values = {"messages": messages(2), "even": "the same"}
        config = put(saver, config, values, version=number, channels=names)
        found = IndelibleSaver(store).get_tuple(config).checkpoint["channel_values"]
        assert found.get("even") == (None if number % 2 else "the same")


def interrupt_once(monkeypatch, method, act):
    """Do something just before the next call of a method of `Threads`."""
    before = getattr(Threads, method)

    async def interrupted(self, *args, **options):
        monkeypatch.setattr(Threads, method, before)
        act()
        return await before(self, *args, **options)

    monkeypatch.setattr(Threads, method, interrupted)


def test_a_checkpoint_that_is_put_while_another_saver_prunes_is_not_lost(
    store, saver, config, monkeypatch
):
    config = put(saver, config, {"messages": messages(20)}, version=1)
    config = put(saver, config, {"messages": messages(21)}, version=2)

    def go_on():
        put(saver, config, {"messages": messages(22)}, version=3)

    interrupt_once(monkeypatch, "_append_again", go_on)
    IndelibleSaver(store).prune(["t"])
    for each in (saver, IndelibleSaver(store)):
        assert read(each, THREAD) == messages(22)
        assert [found.metadata["step"] for found in each.list(THREAD)] == [3]


@pytest.mark.parametrize("rewrite", ["compact", "prune"])
def test_writes_that_are_put_while_another_saver_rewrites_are_not_lost(
    store, saver, config, monkeypatch, rewrite
):
    config = put(saver, config, {"messages": messages(20)}, version=1)
    config = put(saver, config, {"messages": messages(21)}, version=2)
    interrupt_once(
        monkeypatch, "read_writes", lambda: saver.put_writes(config, [("messages", LONG)], "task")
    )
    getattr(IndelibleSaver(store), rewrite)(["t"])
    for each in (saver, IndelibleSaver(store)):
        assert each.get_tuple(config).pending_writes == [("task", "messages", LONG)]


def test_writes_that_are_put_while_pages_of_records_are_read_are_not_lost(
    store, saver, config, monkeypatch
):
    monkeypatch.setattr(checkpoints, "ITEM_PAGE", 2)
    find_records = checkpoints.find_records
    configs = [config := put(saver, config, {"messages": "a"}, version=n) for n in range(1, 4)]
    saver.put_writes(configs[0], [("messages", LONG)], "task")
    saver.put_writes(configs[1], [("messages", LONG)], "task")

    def interrupted(session, first, last, limit=None):
        plan = find_records(session, first, last, limit=limit)
        answer = yield next(plan)
        if first.endswith(configs[0]["configurable"]["checkpoint_id"]):
            monkeypatch.setattr(checkpoints, "find_records", find_records)
            saver.put_writes(configs[2], [("messages", LONG)], "task")
        try:
            while True:
                answer = yield plan.send(answer)
        except StopIteration as done:
            return done.value

    monkeypatch.setattr(checkpoints, "find_records", interrupted)
    IndelibleSaver(store).compact()
    for each in configs:
        assert saver.get_tuple(each).pending_writes == [("task", "messages", LONG)]


class LastValues(TypedDict, total=False):
    name: str
    step: int


def test_a_copied_checkpoint_has_all_its_channels(store):
    builder = StateGraph(LastValues)
    builder.add_node("one", lambda state: {"step": 1})
    builder.add_node("two", lambda state: {"step": 2})
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    states = []
    for saver in (InMemorySaver(), IndelibleSaver(store)):
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"name": "ana"}, THREAD)
        graph.update_state(THREAD, None, as_node="__copy__")
        states.append(graph.get_state(THREAD).values)
    assert states[0] == states[1] == {"name": "ana", "step": 2}


def test_the_newest_record_of_an_id_counts_however_old_it_is(store, saver, config):
    configs = []
    for number in range(1, 60):
        checkpoint = empty_checkpoint() | {"channel_versions": {"messages": str(number)}}
        for text in ("old", "new"):
            checkpoint["channel_values"] = {"messages": [f"{text} {number}"]}
            stored = saver.put(config, checkpoint, {}, checkpoint["channel_versions"])
        configs.append(stored)
    fresh = IndelibleSaver(store)
    assert [read(fresh, each) for each in configs] == [[f"new {n}"] for n in range(1, 60)]


def test_an_id_that_was_stored_again_long_ago_is_found_as_it_was_stored_last(store, saver, config):
    for number in [*range(1, 51), 1, *range(51, 111)]:
        checkpoint = empty_checkpoint() | {"id": f"{number:04}"}
        stored = saver.put(config, checkpoint, {"after": len(list(saver.list(THREAD)))}, {})
        config = config if number == 1 else stored
    for each in (saver, IndelibleSaver(store)):
        again = {"configurable": {**config["configurable"], "checkpoint_id": "0001"}}
        assert each.get_tuple(again).metadata == {"after": 50}
        between = {"configurable": {**config["configurable"], "checkpoint_id": "00011"}}
        assert each.get_tuple(between) is None


def test_an_id_that_was_stored_again_after_an_undone_rollback_is_found_as_it_was_stored_last(
    store, saver, config
):
    def put_all(config, numbers, text):
        for number in numbers:
            checkpoint = empty_checkpoint() | {"id": f"{number:04}"}
            config = saver.put(config, checkpoint, {"text": text}, {})
        return config

    kept = put_all(config, range(20), "kept")
    store.save_snapshot("~thread/t", label="good")
    put_all(kept, range(20, 40), "old")
    store.rollback_to_snapshot("~thread/t", "good")
    put_all(kept, range(20, 100), "new")
    store.undo("~thread/t")
    saver.copy_thread("t", "u")
    for thread in ("t", "u"):
        again = {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": "0025"}
        found = IndelibleSaver(store).get_tuple({"configurable": again})
        assert found.metadata == {"text": "new"}


def test_a_thread_that_begins_again_shows_nothing_of_the_one_before(
    store, saver, config, monkeypatch
):
    old = put(saver, config, {"messages": messages(20)}, version=1)

    def begin_again():
        other = IndelibleSaver(store)
        other.delete_thread("t")
        put(other, config, {"messages": [f"other {LONG}"] * 20}, version=1)

    interrupt_once(monkeypatch, "read_writes", begin_again)
    assert IndelibleSaver(store).get_tuple(old) is None
    assert read(saver, THREAD) == read(IndelibleSaver(store), THREAD) == [f"other {LONG}"] * 20


def test_a_state_that_was_looked_at_is_continued_even_if_conflicts_are_refused(store):
    graph = build_steps().compile(checkpointer=IndelibleSaver(store, on_conflict="refuse"))
    run_steps(graph)
    past = graph.get_state(THREAD).config
    graph.invoke({"total": 5}, THREAD)
    assert graph.invoke({"total": 7}, past)["total"] == 11 + 7 + 3


def test_many_small_parts_are_one_value(store, saver, config):
    numbers = [number / 7 for number in range(5000)]
    config = put(saver, config, {"messages": numbers}, version=1)
    assert logged(store) == 2
    assert read(IndelibleSaver(store), config) == numbers


# Decoding


class OtherSerializer(JsonPlusSerializer):
    """Writes a form that others cannot read."""

    def dumps_typed(self, obj):
        return ("other", b"") if obj == "unreadable" else super().dumps_typed(obj)


def test_what_cannot_be_decoded_is_named(store, config):
    writer = IndelibleSaver(store, serde=OtherSerializer())
    first = put(writer, config, {"messages": "unreadable"}, version=1)
    checkpoint_id = first["configurable"]["checkpoint_id"]
    named = f"channel 'messages' of checkpoint {checkpoint_id} in thread 't' cannot be decoded"
    with pytest.raises(indelible.FormatError, match=named):
        IndelibleSaver(store).get_tuple(first)
    second = put(writer, first, {"messages": "readable"}, version=2)
    writer.put_writes(second, [("messages", "unreadable")], "task")
    with pytest.raises(indelible.FormatError, match="a write to channel 'messages' of checkpoint"):
        IndelibleSaver(store).get_tuple(second)


def test_what_the_serializer_turns_into_none_is_an_error(store, config):
    # LangGraph returns None for extensions that it does not know, as those of a newer version.
    newer = "msgpack", ormsgpack.packb(ormsgpack.Ext(100, b"newer"))

    class Newer(JsonPlusSerializer):
        def dumps_typed(self, obj):
            return newer if obj == "newer" else super().dumps_typed(obj)

    writer = IndelibleSaver(store, serde=Newer())
    for value in ("newer", [LONG * 2, None, "newer"]):
        config = put(writer, config, {"messages": value}, version=1)
        with pytest.raises(indelible.FormatError, match="channel 'messages' of checkpoint"):
            IndelibleSaver(store).get_tuple(config)
    config = put(writer, config, {"messages": [LONG * 2, None]}, version=2)
    assert read(IndelibleSaver(store), config) == [LONG * 2, None]


@pytest.mark.parametrize(
    "none", [("null", b""), ("json", b"null"), ("msgpack", b"\xc0")], ids=lambda none: none[0]
)
def test_a_none_of_another_serializer_is_no_error(store, config, none):
    class Other(JsonPlusSerializer):
        def dumps_typed(self, obj):
            return none if obj is None else super().dumps_typed(obj)

    class Tagged(Other):
        def dumps_typed(self, obj):
            return ("none", b"") if obj is None else super().dumps_typed(obj)

    config = put(IndelibleSaver(store, serde=Other()), config, {"messages": None}, version=1)
    for serde in (Other(), JsonPlusSerializer(), Tagged()):
        assert read(IndelibleSaver(store, serde=serde), config) is None


def test_metadata_that_cannot_be_decoded_is_named_by_all_that_read_it(store, config):
    writer = IndelibleSaver(store, serde=OtherSerializer())
    config = put(writer, config, {"messages": "a"}, version=1)
    checkpoint = build({"messages": "b"}, 2)

    class Unreadable(OtherSerializer):
        def dumps_typed(self, obj):
            return super().dumps_typed("unreadable" if obj == {"step": 2} else obj)

    IndelibleSaver(store, serde=Unreadable()).put(config, checkpoint, {"step": 2}, {"messages": 2})
    named = f"metadata of checkpoint {checkpoint['id']} in thread 't' cannot be decoded"
    reader = IndelibleSaver(store)
    for work in (
        lambda: reader.get_tuple(THREAD),
        lambda: list(reader.list(THREAD, filter={"step": 1})),
        lambda: reader.prune(["t"]),
        lambda: reader.delete_for_runs(["run"]),
    ):
        with pytest.raises(indelible.FormatError, match=named):
            work()


class Cipher:
    """Makes other bytes each time, as ciphers with a nonce do."""

    def __init__(self):
        self.calls = 0

    def encrypt(self, plaintext):
        self.calls += 1
        mask = 0x80 | self.calls % 0x80
        return "test", bytes((mask, *(each ^ mask for each in plaintext)))

    def decrypt(self, ciphername, ciphertext):
        mask, *masked = ciphertext
        return bytes(each ^ mask for each in masked)


def test_a_serializer_that_encrypts_leaves_nothing_readable(store, config):
    saver = IndelibleSaver(store, serde=EncryptedSerializer(Cipher()))
    secret = f"a secret {LONG}"
    files = {f"{secret} {number}": secret for number in range(5)}
    config = {"configurable": {**config["configurable"], "user": secret}}
    stored = put(saver, config, {"messages": files, "name": secret}, version=1)
    saver.put_writes(stored, [("messages", secret), ("messages", files)], "task")
    for compact in (False, True):
        if compact:
            stored = put(saver, stored, {"messages": [secret, files]}, version=2)
            saver.compact()
        for found in saver.list(THREAD):
            assert secret in str(found.checkpoint)
        texts = [str(each) for each in iter_bytes(store.get_entries("~thread/t"))]
        assert len(texts) > 10
        assert not any("secret" in text for text in texts)


def iter_bytes(entries):
    """The bytes of all values, and all records."""
    for entry in entries:
        if entry.kind == "value":
            yield b64decode(entry.value.data)
        elif "pack" in entry.value.record:
            pack = parse_pack(entry.value, 0)
            yield from (data for _, data in pack.values.values())
            yield from (each.record for each in pack.records.values())
        else:
            yield entry.value.record
            yield from (
                b64decode(entry.value.record.get(name, ("", ""))[1])
                for name in ("body", "metadata")
            )


def test_decoding_imports_nothing_beyond_the_allowlist(store, config, tmp_path, monkeypatch):
    (tmp_path / "named_by_bytes.py").write_text("class Named(dict):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    named = ormsgpack.packb(("named_by_bytes", "Named", {"a": 1}))
    value = "msgpack", ormsgpack.packb(ormsgpack.Ext(0, named))

    class Forging(JsonPlusSerializer):
        def dumps_typed(self, obj):
            return value if obj == "forged" else super().dumps_typed(obj)

    config = put(IndelibleSaver(store, serde=Forging()), config, {"messages": "forged"}, version=1)
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    assert read(IndelibleSaver(store, serde=strict), config) == {"a": 1}
    assert "named_by_bytes" not in sys.modules


def count_records():
    """Count the checkpoints that this process keeps in memory."""
    gc.collect()
    return sum(isinstance(each, CheckpointRecord) for each in gc.get_objects())


def test_an_id_that_is_not_stored_is_not_looked_for_in_every_record(store, saver, config):
    for number in range(400):
        checkpoint = empty_checkpoint() | {"id": f"{number:04}"}
        config = saver.put(config, checkpoint, {}, {})
    absent = {"configurable": {**config["configurable"], "checkpoint_id": "0100x"}}
    before = count_records()
    fresh = IndelibleSaver(store)
    assert fresh.get_tuple(absent) is None
    assert count_records() - before < 200


def test_a_list_keeps_no_more_than_the_cache_may_hold(store, saver, config, monkeypatch):
    for number in range(400):
        config = put(saver, config, {"messages": messages(1)}, version=number)
    monkeypatch.setattr(checkpoint_reader, "_BYTES_CACHED", 0)
    before = count_records()
    listed = IndelibleSaver(store).list(THREAD)
    for number in range(399, 0, -1):
        assert next(listed).metadata["step"] == number
    assert count_records() - before < 100


def test_a_list_that_a_rollback_overtook_leaves_the_cache_of_the_new_view(store, saver, config):
    for number in range(100):
        config = put(saver, config, {"messages": messages(1)}, version=number)
    snapshot = store.save_snapshot("~thread/t")
    config = put(saver, config, {"messages": messages(2)}, version=100)
    listed = saver.list(THREAD)
    newest = next(listed)
    store.rollback_to_snapshot("~thread/t", snapshot.id)
    assert saver.get_tuple(THREAD).metadata["step"] == 99
    (cache,) = saver._blocking._caches.values()
    assert [each.metadata["step"] for each in (newest, *listed)] == list(range(100, -1, -1))
    (left,) = saver._blocking._caches.values()
    assert left is cache


# Packing and retention


def describe_tuples(saver):
    """Every checkpoint with its writes, as a saver lists them."""
    return [
        (each.config["configurable"]["checkpoint_id"], each.checkpoint, each.pending_writes)
        for each in saver.list(None)
    ]


@pytest.mark.parametrize("engine", [*ENGINES, "cluster"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_compacted_thread_has_the_same_states(engine, tmp_path, name):
    with indelible.open(empty_url(engine, tmp_path)) as store:
        compact_and_compare(store, *GRAPHS[name])


@pytest.mark.parametrize("limit", ["_BYTES_CACHED", "_THREADS_CACHED"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_thread_that_does_not_fit_into_the_cache_has_the_same_states(
    store, name, limit, monkeypatch
):
    monkeypatch.setattr(checkpoint_reader, limit, 0)
    saver = compact_and_compare(store, *GRAPHS[name])
    assert sum(cache.size for cache in saver._blocking._caches.values()) == 0


def compact_and_compare(store, build, run):
    run(build().compile(checkpointer=IndelibleSaver(store)))
    before = describe_tuples(IndelibleSaver(store))
    saver = IndelibleSaver(store)
    for _ in range(2):
        assert saver.compact().kept == len(before)
        for each in (saver, IndelibleSaver(store)):
            assert sorted(describe_tuples(each), key=str) == sorted(before, key=str)
    assert store.verify().ok
    run(build().compile(checkpointer=saver))
    after = describe_tuples(IndelibleSaver(store))
    assert len(after) > len(before)
    assert all(each in after for each in before)
    return saver


def test_compacting_packs_values_and_leaves_addresses(store, saver, config):
    configs = []
    for number in range(1, 70):
        config = put(saver, config, {"messages": messages(number)}, version=number)
        saver.put_writes(config, [("messages", f"write {number}")], "task")
        configs.append(config)
    saver.compact(["t"])
    entries = store.get_entries("~thread/t")
    assert len(entries) == 2, "a pack, and the newest checkpoint with its write"
    fresh = IndelibleSaver(store)
    for number in (1, 31, 32, 33, 68, 69):
        found = fresh.get_tuple(configs[number - 1])
        assert found.checkpoint["channel_values"]["messages"] == messages(number)
        assert found.pending_writes == [("task", "messages", f"write {number}")]
    # Later writes and checkpoints refer to what is packed.
    fresh.put_writes(configs[4], [("messages", "late")], "task 2")
    put(fresh, configs[4], {"messages": messages(6)}, version=70)
    assert len(store.get_entries("~thread/t")) == 2 + 2 + 1, "nothing of the values again"
    fresh.compact()
    found = IndelibleSaver(store).get_tuple(configs[4])
    assert [value for *_, value in found.pending_writes] == ["write 5", "late"]
    assert read(IndelibleSaver(store), THREAD) == messages(6)


@pytest.mark.parametrize("value", [None, b""])
def test_values_without_bytes_are_packed(store, saver, config, value):
    first = put(saver, config, {"messages": "erased"}, version=1)
    second = put(saver, first, {"messages": value}, version=2)
    saver.put_writes(second, [("messages", value)], "task")
    saver.prune(["t"])
    for each in (saver, IndelibleSaver(store)):
        assert read(each, second) == value
        assert each.get_tuple(second).pending_writes == [("task", "messages", value)]


def test_a_packed_checkpoint_that_is_put_again_keeps_its_writes(store, saver, config):
    first = put(saver, config, {"messages": messages(1)}, version=1)
    saver.put_writes(first, [("messages", LONG)], "task")
    put(saver, first, {"messages": messages(2)}, version=2)
    saver.compact()
    checkpoint = saver.get_tuple(first).checkpoint
    saver.put(config, checkpoint, {"step": "again"}, checkpoint["channel_versions"])
    for _ in range(2):
        for each in (saver, IndelibleSaver(store)):
            found = each.get_tuple(first)
            assert found.metadata["step"] == "again"
            assert found.pending_writes == [("task", "messages", LONG)]
        saver.compact()


@pytest.mark.parametrize("ids", ["ab", "ba"], ids=["ids grow", "ids do not grow"])
def test_writes_before_and_after_packing_are_stored_once_if_their_checkpoint_is_put_again(
    store, saver, config, ids
):
    checkpoints = []
    for number, each in enumerate(ids, start=1):
        checkpoints.append(build({"messages": messages(number)}, number) | {"id": each})
        saver.put(config, checkpoints[-1], {}, checkpoints[-1]["channel_versions"])
    first = {"configurable": {**config["configurable"], "checkpoint_id": ids[0]}}
    saver.put_writes(first, [("messages", "first"), ("__error__", "old")], "task")
    saver.compact()
    saver.put_writes(first, [("messages", "again"), ("__error__", "new")], "task")
    saver.put_writes(first, [("messages", "late")], "task 2")
    expected = [("task", "__error__", "new"), ("task", "messages", "first")]
    expected.append(("task 2", "messages", "late"))
    assert saver.get_tuple(first).pending_writes == expected
    for _ in range(2):
        saver.put(config, checkpoints[0], {}, checkpoints[0]["channel_versions"])
        for each in (saver, IndelibleSaver(store)):
            assert each.get_tuple(first).pending_writes == expected
        saver.compact()


def test_writes_that_come_before_their_checkpoint_are_kept_in_many_packs(
    store, saver, config, monkeypatch
):
    monkeypatch.setattr(checkpoint_threads, "_PACK_BYTES", 1)
    expected = []
    for number in range(1, 6):
        checkpoint = build({"messages": messages(number)}, number)
        stored = {"configurable": {**config["configurable"], "checkpoint_id": checkpoint["id"]}}
        # LangGraph stores a checkpoint and the writes for it in two threads.
        saver.put_writes(stored, [("messages", f"{number} {LONG}")], "task")
        config = saver.put(config, checkpoint, {}, checkpoint["channel_versions"])
        expected.insert(0, [("task", "messages", f"{number} {LONG}")])
    saver.compact()
    for each in (saver, IndelibleSaver(store)):
        assert [found.pending_writes for found in each.list(THREAD)] == expected


@pytest.mark.parametrize("namespace", ["", "n" * 500], ids=["short", "long"])
@pytest.mark.parametrize("rewrite", ["compact", "prune"])
def test_writes_whose_checkpoint_comes_after_a_rewrite_are_kept(
    store, saver, config, rewrite, namespace
):
    config["configurable"]["checkpoint_ns"] = namespace
    for number in "12":
        checkpoint = build({"messages": messages(int(number))}, int(number)) | {"id": number}
        config = saver.put(config, checkpoint, {}, checkpoint["channel_versions"])
    pending = {"configurable": {**config["configurable"], "checkpoint_id": "3"}}
    # One value is new, and one is shared with what is packed.
    values = [("messages", messages(1)[0]), ("messages", LONG)]
    saver.put_writes(pending, values, "task")
    for _ in range(2):
        getattr(saver, rewrite)(["t"])
    saver.put(config, checkpoint | {"id": "3"}, {}, checkpoint["channel_versions"])
    for _ in range(2):
        for each in (saver, IndelibleSaver(store)):
            found = each.get_tuple(pending).pending_writes
            assert found == [("task", *value) for value in values]
        getattr(saver, rewrite)(["t"])


def test_writes_of_no_checkpoint_are_pruned_when_newer_ones_are_stored(store, saver, config):
    for number in "134":
        checkpoint = build({"messages": messages(int(number))}, int(number)) | {"id": number}
        config = saver.put(config, checkpoint, {}, checkpoint["channel_versions"])
    saver.put_writes(
        {"configurable": {**config["configurable"], "checkpoint_id": "2"}},
        [("messages", LONG)],
        "task",
    )
    saver.compact()
    assert len(store.get_entries("~thread/t")) == 3, "a pack, the newest checkpoint, and the writes"
    saver.prune(["t"])
    assert len(store.get_entries("~thread/t")) == 2


def test_a_snapshot_from_before_keeps_what_it_needs(store, saver, config):
    config = put(saver, config, {"messages": messages(20)}, version=1)
    snapshot = store.save_snapshot("~thread/t")
    put(saver, config, {"messages": messages(21)}, version=2)
    saver.prune(["t"])
    saver.compact()
    assert read(IndelibleSaver(store), THREAD) == messages(21)
    store.rollback_to_snapshot("~thread/t", snapshot.id)
    for each in (saver, IndelibleSaver(store)):
        assert read(each, THREAD) == messages(20)


def test_a_large_value_stays_where_it_is(store, saver, config):
    large = "x" * (5 * 1024 * 1024)
    config = put(saver, config, {"messages": large}, version=1)
    config = put(saver, config, {"messages": "small"}, version=2)
    saver.compact()
    assert store.get_entries("~thread/t")[0].kind == "value"
    assert [each.checkpoint["channel_values"]["messages"] for each in saver.list(THREAD)] == [
        "small",
        large,
    ]


def test_a_compacted_thread_is_copied_and_exported(store, saver, config, tmp_path):
    for number in range(1, 40):
        config = put(saver, config, {"messages": messages(number)}, version=number)
    saver.compact()
    saver.copy_thread("t", "copy")
    copied = {"configurable": {"thread_id": "copy"}}
    fresh = IndelibleSaver(store)
    assert [len(each.checkpoint["channel_values"]["messages"]) for each in fresh.list(copied)] == (
        list(range(39, 0, -1))
    )
    put(fresh, {"configurable": {**config["configurable"], "thread_id": "copy"}}, {}, version=40)
    assert read(saver, THREAD) == messages(39)


def test_retention_keeps_the_newest_and_those_of_the_last_days(store, config):
    saver = IndelibleSaver(store, retention=Keep(last=5))
    for number in range(1, 80):
        config = put(saver, config, {"messages": messages(number)}, version=number)
        saver.put_writes(config, [("messages", f"write {number}")], "task")
    assert saver.prune(strategy=Keep(last=5, days=1)).erased == 0
    assert saver.prune() == PruneReceipt(threads=1, kept=5, erased=74)
    found = list(IndelibleSaver(store).list(THREAD))
    assert [len(each.checkpoint["channel_values"]["messages"]) for each in found] == [
        79,
        78,
        77,
        76,
        75,
    ]
    assert [each.pending_writes[0][2] for each in found] == [
        f"write {n}" for n in range(79, 74, -1)
    ]
    assert saver.prune() == PruneReceipt(threads=1, kept=5, erased=0)
    assert saver.prune(strategy=Keep(days=0)).kept == 1
    assert saver.prune(strategy="delete").erased == 1
    assert list(saver.list(THREAD)) == []


def test_a_time_without_a_time_zone_is_in_utc(store, saver, config):
    days_ago = [0, 3, 1, 0]
    for number, days in enumerate(days_ago):
        time = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=days)
        checkpoint = build({}, number) | {"ts": time.isoformat()}
        config = saver.put(config, checkpoint, {}, {})
    assert saver.prune(strategy=Keep(days=2)) == PruneReceipt(threads=1, kept=3, erased=1)


def test_what_is_pruned_is_in_no_pack(store, saver, config):
    for number in range(1, 5):
        checkpoint = build({"messages": f"secret {number} {LONG}"}, number)
        metadata = {"run_id": f"run {number}"}
        config = saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])
    saver.delete_for_runs(["run 2"])
    packed, newest = [entry.value for entry in store.get_entries("~thread/t")]
    pack = parse_pack(packed, 0)
    runs = [b64decode(each.record["metadata"][1]) for each in (*pack.records.values(), newest)]
    assert [run[-5:] for run in runs] == [b"run 1", b"run 3", b"run 4"]
    assert [b"secret 2" in data for _, data in pack.values.values()] == [False] * 3


def in_another_thread(act):
    """Call a function in another thread, and wait for it."""
    results = []
    thread = threading.Thread(target=lambda: results.append(act()))
    thread.start()
    thread.join()
    return results


def test_a_thread_reads_a_pack_that_another_thread_is_reading(store, saver, config, monkeypatch):
    first = put(saver, config, {"messages": messages(1)}, version=1)
    put(saver, first, {"messages": messages(2)}, version=2)
    saver.compact()
    saver = IndelibleSaver(store)
    add_value = ThreadCache.add_value
    found = []

    def interrupted(self, *given):
        monkeypatch.setattr(ThreadCache, "add_value", add_value)
        found.extend(in_another_thread(lambda: read(saver, first)))
        add_value(self, *given)

    monkeypatch.setattr(ThreadCache, "add_value", interrupted)
    assert read(saver, first) == messages(1)
    assert found == [messages(1)]


def test_a_thread_is_listed_while_another_thread_lists_it(store, saver, config, monkeypatch):
    monkeypatch.setattr(checkpoint_threads, "_PACK_BYTES", 1)
    for number in range(1, 6):
        config = put(saver, config, {"messages": messages(number)}, version=number)
    saver.compact()
    saver = IndelibleSaver(store)
    find_packs = Threads._find_packs
    found = []

    class Interrupting(int):
        def __le__(self, other):
            monkeypatch.setattr(Interrupting, "__le__", int.__le__)
            found.extend(in_another_thread(lambda: len(list(saver.list(THREAD)))))
            return int(self) <= other

    async def find_interrupting_packs(self, state):
        packs = await find_packs(self, state)
        return tuple(place._replace(first=Interrupting(place.first)) for place in packs)

    monkeypatch.setattr(Threads, "_find_packs", find_interrupting_packs)
    assert len(list(saver.list(THREAD))) == 5
    assert found == [5]


def test_a_list_goes_on_while_another_saver_prunes(store, saver, config):
    for number in range(1, 80):
        config = put(saver, config, {"messages": messages(number)}, version=number)
    listed = IndelibleSaver(store).list(THREAD)
    steps = [next(listed).metadata["step"] for _ in range(3)]
    saver.prune(["t"], strategy=Keep(last=50))
    steps += [each.metadata["step"] for each in listed]
    assert steps == list(range(79, 29, -1))


@pytest.mark.parametrize("wrong", ["keep_all", 5])
def test_a_wrong_strategy_is_refused(saver, wrong):
    with pytest.raises(indelible.UsageError, match="strategy is"):
        saver.prune(["t"], strategy=wrong)
    with pytest.raises(indelible.UsageError, match="at least the newest"):
        Keep(last=0)


# The contract


def open_for_the_kit(workspace):
    return IndelibleSaver(indelible.open(workspace / "agent.db", durability="process"))


# Behaviour and crash points have tests of their own, which take less time.
@pytest.mark.exhaustive
def test_the_contract_holds_for_time_travel_copies_writes_and_pruning():
    adapter = resolve(f"langgraph-saver:{__name__}:open_for_the_kit")
    assert {"snapshot", "rollback", "fork", "forget", "pending", "prune"} <= adapter.capabilities
    cases = (
        *("rollback_keeps_every_snapshot", "rollback_there_and_back", "fork_is_independent"),
        *("pending_writes_are_stored_once", "prune_keeps_what_shows"),
        *("kill_in_pending_writes", "kill_in_prune", "kill_at_every_step"),
    )
    report = check(adapter, cases=cases, seed=3, budget_s=0)
    assert {(result.case, result.verdict) for result in report.results} == {
        (name, "PASS") for name in cases
    }
