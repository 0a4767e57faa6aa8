"""indelible under `Memory` of LlamaIndex, which takes stores of others from 0.14.24 on."""

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus

from indelible.adapters.llama_index import IndelibleMemoryStore


async def test_it_works_under_memory_and_archives_what_is_old(any_store):
    queue = IndelibleMemoryStore(any_store)

    def remembered():
        return Memory.from_defaults(
            session_id="ana",
            chat_store=queue,
            token_limit=200,
            chat_history_token_ratio=0.5,
            token_flush_size=50,
        )

    memory = remembered()
    for number in range(30):
        role = MessageRole.ASSISTANT if number % 2 else MessageRole.USER
        await memory.aput(ChatMessage(role=role, content=f"number {number} " + "word " * 10))
    active = await remembered().aget()
    assert 0 < len(active) < 30
    assert active[-1].content.startswith("number 29")
    archived = await queue.get_messages("ana", status=MessageStatus.ARCHIVED)
    assert len(archived) + await queue.count_messages("ana") == 30
    everything = await queue.get_messages("ana", status=None)
    assert [each.content.split()[1] for each in everything] == list(map(str, range(30)))
