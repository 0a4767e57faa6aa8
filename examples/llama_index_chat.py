"""A chat on LlamaIndex: stop it at any moment, start it again, and it goes on where it was."""

import asyncio
import sys

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory

import indelible
from indelible.adapters.llama_index import IndelibleMemoryStore


def model(messages):
    """A stub: it says how much it was told."""
    said = [message.content for message in messages if message.role == "user"]
    return f"{len(said)} things so far; the first was {said[0]!r}"


async def main():
    async with indelible.open_async(sys.argv[1]) as store:
        chat_store = IndelibleMemoryStore(store)
        memory = Memory.from_defaults(session_id="ana", chat_store=chat_store)
        before = [message for message in await memory.aget() if message.role == "user"]
        print(f"You have said {len(before)} things before.", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = ChatMessage(role="user", content=line.strip())
            text = model([*await memory.aget(), asked])
            # One batch: there is never a question without its answer.
            await memory.aput_messages([asked, ChatMessage(role="assistant", content=text)])
            print(text, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
