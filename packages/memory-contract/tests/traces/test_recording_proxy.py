"""A recorded store is the store to everybody who looks at it, and stays recorded."""

import asyncio
import collections.abc
import contextlib
import copy
import dataclasses
import functools
import inspect
import pickle
import subprocess
import sys
import threading
from concurrent import futures

import pytest

from memory_contract import Policy, Undecided, Violated, explain_trace, record
from memory_contract.traces.format import (
    DroppedLines,
    OtherCall,
    TraceEnd,
    TraceOperation,
    read_trace,
)
from memory_contract.traces.recorder import get_trace_writer


class Store:
    """A small store in memory, with everything that a proxy can get wrong."""

    label = "plain"

    def __init__(self):
        self.messages_of = {}

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass

    async def __aenter__(self):
        return self

    async def __aexit__(self, *raised):
        pass

    def __setitem__(self, session, messages):
        self.messages_of[session] = messages

    def __getitem__(self, session):
        return self.messages_of[session]

    def __delitem__(self, session):
        del self.messages_of[session]

    def __repr__(self):
        return "Store()"

    def add_messages(self, session, messages):
        self.messages_of.setdefault(session, []).extend(messages)

    def get_history(self, session):
        return list(self.messages_of.get(session, []))


class Words:
    """A store that can be iterated over."""

    def add_messages(self, session, messages): ...

    def get_history(self, session):
        return []

    def __iter__(self):
        return iter("ab")


HELLO = {"role": "user", "content": "hello"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.jsonl"


@pytest.fixture
def store(path):
    return record(Store(), path)


def lines(path, kind=TraceOperation):
    return [line for line in read_trace(path) if isinstance(line, kind)]


def appended(path):
    return [op.session for op in lines(path) if op.op == "append"]


def test_it_is_the_store_to_who_asks(store):
    assert isinstance(store, Store)
    assert store.__class__ is Store
    assert repr(store) == str(store) == "Store()"
    assert store.label == "plain"
    assert not hasattr(store, "nothing_of_this_name")
    assert store.get_history.__name__ == "get_history"
    store.label = "mine"
    assert store.__wrapped__.label == "mine"


def test_with_yields_the_recorded_store(store, path):
    with store as entered:
        assert entered is store
        entered.add_messages("s", [HELLO])
    assert appended(path) == ["s"]
    assert len(lines(path, TraceEnd)) == 1


def test_async_with_yields_the_recorded_store(store, path):
    async def work():
        async with store as entered:
            assert entered is store
            entered.add_messages("s", [HELLO])

    asyncio.run(work())
    assert appended(path) == ["s"]
    assert len(lines(path, TraceEnd)) == 1


def test_what_else_a_store_yields_is_passed_on(path):
    class Opening(Store):
        def __enter__(self):
            return "a transaction"

    with record(Opening(), path) as entered:
        assert entered == "a transaction"


def unpickled(store):
    """The same store, as another process has it that shares its data."""
    assert pickle.loads(pickle.dumps(store)).get_history("s") == [HELLO]
    return store.__wrapped__


@pytest.mark.parametrize("policy", [Policy(), Policy(hide=lambda text: text)])
@pytest.mark.parametrize("make", [copy.copy, unpickled])
def test_a_copy_is_not_recorded_and_accuses_nobody(path, make, policy):
    store = record(Store(), path, policy=policy, fresh=True)
    store.add_messages("s", [HELLO])
    store.get_history("s")
    other = make(store)
    assert type(other) is Store
    store.add_messages("s", [{"role": "user", "content": "after the copy"}])
    other.messages_of["s"].clear()
    other.add_messages("s", [{"role": "user", "content": "by the copy"}])
    assert len(store.get_history("s")) == 1
    get_trace_writer(store).close()
    found = explain_trace(path)
    assert not found.names
    assert [each.before for each in found.unknown] == [2]
    assert not found.metadata.dropped


@pytest.mark.parametrize("policy", [Policy(), Policy(hide=lambda text: text)])
def test_a_store_can_be_pickled_as_often_as_one_that_is_not_recorded(path, policy):
    store = record(Store(), path, policy=policy)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(store, protocol))
        assert type(again) is Store
    get_trace_writer(store).close()
    assert isinstance(explain_trace(path).verdict, Undecided)


def test_a_store_that_cannot_be_iterated_over_does_not_look_like_it(store):
    assert not hasattr(store, "__iter__")
    assert not isinstance(store, collections.abc.Iterable)
    assert not callable(store)
    assert not hasattr(store, "__await__")


def test_a_store_that_can_be_iterated_over_still_is(path):
    store = record(Words(), path)
    assert isinstance(store, collections.abc.Iterable)
    assert list(store) == list(store.__iter__()) == ["a", "b"]


class Plain:
    """A store without special methods, whose methods are of every kind."""

    def __init__(self):
        self.messages_of = {}

    add_messages = Store.add_messages
    get_history = Store.get_history

    async def aget_history(self, session):
        return self.get_history(session)

    def drain(self, session):
        yield from self.messages_of.pop(session, [])

    async def stream(self, session):
        for message in self.messages_of.get(session, []):
            yield message


def test_only_a_store_with_a_length_has_one(path):
    class Long(Plain):
        def __len__(self):
            return 0

    long, plain = record(Long(), path), record(Plain(), path)
    assert len(long) == 0
    assert not long
    assert plain
    with pytest.raises((TypeError, AttributeError)):
        len(plain)
    with pytest.raises((TypeError, AttributeError)), plain:
        pass


def test_a_recorded_context_manager_can_be_left_to_a_stack(store):
    with contextlib.ExitStack() as stack:
        assert stack.enter_context(store) is store


@pytest.mark.parametrize(
    "look",
    [
        inspect.ismethod,
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
        inspect.signature,
        lambda method: method.__func__,
        lambda method: method.__qualname__,
    ],
)
def test_a_recorded_method_is_the_method_to_who_asks(path, look):
    bare = Plain()
    store = record(bare, path)
    for name in ("add_messages", "aget_history", "drain", "stream"):
        assert look(getattr(store, name)) == look(getattr(bare, name))
        assert getattr(store, name) == getattr(store, name) == getattr(bare, name)


def test_a_recorded_method_is_copied_as_a_method(store, path):
    copy.copy(store.add_messages)("s", [HELLO])
    assert copy.deepcopy({"add": store.add_messages})["add"] == store.add_messages
    get_trace_writer(store).close()
    assert appended(path) == ["s"]


def test_a_pickled_method_is_not_recorded_and_accuses_nobody(path):
    store = record(Store(), path, fresh=True)
    store.add_messages("s", [HELLO])
    method = pickle.loads(pickle.dumps(store.get_history))
    assert method("s") == [HELLO]
    method.__self__.messages_of.clear()
    store.__wrapped__.messages_of.clear()
    assert store.get_history("s") == []
    get_trace_writer(store).close()
    found = explain_trace(path)
    assert not found.names
    assert [each.verb for each in found.unknown] == ["pickle"]


@dataclasses.dataclass
class Fields:
    """A store that is a dataclass."""

    messages_of: dict = dataclasses.field(default_factory=dict)
    add_messages = Store.add_messages
    get_history = Store.get_history


def test_a_dataclass_stays_one(path):
    store = record(Fields(), path)
    store.add_messages("s", [HELLO])
    assert dataclasses.is_dataclass(store)
    assert dataclasses.asdict(store) == {"messages_of": {"s": [HELLO]}}
    assert dataclasses.replace(store, messages_of={}) == Fields()


class Delegating:
    """A store that passes everything on."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)


class Assigned:
    """A store whose methods are attributes of the object."""

    def __init__(self, inner):
        self.add_messages = inner.add_messages
        self.get_history = inner.get_history


class Computed(Plain):
    """A store whose methods are made when they are asked for."""

    @property
    def add_messages(self):
        return lambda session, messages: Plain.add_messages(self, session, messages)

    @functools.cached_property
    def get_history(self):
        return lambda session: Plain.get_history(self, session)


@pytest.mark.parametrize("kind", [Delegating, Assigned, lambda inner: Computed()])
def test_methods_need_not_be_those_of_the_class(path, kind):
    store = record(kind(Plain()), path)
    store.add_messages("s", [HELLO])
    assert store.get_history("s") == [HELLO]
    get_trace_writer(store).close()
    assert [op.op for op in lines(path)] == ["append", "read"]
    assert not lines(path, DroppedLines)


def test_a_method_may_be_made_of_another(path):
    class Partial(Plain):
        def _add(self, flag, session, messages):
            Plain.add_messages(self, session, messages)

        add_messages = functools.partialmethod(_add, True)

    store = record(Partial(), path)
    store.add_messages("s", [HELLO])
    get_trace_writer(store).close()
    assert appended(path) == ["s"]
    assert not lines(path, DroppedLines)


def test_what_the_store_lacks_is_looked_up_once(path):
    asked = []

    class Asked(Plain):
        def __getattr__(self, name):
            asked.append(name)
            raise AttributeError(name)

    store = record(Asked(), path)
    asked.clear()
    assert not hasattr(store, "compact")
    assert asked == ["compact"]


def test_a_store_that_is_recorded_already_is_not_recorded_twice(store, path):
    again = record(store, path)
    again.add_messages("s", [HELLO])
    get_trace_writer(store).close()
    assert appended(path) == ["s"]


def test_a_key_that_cannot_be_used_is_no_error_of_the_store(path, caplog):
    path.with_suffix(".key").write_bytes(b"somebody else's key, " * 9)
    bare = Store()
    assert record(bare, path) is bare
    assert "nothing is recorded" in caplog.text


LAST_WORDS = """
import atexit, sys

@atexit.register
def say_last_words():
    store.add_messages("s", [{"role": "user", "content": "bye"}])

from memory_contract import record

class Store:
    def add_messages(self, session_id, messages): ...
    def get_history(self, session_id): return []

store = record(Store(), sys.argv[1])
store.add_messages("s", [{"role": "user", "content": "hello"}])
"""


def test_what_other_exit_handlers_say_is_recorded(path):
    subprocess.run([sys.executable, "-c", LAST_WORDS, str(path)], check=True)
    assert appended(path) == ["s", "s"]


def test_items_that_are_set_or_deleted_make_the_trace_undecided(store, path):
    store["s"] = [HELLO]
    assert store["s"] == [HELLO]
    del store["s"]
    get_trace_writer(store).close()
    calls = [call for call in lines(path, OtherCall) if call.complete_ns is not None]
    assert [(call.verb, call.changes, call.every) for call in calls] == [
        ("set item", True, True),
        ("delete item", True, True),
    ]


def test_a_method_that_is_replaced_is_not_remembered(store):
    assert store.get_history("s") == []
    store.label = "x"
    store.helper = lambda: 1
    assert store.helper() == 1
    store.helper = lambda: 2
    assert store.helper() == 2


def test_a_method_that_the_store_replaces_itself_is_the_new_one(store):
    assert store.get_history("s") == []
    store.__wrapped__.get_history = lambda session: [HELLO]
    assert store.get_history("s") == [HELLO]


def test_a_deep_copy_in_memory_is_another_store_and_accuses_nobody(path):
    store = record(Store(), path, fresh=True)
    store.add_messages("s", [HELLO])
    other = copy.deepcopy(store)
    store.add_messages("s", [{"role": "user", "content": "in the first alone"}])
    assert other.get_history("s") == [HELLO]
    get_trace_writer(store).close()
    assert not explain_trace(path).names


def test_one_trace_of_an_empty_and_an_old_store_is_not_fresh(path):
    old = Store()
    old.messages_of["old"] = [HELLO]
    fresh = record(Store(), path, fresh=True)
    fresh.add_messages("s", [HELLO])
    assert record(old, path).get_history("old") == [HELLO]
    get_trace_writer(fresh).close()
    found = explain_trace(path)
    assert not found.metadata.fresh
    assert not found.names


def test_what_the_recorder_cannot_describe_is_the_stores_to_answer(store, path):
    with pytest.raises(TypeError, match="not iterable"):
        store.add_messages("s", None)
    assert store.get_history("s") == []
    get_trace_writer(store).close()


def test_an_event_loop_that_is_not_asyncios_can_await_a_recorded_store(path):
    class Awaited(Store):
        async def add_messages(self, session, messages):
            super().add_messages(session, messages)

    store = record(Awaited(), path)
    coroutine = store.add_messages("s", [HELLO])
    with pytest.raises(StopIteration):
        coroutine.send(None)
    get_trace_writer(store).close()
    assert appended(path) == ["s"]


class LateResults(Store):
    """Blocking methods whose results come later, in a way of the test's choice."""

    def __init__(self, later):
        super().__init__()
        self.later = later

    def add_messages(self, session, messages):
        super().add_messages(session, messages)
        return self.later(None)

    def get_history(self, session):
        return self.later(super().get_history(session))

    def clear(self, session):
        self.messages_of.pop(session, None)
        return self.later(None)


def as_future(result):
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, result)
    return future


async def as_coroutine(result):
    return result


@pytest.mark.parametrize("later", [as_future, as_coroutine])
def test_a_blocking_method_that_returns_something_to_await_began_when_it_was_called(path, later):
    async def work():
        store = record(LateResults(later), path, fresh=True)
        added = store.add_messages("s", [HELLO])
        assert await store.get_history("s") == [HELLO]
        await added
        await store.clear("s")
        await store.add_messages("s", [{"role": "user", "content": "lost"}])
        del store.messages_of["s"]
        assert await store.get_history("s") == []
        return store

    get_trace_writer(asyncio.run(work())).close()
    # One announcement and one result of the clear: nothing else could have removed an entry.
    assert [op.op for op in lines(path)].count("clear") == 2
    assert explain_trace(path).counts == {"lost append": 1}


def test_a_future_stays_one(path):
    async def work():
        store = record(LateResults(as_future), path)
        called = []
        added = store.add_messages("s", [HELLO])
        added.add_done_callback(called.append)
        done, _ = await asyncio.wait([added, store.get_history("s")])
        assert called == [added]
        assert sorted(task.result() or [] for task in done) == [[], [HELLO]]
        return store

    get_trace_writer(asyncio.run(work())).close()
    assert appended(path) == ["s"]


def test_the_future_of_a_thread_pool_is_left_for_the_application(path):
    held = threading.Event()

    class Pooled(Store):
        def add_messages(self, session, messages):
            return pool.submit(lambda: held.wait() and Store.add_messages(self, session, messages))

        def clear(self, session):
            return pool.submit(lambda: 1 // 0)

    with futures.ThreadPoolExecutor(1) as pool:
        store = record(Pooled(), path, fresh=True)
        added = store.add_messages("s", [HELLO])
        assert isinstance(added, futures.Future)
        assert store.get_history("s") == []
        held.set()
        assert added.result() is None
        with pytest.raises(ZeroDivisionError):
            store.clear("s").result()
    assert store.get_history("s") == [HELLO]
    get_trace_writer(store).close()
    assert lines(path)[0].outcome == "info"
    assert not explain_trace(path).names


def test_a_call_that_is_open_at_the_end_may_have_stored_something(path):
    stored, held = threading.Event(), threading.Event()

    class Hanging(Store):
        def add_messages(self, session, messages):
            super().add_messages(session, messages)
            stored.set()
            held.wait()

    store = record(Hanging(), path, fresh=True)
    thread = threading.Thread(target=store.add_messages, args=("s", [HELLO]))
    thread.start()
    stored.wait()
    assert store.get_history("s") == [HELLO]
    get_trace_writer(store).close()
    found = explain_trace(path)
    held.set()
    thread.join()
    assert not isinstance(found.verdict, Violated)
    assert found.metadata.dropped == 1
    get_trace_writer(store).close()
    assert appended(path) == ["s"]


def test_an_iterator_is_left_for_the_application_to_read(path):
    class Lazy(Store):
        def get_history(self, session):
            yield from super().get_history(session)

    store = record(Lazy(), path, fresh=True)
    store.add_messages("s", [HELLO])
    assert list(store.get_history("s")) == [HELLO]
    get_trace_writer(store).close()
    # What it showed is not known.
    assert [(op.op, op.outcome, op.value) for op in lines(path)][1:] == [("read", "info", None)]
    assert explain_trace(path).others == {"get_history": 1}


def test_a_full_disk_at_the_end_is_no_error_of_the_store(path, monkeypatch):
    import os

    def full(*_):
        raise OSError(28, "No space left on device")

    with record(Store(), path, policy=Policy(contents="kept")) as store:
        store.add_messages("s", [HELLO])
        get_trace_writer(store).flush()
        monkeypatch.setattr(os, "write", full)
    monkeypatch.undo()
    assert lines(path, TraceEnd) == []


def test_a_part_whose_header_could_not_be_written_holds_no_lines(path, monkeypatch):
    import os

    def full(*_):
        raise OSError(28, "No space left on device")

    store = record(Store(), path)
    monkeypatch.setattr(os, "write", full)
    store.add_messages("s", [HELLO])
    get_trace_writer(store).flush()
    monkeypatch.undo()
    assert not path.exists()
    store.add_messages("t", [HELLO])
    get_trace_writer(store).close()
    assert appended(path) == ["t"]
    assert next(iter(read_trace(path))).pid == os.getpid()
