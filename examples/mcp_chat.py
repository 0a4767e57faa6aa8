"""A chat that remembers through `indelible mcp`: stop it at any moment, and it goes on."""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    return json.loads(result.content[0].text)


async def said_before(client):
    told = await call(client, "history", last=200)
    return [each["content"] for each in told["messages"] if each["role"] == "user"]


async def main():
    command = ["-m", "indelible", "mcp", sys.argv[1], "--session", "ana"]
    server = StdioServerParameters(command=sys.executable, args=command)
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        print(f"You have said {len(await said_before(client))} things before.", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await call(client, "add_message", content=line.strip())
            said = await said_before(client)
            text = f"{len(said)} things so far; the first was {said[0]!r}"
            await call(client, "add_message", content=text, role="assistant")
            print(text, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
