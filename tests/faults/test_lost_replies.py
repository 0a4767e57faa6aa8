"""A server does an append and its reply is lost: the retry of the store itself gets the receipt."""

import asyncio
import threading

import pytest

import indelible
from indelible import ConflictError
from memory_contract.faults.proxy import Proxy, ProxyFault
from tests.support.stores import SERVERS
from tests.support.wait import wait_until

# By the second the server knows every script that an append needs.
EARLIER = ["first", "second"]
WAIT_S_MAX = 60


def append_blocking(url, **given):
    with indelible.open(url, timeout_s=WAIT_S_MAX) as store:
        for text in EARLIER:
            store.add_message("s", "user", text)
        yield
        yield store.add_message("s", "user", "hi", **given)


def append_async(url, **given):
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(_opened(url))
    for text in EARLIER:
        loop.run_until_complete(store.add_message("s", "user", text))
    yield
    yield loop.run_until_complete(store.add_message("s", "user", "hi", **given))
    loop.run_until_complete(store.close())
    loop.close()


async def _opened(url):
    return await indelible.open_async(url, timeout_s=WAIT_S_MAX)


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("append", [append_blocking, append_async])
@pytest.mark.parametrize("server", SERVERS)
def test_entries_that_were_hidden_before_the_retry_are_no_conflict(server, append, key):
    url = SERVERS[server]()
    with Proxy(url) as proxy, indelible.open(url) as other:
        steps = append(proxy.url, key=key)
        next(steps)
        # The append is done and its reply lost; the retry waits until the session was cleared.
        proxy.arm(ProxyFault("cut after"), ProxyFault("freeze", "CONNECT"))
        receipts = []
        thread = threading.Thread(target=lambda: receipts.append(next(steps)))
        thread.start()
        wait_until(lambda: len(proxy.struck) == 2)
        assert [message.content for message in other.get_history("s")] == [*EARLIER, "hi"]
        other.clear("s")
        proxy.heal()
        thread.join(WAIT_S_MAX)
        (receipt,) = receipts
        assert list(steps) == []
        assert (receipt.replayed, receipt.visible) == (True, False)
        assert other.get_history("s") == []
        with pytest.raises(ConflictError) as caught:
            other.add_message("s", "user", "hi", key=receipt.key)
        assert caught.value.reason == "hidden"
