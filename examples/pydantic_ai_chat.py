"""A chat on pydantic-ai: stop it at any moment, start it again, and it goes on where it was."""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

import indelible
from indelible.adapters.pydantic_ai import IndelibleMessageHistory


def said_in(messages):
    parts = [part for message in messages for part in message.parts]
    return [part.content for part in parts if isinstance(part, UserPromptPart)]


def model(messages, info):
    """A stub: it says how much it was told."""
    said = said_in(messages)
    return ModelResponse([TextPart(f"{len(said)} things so far; the first was {said[0]!r}")])


async def main():
    agent = Agent(FunctionModel(model))
    async with indelible.open_async(sys.argv[1]) as store:
        history = IndelibleMessageHistory("ana", store)
        print(f"You have said {len(said_in(await history.aload()))} things before.", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            past = await history.aload()
            result = await agent.run(line.strip(), message_history=past)
            # If anyone else went on with this conversation meanwhile, this refuses.
            await history.asave(result.new_messages(), expected=past.version)
            print(result.output, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
