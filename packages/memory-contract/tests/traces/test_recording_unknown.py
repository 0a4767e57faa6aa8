"""Methods that the recorder has no table for: what they may have changed is not judged."""

import asyncio
import inspect
import pickle
import resource

import pytest

import indelible
from indelible.testing import run_in_process
from indelible.testing.recording import build_verbs
from memory_contract import explain_trace, record
from memory_contract.checker.verdict import Ok, Undecided, Violated
from memory_contract.traces.diagnosis.render import render_explanation
from memory_contract.traces.format import OtherCall, read_trace
from memory_contract.traces.recorder import get_trace_writer
from memory_contract.traces.recorder.hasher import Hasher, Policy


def said(text):
    return [{"role": "user", "content": text}]


class App:
    """A right store with methods of an application's own."""

    def __init__(self):
        self.sessions = {}

    def add_messages(self, session_id, messages):
        self.sessions.setdefault(session_id, []).extend(messages)

    def get_history(self, session_id):
        return list(self.sessions.get(session_id, ()))

    def compact(self, session_id, *, keep=1):
        self.sessions[session_id] = self.sessions.get(session_id, [])[-keep:]

    def sweep(self):
        self.sessions.clear()

    def get_or_reset(self, session_id):
        return self.sessions.pop(session_id, [])

    def get_size(self, session_id):
        return len(self.sessions.get(session_id, ()))

    def tell(self, session_id):
        return str(self.sessions.get(session_id))

    async def acompact(self, session_id):
        await asyncio.sleep(0)
        self.compact(session_id)

    def fail(self, session_id):
        self.compact(session_id)
        raise RuntimeError("halfway")

    def clear(self, session_id):
        self.sessions.pop(session_id, None)


def fail_halfway(store):
    with pytest.raises(RuntimeError):
        store.fail("ana")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.jsonl"


def explained(store, path):
    get_trace_writer(store).close()
    return explain_trace(path)


def talk(store, session, count=6):
    for number in range(count):
        store.add_messages(session, said(f"{session} {number}"))
        store.get_history(session)


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.compact("ana"),
        lambda store: store.compact(session_id="ana", keep=2),
        lambda store: store.get_or_reset("ana"),
        lambda store: store.sweep(),
        lambda store: asyncio.run(store.acompact("ana")),
        fail_halfway,
    ],
)
def test_a_right_store_is_not_accused_of_what_an_unknown_method_did(path, change, fresh):
    store = record(App(), path, fresh=fresh)
    talk(store, "ana")
    change(store)
    store.get_history("ana")
    store.add_messages("ana", said("after"))
    store.get_history("ana")
    found = explained(store, path)
    assert not isinstance(found.verdict, Violated), render_explanation(found)
    assert "session ana: undecided from operation 13 on" in render_explanation(found)


def test_the_words_name_the_method_and_what_to_do(path):
    store = record(App(), path, fresh=True)
    talk(store, "ana")
    store.compact("ana")
    store.get_history("ana")
    words = render_explanation(explained(store, path))
    assert "compact may have changed it in a way that the recorder does not know" in words
    assert "record(…, read_only=['compact'])" in words
    assert "1 of 13 operations was not judged" in words


def test_a_loss_before_an_unknown_method_is_still_one(path):
    store = record(App(), path, fresh=True)
    talk(store, "ana")
    inner = store.sessions["ana"]
    del inner[0]
    store.get_history("ana")
    store.compact("ana")
    store.get_history("ana")
    assert explained(store, path).names == {"lost append"}


def test_other_sessions_are_judged(path):
    store = record(App(), path, fresh=True)
    talk(store, "ana")
    talk(store, "bob")
    store.compact("ana")
    store.get_history("ana")
    del store.sessions["bob"][0]
    store.get_history("bob")
    found = explained(store, path)
    assert {anomaly.session for anomaly in found.verdict.anomalies} == {"bob"}


def test_a_method_without_a_session_makes_every_session_undecided(path):
    store = record(App(), path, fresh=True)
    talk(store, "ana")
    talk(store, "bob")
    store.sweep()
    store.get_history("ana")
    store.get_history("bob")
    words = render_explanation(explained(store, path))
    assert "session ana: undecided" in words
    assert "session bob: undecided" in words


def test_where_most_came_later_nothing_is_decided(path):
    store = record(App(), path, fresh=True)
    store.compact("ana")
    talk(store, "ana")
    assert isinstance(explained(store, path).verdict, Undecided)


@pytest.mark.parametrize("look", ["get_size", "tell"])
def test_what_only_reads_changes_nothing(path, look):
    store = record(App(), path, fresh=True, read_only=["tell"])
    talk(store, "ana")
    getattr(store, look)("ana")
    talk(store, "ana")
    found = explained(store, path)
    assert isinstance(found.verdict, Ok) or found.names <= {"duplicate"}
    assert not found.unknown


def test_a_call_is_written_down_before_it_is_made(path):
    class Killed(App):
        def compact(self, session_id):
            lines = [line for line in read_trace(path) if isinstance(line, OtherCall)]
            assert [line.verb for line in lines] == ["compact"]

    store = record(Killed(), path, fresh=True)
    store.compact("ana")
    get_trace_writer(store).close()


def test_an_object_of_one_session_changes_that_session(path):
    class Session:
        session_id = "ana"

        def __init__(self):
            self.items = []

        async def add_items(self, items):
            self.items += items

        async def get_items(self, limit=None):
            return list(self.items)

        async def compact(self):
            self.items = self.items[-1:]

    async def run():
        store = record(Session(), path, fresh=True)
        await store.add_items(said("a"))
        await store.add_items(said("b"))
        await store.get_items()
        await store.get_items()
        await store.compact()
        await store.get_items()
        return store

    found = explained(asyncio.run(run()), path)
    assert not isinstance(found.verdict, Violated), render_explanation(found)
    assert found.unknown[0].session == "ana"


def test_messages_that_are_set_are_a_change(path):
    from langchain_core.chat_history import InMemoryChatMessageHistory

    history = record(InMemoryChatMessageHistory(), path, session="ana", fresh=True)
    for number in range(4):
        history.add_user_message(f"{number}")
        _ = history.messages
    history.messages = []
    _ = history.messages
    found = explained(history, path)
    assert not isinstance(found.verdict, Violated), render_explanation(found)


def test_a_pickled_method_of_one_session_says_nothing_about_others(path):
    from langchain_core.chat_history import InMemoryChatMessageHistory

    history = record(InMemoryChatMessageHistory(), path, session="ana", fresh=True)
    pickle.dumps(history.add_messages)
    get_trace_writer(history).close()
    calls = [line for line in read_trace(path) if isinstance(line, OtherCall)]
    assert {(call.verb, call.session, call.every) for call in calls} == {("pickle", "ana", False)}


def test_every_method_of_our_own_stores_is_in_a_table():
    listed = set(build_verbs(Hasher(Policy(), b"k" * 32), lambda _: None)) | {"close"}
    for store in (indelible.MemoryStore, indelible.AsyncMemoryStore):
        public = {
            name for name, _ in inspect.getmembers(store, callable) if not name.startswith("_")
        }
        assert public <= listed


def test_entries_that_were_hidden_are_not_lost(path):
    with record(indelible.open("memory:"), path, fresh=True) as store:
        receipt = store.add_message("ana", "user", "a")
        store.add_message("ana", "user", "b")
        store.hide("ana", receipt.positions)
        store.get_history("ana")
    found = explain_trace(path)
    assert not isinstance(found.verdict, Violated), render_explanation(found)


def test_a_change_that_is_called_in_an_unknown_way_is_one(path):
    class Odd(App):
        def clear(self, session_id, *extra):
            self.sessions.pop(session_id, None)

    store = record(Odd(), path, fresh=True)
    talk(store, "ana")
    store.clear(session_id="ana")
    store.get_history("ana")
    found = explained(store, path)
    assert not isinstance(found.verdict, Violated), render_explanation(found)


def clear_on_a_full_disk(path):
    store = record(App(), path, fresh=True)
    store.add_messages("ana", said("a"))
    get_trace_writer(store).flush()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A file that may not grow, as on a disk that is full; the signal for it is ignored by Python.
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, limits[1]))
    store.clear("ana")
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    store.get_history("ana")
    get_trace_writer(store).close()


def test_a_change_that_could_not_be_announced_is_counted(path):
    run_in_process(clear_on_a_full_disk, path)
    found = explain_trace(path)
    assert found.metadata.dropped_changes == 1
    assert isinstance(found.verdict, Undecided)
