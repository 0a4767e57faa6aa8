"""indelible as a session of the OpenAI Agents SDK."""

import asyncio

import pytest
from agents import Agent, Runner, function_tool
from agents.memory import Session
from agents.models.fake_id import FAKE_RESPONSES_ID

import indelible
from indelible.adapters.openai_agents import IndelibleSession
from tests.support.adapters.openai_stub import StubModel, called, said

CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call-1",
    "name": "book",
    "arguments": '{"to": "Lisbon"}',
    "status": "completed",
}
EVERY_KIND = [
    {"role": "user", "content": "Hello"},
    {"role": "developer", "content": "Be kind.", "type": "message"},
    {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
    CALL,
    {"type": "function_call_output", "call_id": "call-1", "output": "booked"},
    {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Booked.", "annotations": [], "logprobs": []}],
    },
    {"type": "computer_call", "call_id": "c-2", "action": {"type": "click", "x": 1}, "id": "cu_1"},
    {"type": "computer_call_output", "call_id": "c-2", "output": {"image_url": "data:"}},
    {"type": "something_new", "depth": {"of": [1, 2.5, None, True]}},
    {"role": "user", "content": None, "tool_calls": "odd", "name": 7},
]


@pytest.fixture
def session(any_store):
    return IndelibleSession("ana", any_store)


def test_it_is_a_session(store):
    assert isinstance(IndelibleSession("ana", store), Session)


async def test_every_kind_of_item_reads_back_equal(session):
    await session.add_items(EVERY_KIND)
    assert await session.get_items() == EVERY_KIND


async def test_limits(session):
    await session.add_items(EVERY_KIND)
    assert await session.get_items(limit=2) == EVERY_KIND[-2:]
    assert await session.get_items(limit=0) == []
    assert await session.get_items(limit=99) == EVERY_KIND
    session.session_settings = {"limit": 3}
    assert await session.get_items() == EVERY_KIND[-3:]


async def test_pop_takes_the_newest(session):
    await session.add_items(EVERY_KIND[:3])
    assert await session.pop_item() == EVERY_KIND[2]
    await session.add_items([EVERY_KIND[4]])
    assert await session.pop_item() == EVERY_KIND[4]
    assert await session.get_items() == EVERY_KIND[:2]
    await session.clear_session()
    assert await session.pop_item() is None


async def test_many_pop_and_none_pops_what_another_did(session):
    items = [{"role": "user", "content": str(number)} for number in range(20)]
    await session.add_items(items)
    popped = await asyncio.gather(*(session.pop_item() for _ in range(25)))
    found = [int(item["content"]) for item in popped if item is not None]
    assert sorted(found) == list(range(20))
    assert popped.count(None) == 5


async def test_indelible_understands_what_the_sdk_wrote(url):
    with indelible.open(url) as store:
        await IndelibleSession("ana", store).add_items(EVERY_KIND)
        first, second = store.get_tool_calls("ana")
        assert (first.call_id, first.name, first.result) == ("call-1", "book", "booked")
        assert (second.call_id, second.status) == ("c-2", "done")
        store.trim("ana", keep_last=1)
        roles = [message.role for message in store.get_history("ana")]
        assert roles == ["developer", "user"]


async def test_the_sdk_understands_what_others_wrote(store):
    store.save_context("ana", "Hello", "Hi")
    call = {"id": "c", "name": "f", "args": {"x": 1}}
    store.add_messages(
        "ana",
        [
            indelible.ChatMessage(role="assistant", tool_calls=[call]),
            indelible.ChatMessage(role="tool", content="done", tool_call_id="c"),
        ],
    )
    assert await IndelibleSession("ana", store).get_items() == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
    ]


async def test_pop_takes_a_message_of_another_framework_with_all_its_items(store):
    session = IndelibleSession("ana", store)
    call = {"id": "c", "name": "f", "args": {}}
    store.add_message("ana", "user", "Hello")
    store.add_messages("ana", [{"role": "assistant", "content": "I look.", "tool_calls": [call]}])
    assert (await session.pop_item())["type"] == "function_call"
    assert await session.get_items() == [{"role": "user", "content": "Hello"}]
    store.undo("ana")
    assert len(await session.get_items()) == 3


async def test_an_identified_batch_is_there_once_and_can_come_back(session):
    await session.add_items([CALL])
    await session.add_items([CALL])
    assert await session.get_items() == [CALL]
    assert await session.pop_item() == CALL
    await session.add_items([CALL])
    assert await session.get_items() == [CALL]


async def test_the_id_that_stands_for_none_is_none(session):
    item = {"role": "assistant", "id": FAKE_RESPONSES_ID, "content": "yes"}
    await session.add_items([item])
    await session.add_items([item])
    assert await session.get_items() == [item, item]


async def test_snapshot_rollback_and_branch(session):
    await session.add_items(EVERY_KIND[:2])
    before = await session.snapshot("before")
    await session.add_items([CALL])
    branch = await session.branch("ana-2", at=before.id)
    await branch.add_items([{"role": "user", "content": "another way"}])
    await session.rollback(before.id)
    assert await session.get_items() == EVERY_KIND[:2]
    assert len(await branch.get_items()) == 3
    await session.undo()
    assert len(await session.get_items()) == 3
    assert repr(session).startswith("IndelibleSession('ana', <")


async def test_it_works_with_the_runner(session):
    @function_tool
    def book(to: str) -> str:
        """Book a flight."""
        return f"booked: {to}"

    replies = [called("book", '{"to": "Lisbon"}', "call-1"), said("Booked."), said("Lisbon.")]
    agent = Agent(name="guide", model=StubModel(replies), tools=[book])
    first = await Runner.run(agent, "Book Lisbon", session=session)
    assert first.final_output == "Booked."
    second = await Runner.run(agent, "Where do I go?", session=session)
    assert second.final_output == "Lisbon."
    items = await session.get_items()
    kinds = [item.get("type", item.get("role")) for item in items]
    assert kinds == ["user", "function_call", "function_call_output", "message", "user", "message"]
    assert agent.model.seen[-1][:4] == items[:4], "the model saw what the session remembers"
