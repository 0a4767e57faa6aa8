"""`memory_faults`: an application's own store fails on cue, on any engine, blocking and async."""

import asyncio
import inspect

import pytest

import indelible
from indelible import (
    BusyError,
    ConflictError,
    Landed,
    MemoryStore,
    OutcomeUnknownError,
    UnavailableError,
    UsageError,
)
from indelible.testing.faults import FAULT_VERBS, watching
from tests.support import postgres_server, redis_server

pytest_plugins = ["pytester"]


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def url(request, tmp_path):
    match request.param:
        case "sqlite":
            return str(tmp_path / "agent.db")
        case "redis":
            return redis_server.emptied()
        case "postgres":
            return postgres_server.emptied_database()
    return "memory:"


def texts(store):
    return [message.content for message in store.get_history("s")]


def test_a_call_fails_on_cue_and_the_next_one_does_not(memory_faults, url):
    with indelible.open(url) as store:
        memory_faults.fail_next("add_messages", UnavailableError)
        store.add_message("s", "user", "another verb")
        with pytest.raises(UnavailableError) as caught:
            store.add_messages("s", [{"role": "user", "content": "hi"}])
        assert caught.value.landed is Landed.NO
        store.add_messages("s", [{"role": "user", "content": "hi"}])
        assert texts(store) == ["another verb", "hi"]
    assert memory_faults.struck == [("add_messages", "fail")]


async def test_async_stores_fail_alike(memory_faults, url):
    async with indelible.open_async(url) as store:
        memory_faults.fail_next("add_message", BusyError, times=2)
        for _ in range(2):
            with pytest.raises(BusyError):
                await store.add_message("s", "user", "hi")
        memory_faults.lose_next_reply("save_context")
        with pytest.raises(OutcomeUnknownError) as caught:
            await store.save_context("s", "hi", "hello")
        again = await store.save_context("s", "hi", "hello", key=caught.value.key)
        assert again.replayed
        assert len(await store.get_history("s")) == 2


def test_a_lost_reply_is_an_unknown_outcome_and_a_retry_with_its_key_is_once(memory_faults, url):
    with indelible.open(url) as store:
        memory_faults.lose_next_reply("add_message")
        with pytest.raises(OutcomeUnknownError) as caught:
            store.add_message("s", "user", "hi")
        assert texts(store) == ["hi"]
        assert store.add_message("s", "user", "hi", key=caught.value.key).replayed
        assert texts(store) == ["hi"]


def test_a_time_out_looks_the_same_and_wrote_nothing(memory_faults, url):
    with indelible.open(url) as store:
        memory_faults.time_out_next("add_message")
        with pytest.raises(OutcomeUnknownError) as caught:
            store.add_message("s", "user", "hi")
        assert texts(store) == []
        assert not store.add_message("s", "user", "hi", key=caught.value.key).replayed
        assert texts(store) == ["hi"]


def test_a_read_that_times_out_has_an_outcome(memory_faults):
    with indelible.open("memory:") as store:
        memory_faults.time_out_next("get_history")
        with pytest.raises(UnavailableError):
            store.get_history("s")


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        ("trim", lambda store: store.trim("s", keep_last=1, align=None)),
        ("clear", lambda store: store.clear("s")),
        ("save_snapshot", lambda store: store.save_snapshot("s")),
        ("fork", lambda store: store.fork("s", "t")),
        ("set_metadata", lambda store: store.set_metadata("s", {"a": 1})),
        ("forget", lambda store: store.forget("s")),
    ],
)
def test_every_change_can_lose_its_reply_and_has_landed(memory_faults, url, verb, call):
    with indelible.open(url) as store:
        store.save_context("s", "hi", "hello")
        before = store.session("s"), store.session("t")
        memory_faults.lose_next_reply(verb)
        with pytest.raises(OutcomeUnknownError):
            call(store)
        assert (store.session("s"), store.session("t")) != before


def test_a_full_server_on_any_engine(memory_faults):
    with indelible.open("memory:") as store:
        memory_faults.run_out_of_memory_next("*", times=None)
        for _ in range(3):
            with pytest.raises(UnavailableError) as caught:
                store.add_message("s", "user", "hi")
            assert caught.value.code == "OOM"
        memory_faults.heal()
        store.add_message("s", "user", "hi")


async def test_a_slow_store_lets_others_go_on(memory_faults):
    store = await indelible.open_async("memory:")
    await store.add_message("s", "user", "hi")
    memory_faults.slow_next("get_history", 600)
    slow = asyncio.ensure_future(store.get_history("s"))
    await asyncio.sleep(0)
    assert len(await store.get_history("s")) == 1
    assert not slow.done()
    slow.cancel()
    memory_faults.slow_next("get_history", 0.001)
    assert len(await store.get_history("s")) == 1
    await store.close()


def test_a_slow_blocking_store_is_slow_once(memory_faults):
    with indelible.open("memory:") as store:
        memory_faults.slow_next("add_message", 0.01)
        store.add_message("s", "user", "hi")
    assert memory_faults.struck == [("add_message", "be slow")]


def test_a_store_that_was_open_before_can_be_watched():
    with indelible.open("memory:") as store, watching() as faults:
        assert faults.watch(faults.watch(store)) is store
        faults.fail_next("get_history", ConflictError("moved", reason="version"))
        with pytest.raises(ConflictError) as caught:
            store.get_history("s")
        assert caught.value.reason == "version"


def test_stores_opened_afterwards_are_left_alone():
    with watching() as faults:
        faults.fail_next("add_message")
    with indelible.open("memory:") as store:
        store.add_message("s", "user", "hi")
    assert faults.unstruck == ["fail at add_message"]


def test_the_words_must_mean_something(memory_faults):
    for wrong in (
        lambda: memory_faults.fail_next("add_mesages"),
        lambda: memory_faults.fail_next("add_message", ValueError),
        lambda: memory_faults.fail_next("add_message", times=0),
        lambda: memory_faults.lose_next_reply("get_history"),
        lambda: memory_faults.fail_next("close"),
    ):
        with pytest.raises(UsageError):
            wrong()


def test_every_verb_can_fail(memory_faults):
    with indelible.open("memory:") as store:
        for verb in FAULT_VERBS:
            wrapped = inspect.signature(getattr(store, verb))
            first, *rest = inspect.signature(getattr(MemoryStore, verb)).parameters.values()
            assert (first.name, list(wrapped.parameters.values())) == ("self", rest)


def test_a_fault_that_never_struck_fails_its_test(pytester):
    pytester.makepyfile(
        """
        import indelible

        def test_nothing_is_asked_of_the_store(memory_faults):
            memory_faults.fail_next("add_message")

        def test_the_store_is_asked(memory_faults):
            memory_faults.slow_next("add_message", 0)
            with indelible.open("memory:") as store:
                store.add_message("s", "user", "hi")
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*memory_faults never struck: fail at add_message*"])
