"""A connection that is lost in the middle of a transaction leaves no noise behind."""

import gc
import logging
from contextlib import suppress

import psycopg
import pytest

import indelible
from indelible.backends.postgres.connection import DriverConnection
from memory_contract.cases.cancellation import CancelAtAwait, Cancelled
from memory_contract.faults.proxy import Proxy, ProxyFault


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


# Inside a transaction of several statements, and around a single one.
CUTS = [("clear", "BEGIN"), ("clear", "SELECT"), ("clear", "COMMIT"), ("save_snapshot", "SELECT")]


@pytest.mark.parametrize(("verb", "on"), CUTS)
def test_a_blocking_store_goes_on_quietly(proxy, noise, verb, on):
    with indelible.open(proxy.url, timeout_s=30) as store:
        store.add_message("s", "user", "hi")
        proxy.arm(ProxyFault("cut after", on))
        getattr(store, verb)("s")
        assert proxy.struck
        gc.collect()
    assert noise() == []


@pytest.mark.parametrize(("verb", "on"), CUTS)
async def test_an_async_store_goes_on_quietly(proxy, noise, verb, on):
    async with indelible.open_async(proxy.url, timeout_s=30) as store:
        await store.add_message("s", "user", "hi")
        proxy.arm(ProxyFault("cut after", on))
        await getattr(store, verb)("s")
        assert proxy.struck
        gc.collect()
        await store.session("s")
    assert noise() == []


def test_a_connection_that_ends_between_two_statements_of_a_pipeline_leaves_no_noise(url, noise):
    held = DriverConnection.connect(url, autocommit=True)

    def send_until_it_ends():
        with psycopg.connect(url, autocommit=True) as admin, held.pipeline():
            held.execute("SELECT 1")
            admin.execute("SELECT pg_terminate_backend(%s, 60000)", (held.info.backend_pid,))
            while True:
                held.execute("SELECT 1")

    with pytest.raises(psycopg.OperationalError):
        send_until_it_ends()
    assert held.closed
    gc.collect()
    assert noise() == []


async def test_a_cancelled_read_leaves_no_noise(url, noise):
    async with indelible.open_async(url) as store:
        await store.add_message("s", "user", "hi")
        for nth in range(1, 30):
            interrupting = CancelAtAwait(nth)
            with suppress(Cancelled):
                await interrupting(store.session("s"))
            gc.collect()
            if not interrupting.reached:
                break
        assert nth > 1
        assert len(await store.get_history("s")) == 1
    assert noise() == []
