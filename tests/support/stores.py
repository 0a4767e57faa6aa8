"""The stores that every behaviour is tested on, behind one blocking face."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path

import indelible
from indelible import Kind, connect
from indelible.connect import Storage, find_engine
from tests.support import postgres_server, redis_cluster, redis_server

# All tests of every engine take the engines from here, and the place of each from `empty_url`.
STORAGE = {engine.name: engine.storage for engine in connect.ENGINES}
ENGINES = tuple(STORAGE)
EMBEDDED = tuple(name for name in ENGINES if STORAGE[name] is not Storage.SERVER)
# Those whose stores outlive their process.
PERSISTENT = tuple(name for name in ENGINES if STORAGE[name] is not Storage.MEMORY)
# Those that several processes use by opening the same file.
ON_FILES = tuple(name for name in ENGINES if STORAGE[name] is Storage.FILE)
# Where an empty store on a server is.
SERVERS = {"redis": redis_server.emptied, "postgres": postgres_server.emptied_database}
STORES = [f"{engine}-{flavour}" for engine in ENGINES for flavour in ("blocking", "async")]
# What a cluster adds to one server, both flavours share: finding the server of a session.
STORES.append("cluster-async")

# Any day will do; it is not a whole second, so that rounding would show.
START_S = 1_700_000_000.25

# No call takes this long; one that would wait forever fails here instead.
CALL_S_MAX = 150


def empty_url(engine, directory):
    """Where an empty store of an engine is; one on files is in the directory."""
    if engine in SERVERS:
        return SERVERS[engine]()
    if engine == "cluster":
        return redis_cluster.emptied()
    return "memory:" if engine == "memory" else f"{engine}:///{directory}/agent.db"


def unsynced(url):
    """Options for tests in which no power fails: a commit to a file need not wait for the disk."""
    return {"durability": "process"} if find_engine(url).storage is Storage.FILE else {}


class Clock:
    """Time that passes when a test says so."""

    def __init__(self):
        self.now_s = START_S

    def __call__(self):
        return self.now_s

    def advance(self, seconds):
        self.now_s += seconds


class CountedIds:
    """Ids in a known order: 1, 2, 3, ..."""

    def __init__(self):
        self.drawn = 0

    def __call__(self):
        self.drawn += 1
        return f"id{self.drawn}"


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self):
        started: Future = Future()
        self._thread = threading.Thread(
            target=asyncio.run, args=(self._serve(started),), daemon=True
        )
        self._thread.start()
        self._loop, self._stop = started.result()

    async def _serve(self, started):
        stop = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_S_MAX)

    def stop(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(CALL_S_MAX)
        assert not self._thread.is_alive(), "a call is still waiting"


class Blocking:
    """An async store that is called like a blocking one; each call runs on the loop."""

    def __init__(self, loop, target, **options):
        self._loop = loop
        self._store = loop.run(_opened(target, options))

    def _loop_run(self, step):
        """Perform a step of the waist itself."""
        return self._loop.run(self._store._backend.perform(step))

    def __getattr__(self, name):
        method = getattr(self._store, name)

        def call(*args, **kwargs):
            return self._loop.run(method(*args, **kwargs))

        return call


async def _opened(target, options):
    return await indelible.open_async(target, **options)


class Stores:
    """Opens stores of one engine and flavour, all on one place, and closes what it opened.

    Options are the defaults, but for a clock that stands still.
    """

    def __init__(self, kind, directory: Path):
        self.engine, self.flavour = kind.split("-")
        self.clock = Clock()
        self.target = empty_url(self.engine, directory)
        self._loop = LoopThread() if self.flavour == "async" else None
        self._open = []

    def open(self, **options):
        options.setdefault("clock", self.clock)
        if self._loop is None:
            store = indelible.open(self.target, **options)
        else:
            store = Blocking(self._loop, self.target, **options)
        self._open.append(store)
        return store

    def reopen(self, store, **options):
        """What another process would open after this one ended; memory lives on in its process."""
        if self.engine == "memory":
            return store
        store.close()
        return self.open(**options)

    def close(self):
        for store in self._open:
            store.close()
        if self._loop is not None:
            self._loop.stop()


def say(store, session, *texts, role="user", **options):
    """Append each text as a message of its own; the receipts."""
    return [store.add_message(session, role, text, **options) for text in texts]


def said(store, session, **options):
    """The texts that a session shows."""
    return [message.content for message in store.get_history(session, **options)]


def shown(store, session):
    """The positions that a session shows."""
    page = store.get_entries(session, limit=1000)
    positions = [entry.position for entry in page]
    while page.cursor is not None:
        page = store.get_entries(session, limit=1000, cursor=page.cursor)
        positions += [entry.position for entry in page]
    return positions


def call(call_id, name="search", **fields):
    """The record of a tool call."""
    return indelible.ToolCall(call_id=call_id, name=name, **fields)


def result(call_id, content="found", **fields):
    """What a tool answered."""
    return indelible.ToolResult(call_id=call_id, content=content, **fields)


def message(text, role="user", **fields):
    """One message."""
    return indelible.ChatMessage(role=role, content=text, **fields)


def one_of_each_kind():
    """A batch with an entry of every kind."""
    batch = [
        message("look it up"),
        call("c1", arguments={"q": "x"}),
        result("c1"),
        indelible.Summary(text="looked it up", vector=(1.0, 0.0), embedder="e", covers=((0, 3),)),
        indelible.StoredMemory(id="m", text="it was looked up", value={"times": 1}),
        indelible.StoredValue(type="msgpack", data="gaFh"),
        indelible.StoredCheckpoint(id="c", record={"channels": {"a": [5]}}),
    ]
    assert {indelible.model.KIND_OF[type(value)] for value in batch} == set(Kind)
    return batch
