"""indelible as the chat stores of LlamaIndex."""

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.storage.chat_store.base_db import MessageStatus

import indelible
from indelible.adapters.llama_index import IndelibleChatStore, IndelibleMemoryStore
from indelible.core.operations import SetMetadata

CALLS = [{"id": "c-1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
EVERY_KIND = [
    ChatMessage(role="system", content="Be kind."),
    ChatMessage(role="user", content="Hello"),
    ChatMessage(role="user", blocks=[TextBlock(text="a"), ImageBlock(image=b"\x89PNG\x00")]),
    ChatMessage(role="assistant", content=None, additional_kwargs={"tool_calls": CALLS}),
    ChatMessage(role="tool", content="done", additional_kwargs={"tool_call_id": "c-1"}),
    ChatMessage(role="assistant", content="", additional_kwargs={"deep": [1, {"a": None}]}),
    ChatMessage(role="chatbot", blocks=[]),
]


def numbered(count):
    return [ChatMessage(role="user", content=f"message {n}") for n in range(count)]


@pytest.fixture
def chat_store(store):
    return IndelibleChatStore(store)


@pytest.fixture
def queue(any_store):
    return IndelibleMemoryStore(any_store)


def test_every_kind_of_message_reads_back_equal(chat_store):
    for message in EVERY_KIND:
        chat_store.add_message("ana", message)
    assert chat_store.get_messages("ana") == EVERY_KIND


async def test_every_kind_of_message_reads_back_equal_when_awaited(any_store):
    chat_store = IndelibleChatStore(any_store)
    for message in EVERY_KIND:
        await chat_store.async_add_message("ana", message)
    assert await chat_store.aget_messages("ana") == EVERY_KIND
    assert await chat_store.adelete_last_message("ana") == EVERY_KIND[-1]
    assert await chat_store.adelete_message("ana", 0) == EVERY_KIND[0]
    await chat_store.aset_messages("ana", EVERY_KIND[:2])
    assert await chat_store.aget_keys() == ["ana"]
    assert await chat_store.adelete_messages("ana") == EVERY_KIND[:2]


def test_a_message_that_arrives_during_a_deletion_is_returned_too(chat_store, store, monkeypatch):
    first, second = numbered(2)
    chat_store.add_message("ana", first)
    clear = store.clear

    def clear_late(*given, **named):
        monkeypatch.undo()
        chat_store.add_message("ana", second)
        return clear(*given, **named)

    monkeypatch.setattr(store, "clear", clear_late)
    assert chat_store.delete_messages("ana") == [first, second]
    assert chat_store.get_messages("ana") == []
    assert chat_store.delete_messages("ana") is None


def test_a_message_that_cannot_be_serialized_is_refused(chat_store):
    strange = ChatMessage(role="user", content="a", additional_kwargs={"of": object()})
    with pytest.raises(indelible.UsageError, match="Nothing was written"):
        chat_store.set_messages("ana", [*EVERY_KIND, strange])
    assert chat_store.get_messages("ana") == []


def test_setting_messages_writes_only_what_is_new(chat_store, store):
    messages = numbered(4)
    chat_store.set_messages("ana", messages)
    chat_store.set_messages("ana", messages[2:])
    assert chat_store.get_messages("ana") == messages[2:]
    assert store.session("ana").logged == 4, "a shorter list hides"
    chat_store.set_messages("ana", [*messages[2:], *messages[:1]])
    assert store.session("ana").logged == 5, "a longer one adds"
    summary = ChatMessage(role="system", content="so far")
    chat_store.set_messages("ana", [summary, *messages[2:]])
    assert chat_store.get_messages("ana") == [summary, *messages[2:]]
    chat_store.set_messages("ana", [])
    assert chat_store.get_messages("ana") == []


def test_deleting_hides_and_returns(chat_store, store):
    messages = numbered(4)
    chat_store.set_messages("ana", messages)
    assert chat_store.delete_message("ana", 1) == messages[1]
    assert chat_store.delete_message("ana", 3) is None
    assert chat_store.delete_last_message("ana") == messages[3]
    assert chat_store.delete_messages("ana") == [messages[0], messages[2]]
    assert chat_store.delete_messages("ana") is None
    assert chat_store.delete_last_message("ana") is None
    assert chat_store.get_keys() == []
    assert store.session("ana").logged == 4


def test_snapshot_and_rollback(chat_store):
    messages = numbered(3)
    chat_store.set_messages("ana", messages[:2])
    before = chat_store.snapshot("ana")
    chat_store.add_message("ana", messages[2])
    chat_store.rollback("ana", before.id)
    assert chat_store.get_messages("ana") == messages[:2]
    chat_store.undo("ana")
    assert chat_store.get_messages("ana") == messages


def test_it_works_under_a_chat_memory_buffer(chat_store):
    memory = ChatMemoryBuffer.from_defaults(
        token_limit=3000, chat_store=chat_store, chat_store_key="ana"
    )
    memory.put(EVERY_KIND[1])
    again = ChatMemoryBuffer.from_defaults(
        token_limit=3000, chat_store=chat_store, chat_store_key="ana"
    )
    assert again.get() == [EVERY_KIND[1]]
    memory.reset()
    assert again.get_all() == []


async def test_the_queue(queue):
    messages = numbered(6)
    await queue.add_messages("ana", messages[:5])
    await queue.add_message("ana", messages[5])
    assert await queue.get_messages("ana", limit=2, offset=1) == messages[1:3]
    assert await queue.archive_oldest_messages("ana", 2) == messages[:2]
    assert await queue.get_messages("ana") == messages[2:]
    assert await queue.get_messages("ana", status=MessageStatus.ARCHIVED) == messages[:2]
    assert await queue.delete_oldest_messages("ana", 1) == messages[2:3]
    assert await queue.delete_message("ana", 0) == messages[0]
    assert await queue.get_messages("ana", status=None) == [messages[1], *messages[3:]]
    await queue.delete_messages("ana", status=MessageStatus.ARCHIVED)
    assert await queue.get_messages("ana", status=None) == messages[3:]
    await queue.set_messages("ana", messages[4:])
    assert await queue.get_messages("ana") == messages[4:]
    await queue.delete_messages("ana")
    assert (await queue.get_keys(), await queue.count_messages("ana")) == ([], 0)


async def test_archiving_hides_nothing_from_others_and_survives_a_rollback(queue):
    messages = numbered(3)
    await queue.add_messages("ana", messages)
    before = await queue.snapshot("ana")
    await queue.archive_oldest_messages("ana", 1)
    await queue.add_message("ana", ChatMessage(role="user", content="later"))
    await queue.rollback("ana", before.id)
    assert await queue.get_messages("ana", status=None) == messages
    assert await queue.get_messages("ana") == messages[1:]
    await queue.undo("ana")
    assert len(await queue.get_messages("ana", status=None)) == 4


async def test_archiving_keeps_what_others_set_meanwhile(store, monkeypatch):
    queue = IndelibleMemoryStore(store)
    await queue.add_messages("ana", numbered(5))
    perform = store._backend.perform

    def set_others_first(op):
        """Do what the application and another worker do between a read and a write."""
        if isinstance(op, SetMetadata):
            monkeypatch.setattr(store._backend, "perform", perform)
            store.set_metadata("ana", {"llama_index_archived_before": 3, "team": "support"})
        return perform(op)

    monkeypatch.setattr(store._backend, "perform", set_others_first)
    await queue.archive_oldest_messages("ana", 1)
    assert store.session("ana").metadata["team"] == "support"
    assert await queue.count_messages("ana") == 2


async def test_messages_that_are_added_as_archived_archive_no_others(queue):
    messages = numbered(4)
    await queue.add_messages("ana", messages[:2])
    await queue.add_messages("ana", messages[2:3], MessageStatus.ARCHIVED)
    await queue.add_message("ana", messages[3])
    assert await queue.get_messages("ana") == [*messages[:2], messages[3]]
    assert await queue.get_messages("ana", status=MessageStatus.ARCHIVED) == messages[2:3]
    assert await queue.archive_oldest_messages("ana", 1) == messages[:1]
    assert await queue.count_messages("ana") == 2


def test_indelible_understands_what_llama_index_wrote(chat_store, store):
    chat_store.set_messages("ana", EVERY_KIND)
    first, second, third, *_ = store.get_history("ana")
    assert (first.role, second.content) == ("system", "Hello")
    assert [block["block_type"] for block in third.content] == ["text", "image"]
    (call,) = store.get_tool_calls("ana")
    assert (call.name, call.status, call.result) == ("f", "done", "done")


def test_llama_index_understands_what_others_wrote(chat_store, store):
    store.save_context("ana", "Hello", "Hi")
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    store.add_messages("ana", [indelible.ChatMessage(role="narrator", content=blocks)])
    said = [(message.role.value, message.content) for message in chat_store.get_messages("ana")]
    assert said == [("user", "Hello"), ("assistant", "Hi"), ("chatbot", "a\nb")]
