"""Appends that come at once are one call of one script, and each has its own outcome."""

import asyncio

import indelible
from indelible.errors import FormatError
from memory_contract.faults.proxy import Proxy, ProxyFault

CALLERS = 40


def calls(client):
    return {
        name.removeprefix("cmdstat_"): stats["calls"]
        for name, stats in client.info("commandstats").items()
    }


async def known(store, *sessions, **options):
    """The store has appended to these sessions before, so that it knows them."""
    for session in sessions:
        await store.add_message(session, "user", "first", **options)


async def at_once(store, sessions, **options):
    return await asyncio.gather(
        *(
            store.add_message(session, "user", f"{number}", **options)
            for number, session in enumerate(sessions)
        ),
        return_exceptions=True,
    )


def texts(history):
    return [message.content for message in history]


async def test_a_group_is_one_call_and_each_append_has_its_own_receipt(url, client):
    sessions = ["a", "b", "a", "c"] * (CALLERS // 4)
    async with indelible.open_async(url) as store:
        await known(store, "a", "b", "c")
        await at_once(store, sessions)
        client.config_resetstat()
        receipts = await at_once(store, sessions)
        assert calls(client)["evalsha"] == 1
        for session in ("a", "b", "c"):
            history = await store.get_history(session)
            mine = [number for number, each in enumerate(sessions) if each == session]
            assert texts(history)[-len(mine) :] == [f"{number}" for number in mine]
            assert [receipts[number].positions[0] for number in mine] == list(
                range(len(history) - len(mine), len(history))
            )
            assert receipts[mine[-1]].version == history.version
            assert len({receipts[number].key for number in mine}) == len(mine)
        assert (await store.verify()).ok


async def test_a_group_after_the_server_forgot_its_scripts_is_sent_with_the_text_once(url, client):
    async with indelible.open_async(url) as store:
        await known(store, "s")
        client.script_flush()
        client.config_resetstat()
        await at_once(store, ["s"] * CALLERS)
        said = calls(client)
        assert (said["evalsha"], said["eval"]) == (1, 1)
        await at_once(store, ["s"] * CALLERS)
        assert calls(client)["eval"] == 1
        assert len(await store.get_history("s")) == 1 + 2 * CALLERS


async def test_one_session_that_changed_does_not_stop_the_others_of_a_group(url):
    async with indelible.open_async(url) as store, indelible.open_async(url) as other:
        await known(store, "kept", "gone", "ending")
        await other.forget("gone")
        await other.add_message("ending", "user", "second", ttl=600)
        receipts = await at_once(store, ["kept", "gone", "ending", "kept", "gone"])
        assert not [each for each in receipts if isinstance(each, Exception)]
        assert texts(await store.get_history("kept")) == ["first", "0", "3"]
        assert sorted(texts(await store.get_history("gone"))) == ["1", "4"]
        assert texts(await store.get_history("ending")) == ["first", "second", "2"]
        assert (await store.session("ending")).expires_at is None


async def test_a_group_moves_the_deadline_of_sessions_that_have_one(url, client):
    async with indelible.open_async(url) as store:
        await known(store, "s", ttl=600)
        await known(store, "t")
        before = int(client.hget("indelible:{:s}h", "deadline"))
        for _ in range(100):
            client.config_resetstat()
            await asyncio.gather(
                *(store.add_message("s", "user", "hi", ttl=600) for _ in range(3)),
                *(store.add_message("t", "user", "hi") for _ in range(3)),
            )
            if int(client.hget("indelible:{:s}h", "deadline")) > before:
                break
        assert calls(client)["evalsha"] == 1
        assert int(client.hget("indelible:{:s}h", "deadline")) > before
        (newest,) = client.zrange("indelible:{:s}l", -1, -1)
        assert int(newest.split(b" ")[1]) == int(client.hget("indelible:{:s}h", "deadline"))
        assert client.hget("indelible:{:t}h", "deadline") == b""


async def test_a_group_on_a_full_server_writes_nothing_and_says_so(start):
    server = start(appendonly="no")
    async with indelible.open_async(server.url, durability="none") as store:
        await known(store, "s", "t")
        with server.client() as client:
            client.config_set("maxmemory", "1")
            errors = await at_once(store, ["s", "t", "s"])
            client.config_set("maxmemory", "0")
        assert [type(each) for each in errors] == [indelible.UnavailableError] * 3
        assert texts(await store.get_history("s")) == ["first"]
        assert texts(await store.get_history("t")) == ["first"]
        await at_once(store, ["s", "t", "s"])
        assert texts(await store.get_history("s")) == ["first", "0", "2"]


def test_a_group_whose_answer_was_lost_is_there_once(url):
    with Proxy(url) as proxy:

        async def work():
            async with indelible.open_async(proxy.url) as store:
                await known(store, "s", "t")
                await at_once(store, ["s", "t"])
                proxy.arm(ProxyFault("cut after", on="EVALSHA"))
                return await at_once(store, ["s", "t"] * (CALLERS // 2))

        receipts = asyncio.run(work())
        assert proxy.struck
    assert all(receipt.replayed for receipt in receipts)
    with indelible.open(url) as store:
        for session in ("s", "t"):
            assert len(store.get_history(session)) == 2 + CALLERS // 2
            assert len(set(texts(store.get_history(session))[2:])) == CALLERS // 2


def test_an_append_behind_a_call_that_a_loading_server_refused_lands_once(url):
    with Proxy(url) as proxy:

        async def work():
            async with indelible.open_async(proxy.url) as store:
                await known(store, "s")
                await store.set_metadata("s", {"a": 1})
                # Both go in one batch, and the server has read its file when it takes the second.
                proxy.arm(ProxyFault("answer", "EVALSHA", reply="LOADING the file"))
                await asyncio.gather(
                    store.set_metadata("s", {"a": 2}), store.add_message("s", "user", "second")
                )

        asyncio.run(work())
        assert len(proxy.struck) == 1
    with indelible.open(url) as store:
        assert texts(store.get_history("s")) == ["first", "second"]
        assert store.session("s").metadata == {"a": 2}


async def test_each_append_of_a_group_finds_that_the_view_is_damaged(url, client):
    async with indelible.open_async(url) as store:
        await store.remember("s", "tea", id="drink")
        client.hdel("indelible:{:s}v", "extents")
        outcomes = await asyncio.gather(
            *(store.remember("s", "coffee", id="drink", expected=0) for _ in range(3)),
            return_exceptions=True,
        )
        assert [type(each) for each in outcomes] == [FormatError] * 3
