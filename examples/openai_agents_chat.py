"""A chat on the OpenAI Agents SDK: stop it at any moment, and it goes on where it was."""

import asyncio
import sys
import uuid

from agents import Agent, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

import indelible
from indelible.adapters.openai_agents import IndelibleSession


class StubModel(Model):
    """Says how much it was told."""

    async def get_response(self, system_instructions, input, *args, **kwargs):  # noqa: A002
        said = [item["content"] for item in input if item.get("role") == "user"]
        text = f"{len(said)} things so far; the first was {said[0]!r}"
        content = ResponseOutputText(type="output_text", text=text, annotations=[], logprobs=[])
        message = ResponseOutputMessage(
            id=f"msg_{uuid.uuid4()}",
            type="message",
            role="assistant",
            status="completed",
            content=[content],
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


async def main():
    set_tracing_disabled(True)
    agent = Agent(name="guide", model=StubModel())
    async with indelible.open_async(sys.argv[1]) as store:
        session = IndelibleSession("ana", store)
        before = [item for item in await session.get_items() if item.get("role") == "user"]
        print(f"You have said {len(before)} things before.", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            result = await Runner.run(agent, line.strip(), session=session)
            print(result.final_output, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
