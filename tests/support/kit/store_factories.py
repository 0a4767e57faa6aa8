"""Factories of real stores that hold every session, and of some that forget."""

from __future__ import annotations

import asyncio
import contextlib
import json

from claude_agent_sdk import InMemorySessionStore
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from llama_index.core import VectorStoreIndex
from llama_index.core.storage.chat_store import SimpleChatStore

from scoreboard.factories.llama_index_vectors import WordEmbedder

# Broken ones keep so many messages of a session and forget the rest.
KEPT = 3


def nothing_of_the_kind(workspace):
    return 7


no_factory = 7


class OneByOne:
    """No framework's: it takes a batch, message by message, and stops at what it cannot keep."""

    def __init__(self, workspace):
        self._kept = {}

    def append(self, session, messages):
        for message in messages:
            self._kept.setdefault(session, []).append(json.dumps(message))

    def read(self, session):
        return [json.loads(line) for line in self._kept.get(session, ())]


def on_a_server(workspace, server):
    return None


# LangGraph


def saver(workspace):
    return InMemorySaver()


@contextlib.contextmanager
def opened_saver(workspace):
    yield InMemorySaver()


@contextlib.asynccontextmanager
async def awaited_saver(workspace):
    yield InMemorySaver()


async def coroutine_saver(workspace):
    return InMemorySaver()


class ForgetfulSaver(InMemorySaver):
    def put(self, config, checkpoint, metadata, new_versions):
        values = dict(checkpoint["channel_values"])
        values["messages"] = values["messages"][-KEPT:]
        checkpoint = {**checkpoint, "channel_values": values}
        return super().put(config, checkpoint, metadata, new_versions)


def forgetful_saver(workspace):
    return ForgetfulSaver()


def store(workspace):
    return InMemoryStore()


class ForgetfulStore(InMemoryStore):
    def search(self, *namespace, **options):
        return super().search(*namespace, **options | {"limit": KEPT})

    async def asearch(self, *namespace, **options):
        return await super().asearch(*namespace, **options | {"limit": KEPT})


def forgetful_store(workspace):
    return ForgetfulStore()


# LlamaIndex


def chat_store(workspace):
    return SimpleChatStore()


class ForgetfulChatStore(SimpleChatStore):
    def add_message(self, key, message, idx=None):
        super().add_message(key, message, idx)
        del self.store[key][:-KEPT]


def forgetful_chat_store(workspace):
    return ForgetfulChatStore()


CLOSED = []


class ChatStoreToClose(SimpleChatStore):
    def close(self):
        CLOSED.append(self)


def chat_store_to_close(workspace):
    return ChatStoreToClose()


class SlowChatStore(SimpleChatStore):
    async def async_add_message(self, key, message):
        await asyncio.sleep(0)
        self.add_message(key, message)

    async def aget_messages(self, key):
        await asyncio.sleep(0)
        return self.get_messages(key)


def slow_chat_store(workspace):
    return SlowChatStore()


def index(workspace):
    return VectorStoreIndex([], embed_model=WordEmbedder())


class ForgetfulIndex(VectorStoreIndex):
    """Forgets to delete."""

    def delete_nodes(self, node_ids, **options):
        pass

    async def adelete_nodes(self, node_ids, **options):
        pass


def forgetful_index(workspace):
    return ForgetfulIndex([], embed_model=WordEmbedder())


# The Claude Agent SDK


def session_store(workspace):
    return InMemorySessionStore()


class OnlyWhatMustBe:
    """The two methods that a session store cannot leave out; it forgets while it waits."""

    def __init__(self):
        self.entries = {}

    async def append(self, key, entries):
        seen = list(self.entries.get(key["session_id"], ()))
        await asyncio.sleep(0)
        self.entries[key["session_id"]] = seen + entries

    async def load(self, key):
        return self.entries.get(key["session_id"])


def forgetful_session_store(workspace):
    return OnlyWhatMustBe()
