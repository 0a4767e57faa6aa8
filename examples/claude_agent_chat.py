"""A chat on the Claude Agent SDK: each question resumes the conversation from the store."""

import asyncio
import sys
from pathlib import Path

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    get_session_messages_from_store,
    query,
)

import indelible
from indelible.adapters.claude_agent import IndelibleSessionStore

SESSION = "8e6ad9b8-8a6c-4a6e-9c1f-0e7a4a3f1d11"
# In place of the CLI that talks to a model.
STUB = Path(__file__).with_name("claude_stub_cli.py")


async def main():
    folder = Path(sys.argv[1]).absolute().parent
    async with indelible.open_async(sys.argv[1]) as store:
        transcripts = IndelibleSessionStore(store)

        async def said():
            found = await get_session_messages_from_store(transcripts, SESSION, str(folder))
            return [message for message in found if message.type == "user"]

        before = await said()
        print(f"You have said {len(before)} things before.", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            known = bool(await said())
            options = ClaudeAgentOptions(
                session_store=transcripts,
                cwd=folder,
                cli_path=STUB,
                # Its own, so that the stub sees nobody's settings.
                env={"CLAUDE_CONFIG_DIR": str(folder / "claude")},
                resume=SESSION if known else None,
                session_id=None if known else SESSION,
            )
            # When the query is over, the store has what was said.
            answers = [each async for each in query(prompt=line.strip(), options=options)]
            for message in answers:
                if isinstance(message, AssistantMessage):
                    print(message.content[0].text, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
