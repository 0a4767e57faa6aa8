"""Where embedders run: not on the event loop if they block, and on one of their own if awaited."""

import asyncio
import threading

import indelible


class Noting:
    name = "noting"

    def __init__(self):
        self.threads = set()

    def embed(self, text):
        self.threads.add(threading.current_thread())
        return [1.0, float(len(text))]


class NotingAsync(Noting):
    async def embed(self, text):
        self.loop = asyncio.get_running_loop()
        return super().embed(text)


async def test_a_blocking_embedder_runs_outside_of_the_event_loop():
    embedder = Noting()
    async with indelible.open_async("memory:", embedder=embedder) as store:
        await store.add_summary("s", "one")
        await store.search_summaries("s", "one")
    assert embedder.threads
    assert threading.current_thread() not in embedder.threads


async def test_an_awaited_embedder_runs_on_the_callers_event_loop():
    embedder = NotingAsync()
    async with indelible.open_async("memory:", embedder=embedder) as store:
        await store.add_summary("s", "one")
    assert embedder.loop is asyncio.get_running_loop()


async def test_a_blocking_store_awaits_an_embedder_even_in_a_running_event_loop():
    embedder = NotingAsync()
    with indelible.open("memory:", embedder=embedder) as store:
        store.add_summary("s", "one")
        assert len(store.search_summaries("s", "one")) == 1
    assert embedder.loop is not asyncio.get_running_loop()
