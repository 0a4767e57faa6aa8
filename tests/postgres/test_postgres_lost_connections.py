"""A connection that is lost in the middle of a transaction leaves no noise behind."""

import gc
import logging
from contextlib import suppress

import pytest

import indelible
from indelible.contract.faults.proxy import Proxy, Trouble
from indelible.contract.gates.cancelling import Cancelled, Interrupting


@pytest.fixture
def proxy(url):
    with Proxy(url) as started:
        yield started


@pytest.fixture
def noise(caplog, monkeypatch):
    """What drivers log, and what goes wrong while things are swept up."""
    caplog.set_level(logging.WARNING)
    heard = []
    monkeypatch.setattr("sys.unraisablehook", heard.append)
    return lambda: [*(record.getMessage() for record in caplog.records), *heard]


CUTS = [Trouble("cut after", name) for name in ("BEGIN", "SELECT", "COMMIT")]


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.on)
def test_a_blocking_store_goes_on_quietly(proxy, noise, cut):
    with indelible.open(proxy.url, timeout_s=30) as store:
        store.add_message("s", "user", "hi")
        proxy.arm(cut)
        store.save_snapshot("s")
        assert proxy.struck
        gc.collect()
    assert noise() == []


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.on)
async def test_an_async_store_goes_on_quietly(proxy, noise, cut):
    async with indelible.open_async(proxy.url, timeout_s=30) as store:
        await store.add_message("s", "user", "hi")
        proxy.arm(cut)
        await store.save_snapshot("s")
        assert proxy.struck
        gc.collect()
        await store.session("s")
    assert noise() == []


async def test_a_cancelled_read_leaves_no_noise(url, noise):
    async with indelible.open_async(url) as store:
        await store.add_message("s", "user", "hi")
        for nth in range(1, 30):
            interrupting = Interrupting(nth)
            with suppress(Cancelled):
                await interrupting(store.session("s"))
            gc.collect()
            if not interrupting.reached:
                break
        assert nth > 2
        assert len(await store.get_history("s")) == 1
    assert noise() == []
