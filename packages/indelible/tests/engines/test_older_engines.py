"""Older engines keep the contract too; what only the newest has, nothing relies on."""

import threading

import pytest
import redis

import indelible
from memory_contract import check
from tests.support.stores import Blocking, LoopThread
from tests.support.verbs import every_verb

WRITERS = 4
EACH = 10


@pytest.fixture(params=["blocking", "async"])
def opened(request):
    """Opens stores of one flavour, behind a blocking face."""
    if request.param == "blocking":
        yield indelible.open
        return
    loop = LoopThread()
    yield lambda target, **options: Blocking(loop, target, **options)
    loop.stop()


def texts(store, session):
    return [message.content for message in store.get_history(session)]


def test_the_engine_is_the_one_that_is_meant(engine, url):
    with indelible.open(url) as store:
        claims = store.claims()
    assert claims.engine == engine.name
    assert claims.engine_version.split(".")[: engine.version.count(".") + 1] == (
        engine.version.split(".")
    )
    assert claims.durability == ("power" if engine.name == "postgresql" else "process")


def test_every_verb_works(url, opened):
    store = opened(url)
    every_verb(store)
    store.close()


# From each of the gates that an engine's version can matter to; the newest passes them all.
CASES = [
    "batch_in_order",
    "random_programs",
    "rollback_keeps_every_snapshot",
    "new_life_is_clean",
    "ttl_ends_everything",
    "append_storm",
    "batch_storm",
    "first_open_race",
    "mixed_storm",
    "one_expected_wins",
    "rollback_against_append",
    "same_key_from_many",
]


def test_the_contract_is_kept(url):
    report = check(url, cases=CASES, seed=3, budget_s=0)
    broken = [r for r in report.results if r.verdict not in ("PASS", "NOT CLAIMED")]
    assert [(r.id, r.verdict, r.reason, r.seed) for r in broken] == []
    assert {r.case for r in report.results if r.verdict == "PASS"} == set(CASES)


def test_sessions_are_listed_in_pages(url, opened):
    store = opened(url)
    ids = {f"user/{number}" for number in range(45)}
    for name in ids:
        store.add_message(name, "user", "hi")
    store.add_message("other", "user", "hi")
    page = store.list_sessions(prefix="user/", limit=10)
    seen = page.ids
    while page.cursor is not None:
        page = store.list_sessions(prefix="user/", limit=10, cursor=page.cursor)
        seen += page.ids
    store.close()
    assert len(seen) == len(set(seen))
    assert set(seen) == ids


def test_time_to_live_is_kept_by_the_servers_clock(url, opened):
    store = opened(url)
    store.add_message("s", "user", "hi", key="k", ttl=0.05)
    store.add_message("t", "user", "stays", ttl=1000)
    bound = threading.Event()
    for _ in range(6000):
        if store.session("s").status == "expired":
            break
        bound.wait(0.01)
    assert store.session("s").status == "expired"
    assert store.add_message("s", "user", "hi", key="k").positions == range(1, 2)
    assert texts(store, "t") == ["stays"]
    store.close()


def test_an_engine_frees_all_keys_of_a_session_at_once(redis_url):
    with indelible.open(redis_url) as store, redis.Redis.from_url(redis_url, protocol=2) as client:
        store.add_message("s", "user", "hi", key="k", ttl=1000)
        store.save_snapshot("s")
        store.clear("s")
        store.undo("s")
        left_ms = {key[-1:]: client.pttl(key) for key in client.keys("indelible:{*")}
    assert sorted(left_ms) == [b"h", b"j", b"k", b"l", b"s", b"v"]
    assert min(left_ms.values()) > 900_000
    assert left_ms.pop(b"h") > max(left_ms.values())


def test_scripts_that_a_server_forgot_are_sent_again(redis_url, opened):
    store = opened(redis_url)
    with redis.Redis.from_url(redis_url, protocol=2) as other:
        for number in range(3):
            store.add_message("s", "user", str(number))
            other.script_flush()
            assert texts(store, "s") == [str(each) for each in range(number + 1)]
            other.script_flush()
    store.close()


def test_a_client_that_decodes_replies_works(redis_url):
    with (
        redis.Redis.from_url(redis_url, decode_responses=True) as client,
        indelible.open(client) as store,
    ):
        every_verb(store)


def test_a_full_server_says_so_and_takes_writes_again(redis_url):
    with indelible.open(redis_url) as store, redis.Redis.from_url(redis_url, protocol=2) as client:
        store.add_message("s", "user", "before")
        client.config_set("maxmemory", "1")
        try:
            with pytest.raises(indelible.UnavailableError) as caught:
                store.add_message("s", "user", "too much")
        finally:
            client.config_set("maxmemory", "0")
        assert (caught.value.code, caught.value.landed) == ("OOM", "no")
        store.add_message("s", "user", "after")
        assert texts(store, "s") == ["before", "after"]


def test_writers_of_one_session_lose_and_double_nothing(url):
    with indelible.open(url) as store:

        def write(name):
            for number in range(EACH):
                text = f"{name}-{number}"
                store.add_message("s", "user", text, key=text)

        threads = [threading.Thread(target=write, args=(name,)) for name in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        said = texts(store, "s")
    assert len(said) == WRITERS * EACH
    for name in range(WRITERS):
        mine = [text for text in said if text.startswith(f"{name}-")]
        assert mine == [f"{name}-{number}" for number in range(EACH)]
