"""indelible as a chat message history of LangChain."""

import asyncio
import threading

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

import indelible
from indelible.adapters.langchain import IndelibleChatMessageHistory

CALL = {"name": "book", "args": {"to": "Lisbon"}, "id": "call-1", "type": "tool_call"}
USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
EVERY_KIND = [
    SystemMessage("Be kind."),
    HumanMessage("Hello", id="h-1", name="ana"),
    HumanMessage([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": "data:"}]),
    HumanMessage(["plain text", {"type": "text", "text": "and a block"}]),
    AIMessage("", tool_calls=[CALL], id="run-1", usage_metadata=USAGE),
    AIMessage("not JSON", invalid_tool_calls=[{"name": "x", "args": "{", "id": "c", "error": "e"}]),
    ToolMessage("booked", tool_call_id="call-1", status="error", artifact={"seat": [1, None]}),
    AIMessage("Booked.", response_metadata={"model": "m"}, additional_kwargs={"k": {"n": 1.5}}),
    AIMessageChunk("part", id="run-2"),
    ChatMessage("aside", role="narrator"),
    FunctionMessage("result", name="old"),
    RemoveMessage(id="h-1"),
    HumanMessage("with more", mood="glad", weights=[1, 2]),
]


@pytest.fixture
def history(store):
    return IndelibleChatMessageHistory("ana", store)


def test_every_kind_of_message_reads_back_equal(history):
    history.add_messages(EVERY_KIND)
    assert history.messages == EVERY_KIND
    assert [type(message) for message in history.messages] == list(map(type, EVERY_KIND))
    assert history.messages[-1].mood == "glad"


async def test_every_kind_of_message_reads_back_equal_when_awaited(any_store):
    history = IndelibleChatMessageHistory("ana", any_store)
    await history.aadd_messages(EVERY_KIND)
    assert await history.aget_messages() == EVERY_KIND
    await history.aclear()
    assert await history.aget_messages() == []


def test_indelible_understands_what_langchain_wrote(history, store):
    history.add_messages(EVERY_KIND)
    roles = [message.role for message in store.get_history("ana")]
    assert roles[:5] == ["system", "user", "user", "user", "assistant"]
    (call,) = store.get_tool_calls("ana")
    assert (call.call_id, call.name, call.arguments) == ("call-1", "book", {"to": "Lisbon"})
    assert (call.status, call.result) == ("failed", "booked")
    store.trim("ana", keep_last=1)
    assert history.messages[0] == EVERY_KIND[0], "a trim keeps the system message"


def test_langchain_understands_what_others_wrote(history, store):
    store.save_context("ana", "Hello", "Hi")
    store.add_messages(
        "ana",
        [
            indelible.ChatMessage(role="system", content="Be kind."),
            indelible.ChatMessage(
                role="assistant",
                tool_calls=[{"id": "c", "function": {"name": "f", "arguments": '{"x": 1}'}}],
            ),
            indelible.ChatMessage(role="tool", content="done", tool_call_id="c"),
            indelible.ChatMessage(role="narrator", content="Night fell."),
        ],
    )
    assert history.messages == [
        HumanMessage("Hello"),
        AIMessage("Hi"),
        SystemMessage("Be kind."),
        AIMessage("", tool_calls=[{"id": "c", "name": "f", "args": {"x": 1}}]),
        ToolMessage("done", tool_call_id="c", name="f"),
        ChatMessage("Night fell.", role="narrator"),
    ]


def test_a_batch_with_an_id_is_there_once(history):
    turn = [HumanMessage("Hello"), AIMessage("Hi", id="run-1")]
    history.add_messages(turn)
    history.add_messages(turn)
    assert history.messages == turn
    history.add_messages([HumanMessage("Hello"), AIMessage("Hi", id="run-2")])
    assert len(history.messages) == 4


def test_messages_without_ids_may_say_the_same_twice(history):
    history.add_user_message("yes")
    history.add_user_message("yes")
    assert len(history.messages) == 2


def test_what_was_taken_away_can_be_added_again(history, store):
    turn = [HumanMessage("Hello", id="h-1")]
    for _ in range(3):
        history.add_messages(turn)
        assert history.messages == turn
        history.clear()
        assert history.messages == []
    assert store.session("ana").logged == 3


class OfAnApplication(BaseMessage):
    type: str = "of-an-application"


def test_a_message_that_langchain_could_not_restore_is_refused(history, store):
    with pytest.raises(indelible.UsageError, match="unexpected message type"):
        history.add_messages([HumanMessage("a"), OfAnApplication(content="b")])
    assert history.messages == []
    assert store.session("ana").logged == 0


def test_a_batch_is_one_append(history, store):
    history.add_messages([HumanMessage("a"), HumanMessage("b")])
    with pytest.raises(indelible.UsageError, match="cannot be stored"):
        history.add_messages([HumanMessage("c"), ToolMessage("d", tool_call_id="x", artifact={1})])
    assert [message.content for message in history.messages] == ["a", "b"]
    history.add_messages([])
    assert store.session("ana").logged == 2


def test_snapshot_rollback_and_branch(history):
    history.add_user_message("Lisbon")
    before = history.snapshot("before booking")
    history.add_ai_message("Booked: London.")
    branch = history.branch("ana-2", at=before.id)
    history.rollback(before.id)
    assert history.messages == branch.messages == [HumanMessage("Lisbon")]
    history.undo()
    assert len(history.messages) == 2
    assert repr(history).startswith("IndelibleChatMessageHistory('ana', <")


async def test_snapshot_rollback_and_branch_when_awaited(any_store):
    history = IndelibleChatMessageHistory("ana", any_store)
    await history.aadd_messages([HumanMessage("Lisbon")])
    before = await history.asnapshot()
    await history.aadd_messages([AIMessage("Booked: London.")])
    branch = await history.abranch("ana-2")
    await history.arollback(before.id)
    assert await history.aget_messages() == [HumanMessage("Lisbon")]
    assert len(await branch.aget_messages()) == 2
    await history.aundo()
    assert len(await history.aget_messages()) == 2


def chain_with(history_of, replies):
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("past"), ("human", "{said}")])
    left = iter(replies)
    chain = prompt | RunnableLambda(lambda _: AIMessage(next(left)))
    return RunnableWithMessageHistory(
        chain, history_of, input_messages_key="said", history_messages_key="past"
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_works_in_a_runnable_with_message_history(store):
    chain = chain_with(lambda name: IndelibleChatMessageHistory(name, store), ["Hi", "Lisbon"])
    config = {"configurable": {"session_id": "ana"}}
    chain.invoke({"said": "Hello"}, config)
    chain.invoke({"said": "Where?"}, config)
    said = [message.content for message in store.get_history("ana")]
    assert said == ["Hello", "Hi", "Where?", "Lisbon"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_it_works_in_a_runnable_that_is_awaited(any_store):
    chain = chain_with(lambda name: IndelibleChatMessageHistory(name, any_store), ["Hi"])
    await chain.ainvoke({"said": "Hello"}, {"configurable": {"session_id": "ana"}})
    history = IndelibleChatMessageHistory("ana", any_store)
    assert [message.content for message in await history.aget_messages()] == ["Hello", "Hi"]


async def test_a_blocking_call_on_an_async_store_says_what_to_do():
    async with indelible.open_async("memory:") as store:
        history = IndelibleChatMessageHistory("ana", store)
        with pytest.raises(indelible.UsageError, match="use the async methods"):
            history.add_user_message("Hello")


def test_a_url_instead_of_a_store_says_what_to_do():
    with pytest.raises(indelible.UsageError, match=r"indelible\.open"):
        IndelibleChatMessageHistory("ana", "agent.db")


async def test_a_cancelled_caller_waits_for_the_outcome_of_its_write(store, monkeypatch):
    begun, may_end = threading.Event(), threading.Event()
    add = store.add_messages

    def slowly(*given, **named):
        begun.set()
        assert may_end.wait(timeout=60)
        return add(*given, **named)

    monkeypatch.setattr(store, "add_messages", slowly)
    history = IndelibleChatMessageHistory("ana", store)
    task = asyncio.create_task(history.aadd_messages([HumanMessage("Hello")]))
    assert await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert history.messages == [HumanMessage("Hello")]
