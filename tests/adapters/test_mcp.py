"""`indelible mcp URL` with the official client, over stdio."""

import json
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

import indelible

TOOLS = {"remember", "history", "search", "snapshot", "snapshots", "rollback", "undo"}


@asynccontextmanager
async def served(folder, *arguments):
    command = ["-m", "indelible", "mcp", *arguments]
    parameters = StdioServerParameters(command=sys.executable, args=command, cwd=folder)
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


async def called(client, tool, /, **arguments):
    result = await client.call_tool(tool, arguments)
    text = "".join(part.text for part in result.content)
    return text if _is_error(result) else json.loads(text)


def _is_error(result):
    # Its name until 2.0.
    return getattr(result, "is_error", False) or getattr(result, "isError", False)


async def test_memory_as_tools(tmp_path):
    async with served(tmp_path, "agent.db") as session:
        offered = (await session.list_tools()).tools
        assert {tool.name for tool in offered} == TOOLS
        assert all(tool.description for tool in offered)

        first = await called(session, "remember", content="I want to go to Lisbon.")
        assert first == {"session": "default", "position": 0, "already_there": False}
        taken = await called(session, "snapshot", label="before booking")
        await called(session, "remember", content="Booked: London.", role="assistant", key="k")
        again = await called(
            session, "remember", content="Booked: London.", role="assistant", key="k"
        )
        assert again["already_there"]

        found = await called(session, "search", query="lisbon GO")
        assert [match["position"] for match in found["matches"]] == [0]
        assert (await called(session, "snapshots"))["snapshots"][0]["label"] == "before booking"
        rolled = await called(session, "rollback", snapshot_id=taken["snapshot_id"])
        assert rolled["hidden"] == 1
        told = await called(session, "history")
        assert told["messages"] == [{"role": "user", "content": "I want to go to Lisbon."}]
        assert (await called(session, "undo"))["shown_again"] == 1
        assert len((await called(session, "history", last=1))["messages"]) == 1
        other = await called(session, "history", session="ben")
        assert (other["status"], other["messages"]) == ("new", [])

    with indelible.open(tmp_path / "agent.db") as store:
        assert [message.role for message in store.get_history("default")] == ["user", "assistant"]


async def test_errors_are_told_to_the_model_and_the_server_goes_on(tmp_path):
    async with served(tmp_path, "agent.db", "--session", "ana") as session:
        await called(session, "remember", content="Hello")
        told = await called(session, "rollback", snapshot_id="nope")
        assert "has no snapshot 'nope'" in told
        assert "from 1 to" in await called(session, "history", last=0)
        assert "at least one word" in await called(session, "search", query=" ")
        assert (await called(session, "history"))["session"] == "ana"


@pytest.mark.parametrize("url", ["nowhere/agent.db", "memory:"])
def test_a_store_that_cannot_be_opened_ends_the_command(url, tmp_path):
    command = [sys.executable, "-m", "indelible", "mcp", url]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300, input=""
    )
    assert done.returncode in (2, 4)
    assert done.stderr.startswith("Error: ")
    assert done.stdout == ""
