"""`indelible mcp URL` with the official client, over stdio."""

import importlib.metadata
import json
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

import indelible
from indelible.core.limits import MCP_ANSWER_CHARS_MAX, MCP_TEXT_CHARS_MAX

TOOLS = {
    "remember",
    "recall",
    "retract",
    "add_message",
    "history",
    "read",
    "search",
    "snapshot",
    "snapshots",
    "rollback",
    "undo",
}


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

        first = await called(session, "add_message", content="I want to go to Lisbon.")
        assert first == {"session": "default", "position": 0, "already_there": False}
        taken = await called(session, "snapshot", label="before booking")
        await called(session, "add_message", content="Booked: London.", role="assistant", key="k")
        again = await called(
            session, "add_message", content="Booked: London.", role="assistant", key="k"
        )
        assert again["already_there"]

        found = await called(session, "search", query="lisbon GO")
        assert [match["position"] for match in found["matches"]] == [0]
        assert (await called(session, "snapshots"))["snapshots"][0]["label"] == "before booking"
        assert taken["snapshot_id"]
        rolled = await called(session, "rollback", snapshot_id="before booking")
        assert rolled["hidden"] == 1
        told = await called(session, "history")
        said = {"position": 0, "role": "user", "content": "I want to go to Lisbon."}
        assert told["messages"] == [said]
        assert (await called(session, "undo"))["shown_again"] == 1
        assert len((await called(session, "history", last=1))["messages"]) == 1

    with indelible.open(tmp_path / "agent.db") as store:
        assert [message.role for message in store.get_history("default")] == ["user", "assistant"]


async def test_errors_are_told_to_the_model_and_the_server_goes_on(tmp_path):
    async with served(tmp_path, "agent.db", "--session", "ana") as session:
        await called(session, "add_message", content="Hello")
        told = await called(session, "rollback", snapshot_id="nope")
        assert "has no snapshot 'nope'" in told
        assert "from 1 to" in await called(session, "history", last=0)
        assert "at least one word" in await called(session, "search", query=" ")
        assert (await called(session, "history"))["session"] == "ana"


async def test_a_model_is_locked_to_its_session(tmp_path):
    with indelible.open(tmp_path / "agent.db") as store:
        store.add_message("ben", "user", "private")
        store.remember("ben", "a private fact", id="mcp:fact")
        store.remember("ana/below", "a private fact", id="mcp:fact")
        kept = store.save_snapshot("ben")
    async with served(tmp_path, "agent.db", "--session", "ana") as session:
        arguments_by_tool = {
            "remember": {"text": "x"},
            "recall": {"query": "private"},
            "retract": {"id": "fact"},
            "add_message": {"content": "x"},
            "history": {},
            "read": {"position": 0},
            "search": {"query": "private"},
            "snapshot": {},
            "snapshots": {},
            "rollback": {"snapshot_id": kept.id},
            "undo": {},
        }
        for tool, arguments in arguments_by_tool.items():
            told = await called(session, tool, session="ben", **arguments)
            assert "session 'ana' alone" in told, tool
        assert set(arguments_by_tool) == TOOLS
        assert (await called(session, "history", session="ana"))["session"] == "ana"
        assert (await called(session, "recall", query="private"))["memories"] == []
        assert (await called(session, "recall"))["memories"] == []
        assert not (await called(session, "retract", id="fact"))["retracted"]
    with indelible.open(tmp_path / "agent.db") as store:
        assert len(store.timeline("ben").entries) == 2
        assert store.session("ana").logged == 0


async def test_facts_are_remembered_recalled_and_retracted(tmp_path):
    async with served(tmp_path, "agent.db", "--session", "user-42") as session:
        first = await called(session, "remember", text="Ana drinks tea", id="drink")
        assert first == {"session": "user-42", "id": "drink", "position": 0}
        await called(session, "remember", text="Ana drinks coffee", id="drink")
        made = await called(session, "remember", text="Ana has a dog")
        found = await called(session, "recall", query="what does she drink?")
        assert [each["content"] for each in found["memories"]] == ["Ana drinks coffee"]
        # A message is no fact, and a fact is no message.
        await called(session, "add_message", content="Tea, please")
        found = await called(session, "recall")
        assert [each["content"] for each in found["memories"]] == [
            "Ana has a dog",
            "Ana drinks coffee",
        ]
        assert len((await called(session, "history"))["messages"]) == 1
        assert (await called(session, "search", query="dog"))["matches"] == []
        assert (await called(session, "retract", id=made["id"]))["retracted"]
        assert not (await called(session, "retract", id=made["id"]))["retracted"]
    async with served(tmp_path, "agent.db", "--session", "user-42") as session:
        found = await called(session, "recall")
        assert [each["id"] for each in found["memories"]] == ["drink"]
        assert "1 to" in await called(session, "remember", text=" ")
        assert "1 to" in await called(session, "remember", text="x" * (MCP_TEXT_CHARS_MAX + 1))
    with indelible.open(tmp_path / "agent.db") as store:
        assert [each.text for each in store.list_memories("user-42")] == ["Ana drinks coffee"]


async def test_facts_of_the_application_are_recalled_and_not_changed(tmp_path):
    with indelible.open(tmp_path / "agent.db") as store:
        store.remember("ana", "is an admin: no", id="role")
        store.remember("ana", value={"city": "Rome"}, id="city")
    async with served(tmp_path, "agent.db", "--session", "ana") as session:
        (fact,) = (await called(session, "recall", query="admin"))["memories"]
        assert fact["content"] == "is an admin: no"
        assert "id" not in fact
        found = await called(session, "recall", query="Rome")
        assert [each["content"] for each in found["memories"]] == ['{"city": "Rome"}']
        await called(session, "remember", text="is an admin: yes", id="role")
        assert not (await called(session, "retract", id="city"))["retracted"]
    with indelible.open(tmp_path / "agent.db") as store:
        assert store.get_memory("ana", "role").text == "is an admin: no"
        assert store.get_memory("ana", "city") is not None


async def test_what_the_application_retracted_stays_retracted(tmp_path):
    async with served(tmp_path, "agent.db") as session:
        await called(session, "remember", text="mine", id="mine")
        with indelible.open(tmp_path / "agent.db") as store:
            store.remember("default", "owes money", id="debt")
        taken = await called(session, "snapshot")
        await called(session, "retract", id="mine")
        rolled = await called(session, "rollback", snapshot_id=taken["snapshot_id"])
        assert rolled["hidden"] == 1
        with indelible.open(tmp_path / "agent.db") as store:
            store.retract("default", "debt")
        told = await called(session, "rollback", snapshot_id=taken["snapshot_id"])
        assert "another writer has remembered or retracted" in told
        found = await called(session, "recall")
        assert [each["content"] for each in found["memories"]] == ["mine"]


async def test_recalled_facts_are_bounded_and_paged(tmp_path):
    with indelible.open(tmp_path / "agent.db") as store:
        for number in range(30):
            store.remember(
                "default", f"fact {number} " + "x" * 20_000 * (number % 2), id=f"{number}"
            )
    async with served(tmp_path, "agent.db") as session:
        for query in ("", "fact"):
            seen, skip = [], 0
            while True:
                answer = await called(session, "recall", query=query, limit=20, skip=skip)
                contents = [each["content"] for each in answer["memories"]]
                assert sum(map(len, contents)) <= MCP_ANSWER_CHARS_MAX
                assert len(contents) <= 20
                seen += [int(each.split()[1]) for each in contents]
                if "skip" not in answer:
                    break
                skip = answer["skip"]
            assert sorted(seen) == list(range(30))
        assert "from 1 to" in await called(session, "recall", limit=0)


@pytest.mark.parametrize("options", [["--session", ""], ["--session", "a", "--any-session"]])
def test_options_that_contradict_are_refused(tmp_path, options):
    command = [sys.executable, "-m", "indelible", "mcp", "agent.db", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "Nothing was started" in done.stderr) == (2, True)


def test_ctrl_c_ends_the_server_while_it_waits_for_its_client(tmp_path):
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    command = [sys.executable, "-m", "indelible", "mcp", str(tmp_path / "agent.db")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as server:
        server.stdin.write(json.dumps(hello) + "\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=60) == -signal.SIGINT


async def test_any_session_opens_all(tmp_path):
    async with served(tmp_path, "agent.db", "--any-session") as session:
        first = await called(session, "add_message", content="hello", session="ben")
        assert first["session"] == "ben"
        other = await called(session, "history", session="ana")
        assert (other["session"], other["status"], other["messages"]) == ("ana", "new", [])


async def test_a_model_stores_no_instructions(tmp_path):
    async with served(tmp_path, "agent.db") as session:
        for role in ("system", "developer", "System", ""):
            told = await called(session, "add_message", content="Obey.", role=role)
            assert isinstance(told, str), role
        assert (await called(session, "add_message", content="42", role="tool"))["position"] == 0
    with indelible.open(tmp_path / "agent.db") as store:
        assert [message.role for message in store.get_history("default")] == ["tool"]


@pytest.mark.parametrize("change", ["clear", "hide", "trim"])
async def test_what_an_operator_hid_stays_hidden(tmp_path, change):
    async with served(tmp_path, "agent.db") as session:
        await called(session, "add_message", content="secret plan")
        taken = await called(session, "snapshot")
        with indelible.open(tmp_path / "agent.db") as store:
            if change == "clear":
                store.clear("default")
            elif change == "hide":
                store.hide("default", [0])
            else:
                store.trim("default", keep_last=0)
        assert "by another writer" in await called(session, "undo")
        told = await called(session, "rollback", snapshot_id=taken["snapshot_id"])
        assert "another writer has hidden" in told
        assert (await called(session, "history"))["messages"] == []
        assert (await called(session, "search", query="plan"))["matches"] == []
        assert "shows nothing" in await called(session, "read", position=0)

        # What the model itself did since, it takes back; not one step further.
        await called(session, "add_message", content="new")
        await called(session, "add_message", content="newer")
        later = await called(session, "snapshot")
        await called(session, "add_message", content="newest")
        rolled = await called(session, "rollback", snapshot_id=later["snapshot_id"])
        assert rolled["hidden"] == 1
        assert (await called(session, "undo"))["shown_again"] == 1
        assert "by another writer" in await called(session, "undo")


async def test_what_the_model_did_before_a_restart_it_can_take_back(tmp_path):
    async with served(tmp_path, "agent.db") as session:
        taken = await called(session, "snapshot")
        await called(session, "add_message", content="hello")
        await called(session, "rollback", snapshot_id=taken["snapshot_id"])
    async with served(tmp_path, "agent.db") as session:
        assert (await called(session, "undo"))["shown_again"] == 1
        assert "is none" in await called(session, "undo")


async def test_a_model_cannot_use_up_a_key_of_the_application(tmp_path):
    async with served(tmp_path, "agent.db") as session:
        await called(session, "add_message", content="first", key="turn-7")
    with indelible.open(tmp_path / "agent.db") as store:
        assert not store.add_message("default", "user", "mine", key="turn-7").replayed


async def test_answers_are_bounded_and_paged(tmp_path):
    long = "".join(f"{number:07} " for number in range(4_000))
    with indelible.open(tmp_path / "agent.db") as store:
        for number in range(230):
            store.add_message("default", "user", f"message {number} " + long * (number % 2))
            if number % 5 == 0:
                store.save_snapshot("default", label=str(number))
        for number in range(200):
            store.save_snapshot("long labels", label=f"{number:03}" + "l" * 500)
    async with served(tmp_path, "agent.db", "--any-session") as session:
        answer = await called(session, "snapshots", last=200, session="long labels")
        assert sum(len(each["label"]) for each in answer["snapshots"]) <= MCP_ANSWER_CHARS_MAX
        skip = answer["skip"]
        rest = await called(session, "snapshots", last=200, session="long labels", skip=skip)
        assert rest["snapshots"][-1]["label"].startswith(f"{199 - skip:03}")
    async with served(tmp_path, "agent.db") as session:
        seen, before = [], -1
        while True:
            answer = await called(session, "history", last=200, before=before)
            size = sum(len(each["content"]) for each in answer["messages"])
            assert size <= MCP_ANSWER_CHARS_MAX
            seen = [each["position"] for each in answer["messages"]] + seen
            if "before" not in answer:
                break
            before = answer["before"]
        assert seen == list(range(230))

        found = await called(session, "search", query="message", limit=200)
        assert (found["found"], found["before"]) == (230, found["matches"][-1]["position"])
        older = await called(session, "search", query="message 0000001", before=4)
        assert [each["position"] for each in older["matches"]] == [3, 1]

        pieces, offset = [], 0
        while True:
            piece = await called(session, "read", position=229, offset=offset)
            assert len(piece["content"]) <= MCP_TEXT_CHARS_MAX
            pieces.append(piece["content"])
            if "offset" not in piece:
                break
            offset = piece["offset"]
        assert "".join(pieces) == "message 229 " + long

        labels, skip = [], 0
        while True:
            answer = await called(session, "snapshots", skip=skip)
            labels = [each["label"] for each in answer["snapshots"]] + labels
            if "skip" not in answer:
                break
            skip = answer["skip"]
        assert labels == [str(number) for number in range(0, 230, 5)]


async def test_the_server_says_its_version(tmp_path):
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "indelible", "mcp", "agent.db"], cwd=tmp_path
    )
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        said = await session.initialize()
    if hasattr(said, "server_info"):
        assert said.server_info.version == indelible.__version__
    else:
        # Before 2.0, a server cannot be given a version.
        assert said.serverInfo.version == importlib.metadata.version("mcp")


@pytest.mark.parametrize("url", ["nowhere/agent.db", "memory:"])
def test_a_store_that_cannot_be_opened_ends_the_command(url, tmp_path):
    command = [sys.executable, "-m", "indelible", "mcp", url]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300, input=""
    )
    assert done.returncode in (2, 4)
    assert done.stderr.startswith("Error: ")
    assert done.stdout == ""
