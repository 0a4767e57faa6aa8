"""Adapters in the kit's words, with what they offer beyond a framework's interface."""

import json
import uuid

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

from indelible import ConflictError
from indelible.adapters.claude_agent import IndelibleSessionStore
from indelible.adapters.llama_index import IndelibleChatStore, IndelibleMemoryStore
from indelible.adapters.pydantic_ai import IndelibleMessageHistory
from indelible.core.codec import encode_json
from memory_contract.adapter import Adapter, Conflict, Refused

ROLES = {role.value for role in MessageRole}


def whole(message):
    """A message of the kit as JSON text: what is none, a framework would change by itself."""
    return {"whole": encode_json(message, what="message").decode()}


def given(fields):
    return json.loads(fields["whole"])


def text_of(message):
    return message["content"] if isinstance(message["content"], str) else ""


class LlamaHandle:
    """The chat store of `Memory`, and its older kin for what only that can do."""

    def __init__(self, store):
        self.queue = IndelibleMemoryStore(store)
        self.older = IndelibleChatStore(store)

    async def append(self, session, messages):
        if any(message["role"] not in ROLES for message in messages):
            raise Refused("a role that LlamaIndex does not know")
        batch = [
            ChatMessage(
                role=message["role"], content=text_of(message), additional_kwargs=whole(message)
            )
            for message in messages
        ]
        await self.queue.add_messages(session, batch)

    async def read(self, session):
        found = await self.queue.get_messages(session)
        return [given(message.additional_kwargs) for message in found]

    async def pop(self, session):
        found = await self.older.adelete_last_message(session)
        return None if found is None else given(found.additional_kwargs)

    async def clear(self, session):
        await self.older.adelete_messages(session)

    async def snapshot(self, session):
        return (await self.queue.snapshot(session)).id

    async def rollback(self, session, snapshot):
        await self.queue.rollback(session, snapshot)

    async def sessions(self):
        return await self.queue.get_keys()


class PydanticHandle:
    """Model messages of a history, blocking."""

    def __init__(self, store):
        self.store = store

    def history(self, session):
        return IndelibleMessageHistory(session, self.store)

    def append(self, session, messages, *, expected=None):
        batch = [
            ModelResponse([TextPart(text_of(message))], metadata=whole(message))
            if message["role"] == "assistant"
            else ModelRequest([UserPromptPart(text_of(message))], metadata=whole(message))
            for message in messages
        ]
        try:
            self.history(session).save(batch, expected=expected)
        except ConflictError as conflict:
            raise Conflict(str(conflict)) from conflict

    def read(self, session):
        return [given(message.metadata) for message in self.history(session).load()]

    def version(self, session):
        return self.history(session).load().version

    def snapshot(self, session):
        return self.history(session).snapshot().id

    def rollback(self, session, snapshot):
        self.history(session).rollback(snapshot)

    def fork(self, session, target):
        self.history(session).branch(target)


class ClaudeHandle:
    """Transcripts of one project."""

    def __init__(self, store):
        self.store = IndelibleSessionStore(store)

    def key(self, session):
        return {"project_key": "kit", "session_id": session}

    async def append(self, session, messages):
        entries = [
            {"type": message["role"], "uuid": str(uuid.uuid4()), "message": message}
            for message in messages
        ]
        await self.store.append(self.key(session), entries)

    async def read(self, session):
        found = await self.store.load(self.key(session))
        return [entry["message"] for entry in found or ()]

    async def snapshot(self, session):
        return (await self.store.snapshot(self.key(session))).id

    async def rollback(self, session, snapshot):
        await self.store.rollback(self.key(session), snapshot)

    async def sessions(self):
        return [each["session_id"] for each in await self.store.list_sessions("kit")]


def adapter_of(name, handle, opened, *, capabilities, awaited):
    """How the kit reaches a framework's handle on some engine, by a function of the workspace."""

    def open_now(workspace):
        return handle(opened(workspace))

    async def open_soon(workspace):
        return handle(opened(workspace))

    return Adapter(
        name=name,
        open=None if awaited else open_now,
        open_async=open_soon if awaited else None,
        capabilities=capabilities,
        # More would be true of a file. But other processes would import the framework for each of
        # hundreds of tries, which takes minutes and shows nothing new.
        reach="process",
        thread_safe=True,
    )


def llama(opened):
    claimed = ["pop", "clear", "snapshot", "rollback", "list", "fields"]
    return adapter_of("LlamaIndex", LlamaHandle, opened, capabilities=claimed, awaited=True)


def pydantic_ai(opened):
    claimed = ["snapshot", "rollback", "fork", "expected", "fields"]
    return adapter_of("pydantic-ai", PydanticHandle, opened, capabilities=claimed, awaited=False)


def claude(opened):
    claimed = ["snapshot", "rollback", "list", "fields"]
    return adapter_of("Claude Agent SDK", ClaudeHandle, opened, capabilities=claimed, awaited=True)
