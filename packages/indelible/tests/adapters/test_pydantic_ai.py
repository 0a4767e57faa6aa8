"""indelible as the message history of pydantic-ai agents."""

import asyncio
import dataclasses

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel

import indelible
from indelible.adapters.pydantic_ai import IndelibleMessageHistory


def retried():
    """A tool's demand to try again, as this version of pydantic-ai says it."""
    if "outcome" in {field.name for field in dataclasses.fields(ToolReturnPart)}:
        return ToolReturnPart("book", "no such city", "c-1", outcome="retried")
    return RetryPromptPart("no such city", tool_name="book", tool_call_id="c-1")


EVERY_KIND = [
    ModelRequest([SystemPromptPart("Be kind."), UserPromptPart("Book Lisbon")]),
    ModelResponse([ThinkingPart("hm"), ToolCallPart("book", {"to": "Lisbon"}, "c-1")]),
    ModelRequest([retried()]),
    ModelResponse([TextPart("again"), ToolCallPart("book", '{"to": "Lisboa"}', "c-2")]),
    ModelRequest([ToolReturnPart("book", {"seat": 1}, "c-2"), UserPromptPart("quick!")]),
    ModelResponse([TextPart("Booked.")]),
    ModelRequest([UserPromptPart(["see", BinaryContent(b"\x00\xff", media_type="image/png")])]),
]


def as_loaded(messages):
    """What the framework itself makes of messages that it wrote and read."""
    written = ModelMessagesTypeAdapter.dump_json(list(messages))
    return ModelMessagesTypeAdapter.validate_json(written)


@pytest.fixture
def history(store):
    return IndelibleMessageHistory("ana", store)


@pytest.fixture
def agent():
    agent = Agent(TestModel(), system_prompt="Be kind.")

    @agent.tool_plain
    def book(to: str) -> str:
        return f"booked: {to}"

    return agent


def test_every_kind_of_message_reads_back_as_the_framework_reads_it(history):
    history.save(EVERY_KIND)
    assert history.load() == as_loaded(EVERY_KIND)


def test_a_conversation_goes_on_where_it_was(history, agent):
    past = history.load()
    first = asyncio.run(agent.run("Book Lisbon", message_history=past))
    history.save(first.new_messages(), expected=past.version)
    past = history.load()
    second = asyncio.run(agent.run("And now?", message_history=past))
    history.save(second.new_messages(), expected=past.version)
    assert history.load() == as_loaded(second.all_messages())


async def test_a_conversation_goes_on_when_awaited(any_store, agent):
    history = IndelibleMessageHistory("ana", any_store)
    past = await history.aload()
    result = await agent.run("Book Lisbon", message_history=past)
    await history.asave(result.new_messages(), expected=past.version)
    assert await history.aload() == as_loaded(result.all_messages())


def test_a_message_that_cannot_be_serialized_is_refused(history):
    strange = ModelRequest([ToolReturnPart("book", object(), "c-1")])
    with pytest.raises(indelible.UsageError, match="Nothing was written"):
        history.save([*EVERY_KIND, strange])
    assert history.load() == []


def test_a_stale_save_is_refused(history, agent):
    past = history.load()
    mine = asyncio.run(agent.run("Book Lisbon", message_history=past))
    history.save([ModelRequest([UserPromptPart("from another tab")])])
    with pytest.raises(indelible.ConflictError):
        history.save(mine.new_messages(), expected=past.version)
    assert len(history.load()) == 1


def test_a_run_is_there_once_however_often_it_is_saved(history):
    messages = [
        ModelRequest([UserPromptPart("Hello")], run_id="run-1"),
        ModelResponse([TextPart("Hi")], run_id="run-1"),
    ]
    first = history.save(messages)
    again = history.save(messages)
    assert (again.replayed, again.positions) == (True, first.positions)
    assert len(history.load()) == 2
    assert history.save([]) is None


def test_snapshot_rollback_and_branch(history):
    history.save(EVERY_KIND[:2])
    before = history.snapshot("before")
    history.save(EVERY_KIND[2:])
    branch = history.branch("ana-2", at=before.id)
    branch.save(EVERY_KIND[5:6])
    history.rollback(before.id)
    assert (len(history.load()), len(branch.load())) == (2, 3)
    history.undo()
    assert len(history.load()) == len(EVERY_KIND)


async def test_snapshot_rollback_and_branch_when_awaited(any_store):
    history = IndelibleMessageHistory("ana", any_store)
    await history.asave(EVERY_KIND[:2])
    before = await history.asnapshot()
    await history.asave(EVERY_KIND[2:])
    branch = await history.abranch("ana-2")
    await history.arollback(before.id)
    assert (len(await history.aload()), len(await branch.aload())) == (2, 7)


def test_indelible_understands_what_pydantic_ai_wrote(history, store):
    history.save(EVERY_KIND)
    roles = [message.role for message in store.get_history("ana")]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "user"]
    first, second = store.get_tool_calls("ana")
    assert (first.status, second.status) == ("failed", "done")
    assert (first.arguments, second.result) == ({"to": "Lisbon"}, {"seat": 1})
    store.trim("ana", keep_last=1)
    assert history.load()[0] == as_loaded(EVERY_KIND)[0], "the system prompt stays"


def test_pydantic_ai_understands_what_others_wrote(history, store):
    store.save_context("ana", "Hello", "Hi")
    call = {"id": "c", "name": "f", "args": {"x": 1}}
    store.add_messages(
        "ana",
        [
            indelible.ChatMessage(role="system", content="Be kind."),
            indelible.ChatMessage(role="assistant", tool_calls=[call]),
            indelible.ChatMessage(role="tool", name="f", content="done", tool_call_id="c"),
        ],
    )
    parts = [part for message in history.load() for part in message.parts]
    assert [(part.part_kind, getattr(part, "content", None)) for part in parts] == [
        ("user-prompt", "Hello"),
        ("text", "Hi"),
        ("system-prompt", "Be kind."),
        ("tool-call", None),
        ("tool-return", "done"),
    ]
    assert parts[3].args == {"x": 1}
