"""What one framework wrote, read through every other: texts, roles, tool calls, results, times."""

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from agents.models.fake_id import FAKE_RESPONSES_ID
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from llama_index.core.base.llms import types as llama
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

import indelible
from indelible.adapters.claude_agent import IndelibleSessionStore, build_session_id
from indelible.adapters.langchain import IndelibleChatMessageHistory
from indelible.adapters.llama_index import IndelibleChatStore
from indelible.adapters.openai_agents import IndelibleSession
from indelible.adapters.pydantic_ai import IndelibleMessageHistory

KEY = {"project_key": "app", "session_id": "8e6ad9b8"}
# All frameworks use the session that the Claude Agent SDK's key names.
SESSION = build_session_id(KEY)
APPENDED = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)
MADE = datetime(2025, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)

SYSTEM, USER, LOOK, DONE = "Be kind.", "Lisbon, please.", "I look.", "Booked; it is sunny."
BOOK, WEATHER = {"to": "Lisboa ☀", "seats": [1, {"row": None}]}, {}
SEAT, SKY = "seat 7", "sunny"

# What a reader must find. A name is None where the framework's results have none.
CONVERSATION = [
    ("system", SYSTEM),
    ("user", USER),
    ("assistant", LOOK),
    ("call", "c-1", "book", BOOK),
    ("call", "c-2", "weather", WEATHER),
    ("result", "c-1", "book", SEAT),
    ("result", "c-2", "weather", SKY),
    ("assistant", DONE),
]


# Writers


async def write_plain(store):
    calls = [
        {"id": "c-1", "type": "function", "function": _function("book", BOOK)},
        {"id": "c-2", "type": "function", "function": _function("weather", WEATHER)},
    ]
    store.add_message(SESSION, "system", SYSTEM)
    store.add_message(SESSION, "user", USER)
    store.add_messages(
        SESSION,
        [
            {"role": "assistant", "content": LOOK, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c-1", "content": SEAT},
            {"role": "tool", "tool_call_id": "c-2", "content": SKY},
            {"role": "assistant", "content": DONE},
        ],
    )


def _function(name, arguments):
    return {"name": name, "arguments": json.dumps(arguments)}


async def write_langchain(store):
    calls = [
        {"id": "c-1", "name": "book", "args": BOOK},
        {"id": "c-2", "name": "weather", "args": WEATHER},
    ]
    IndelibleChatMessageHistory(SESSION, store).add_messages(
        [
            SystemMessage(SYSTEM),
            HumanMessage([{"type": "text", "text": USER}]),
            AIMessage(LOOK, tool_calls=calls),
            ToolMessage(SEAT, tool_call_id="c-1"),
            ToolMessage([{"type": "text", "text": SKY}], tool_call_id="c-2", name="weather"),
            AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": DONE}]),
        ]
    )


async def write_openai(store):
    def said(text):
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {"type": "message", "id": FAKE_RESPONSES_ID, "role": "assistant", "content": content}

    def called(call_id, name, arguments):
        item = {"call_id": call_id, "name": name, "arguments": json.dumps(arguments)}
        return {"type": "function_call", **item}

    await IndelibleSession(SESSION, store).add_items(
        [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": [{"type": "input_text", "text": USER}]},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
            said(LOOK),
            called("c-1", "book", BOOK),
            called("c-2", "weather", WEATHER),
            {"type": "function_call_output", "call_id": "c-1", "output": SEAT},
            {
                "type": "function_call_output",
                "call_id": "c-2",
                "output": [{"type": "input_text", "text": SKY}],
            },
            said(DONE),
        ]
    )


async def write_claude(store):
    uses = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": LOOK},
        {"type": "tool_use", "id": "c-1", "name": "book", "input": BOOK},
        {"type": "tool_use", "id": "c-2", "name": "weather", "input": WEATHER},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "c-1", "content": SEAT},
        {"type": "tool_result", "tool_use_id": "c-2", "content": [{"type": "text", "text": SKY}]},
    ]
    said = [
        ("user", USER),
        ("assistant", uses),
        ("user", results),
        ("assistant", [{"type": "text", "text": DONE}]),
    ]
    entries = [
        {
            "type": role,
            "uuid": f"u-{number}",
            "timestamp": MADE.isoformat().replace("+00:00", "Z"),
            "message": {"role": role, "content": content},
        }
        for number, (role, content) in enumerate(said)
    ]
    titled = {"type": "custom-title", "customTitle": "A trip", "sessionId": KEY["session_id"]}
    await IndelibleSessionStore(store).append(KEY, [titled, *entries])


async def write_llama(store):
    calls = [
        {"id": "c-1", "type": "function", "function": _function("book", BOOK)},
        {"id": "c-2", "type": "function", "function": _function("weather", WEATHER)},
    ]
    messages = [
        llama.ChatMessage(role="system", content=SYSTEM),
        llama.ChatMessage(role="user", content=USER),
        llama.ChatMessage(role="assistant", content=LOOK, additional_kwargs={"tool_calls": calls}),
        *_llama_results(),
    ]
    for message in messages:
        IndelibleChatStore(store).add_message(SESSION, message)


async def write_llama_blocks(store):
    if not hasattr(llama, "ToolCallBlock"):
        pytest.skip("this version of LlamaIndex has no blocks for tool calls")
    blocks = [
        llama.TextBlock(text=LOOK),
        llama.ToolCallBlock(tool_call_id="c-1", tool_name="book", tool_kwargs=BOOK),
        llama.ToolCallBlock(tool_call_id="c-2", tool_name="weather", tool_kwargs="{}"),
    ]
    messages = [
        llama.ChatMessage(role="system", content=SYSTEM),
        llama.ChatMessage(role="user", content=USER),
        llama.ChatMessage(role="assistant", blocks=blocks),
        *_llama_results(),
    ]
    for message in messages:
        IndelibleChatStore(store).add_message(SESSION, message)


def _llama_results():
    named = {"tool_call_id": "c-2", "name": "weather"}
    return [
        llama.ChatMessage(role="tool", content=SEAT, additional_kwargs={"tool_call_id": "c-1"}),
        llama.ChatMessage(role="tool", content=SKY, additional_kwargs=named),
        llama.ChatMessage(role="assistant", content=DONE),
    ]


async def write_pydantic_ai(store):
    calls = [
        ToolCallPart("book", json.dumps(BOOK), "c-1"),
        ToolCallPart("weather", WEATHER, "c-2"),
    ]
    results = [
        ToolReturnPart("book", SEAT, "c-1", timestamp=MADE),
        ToolReturnPart("weather", SKY, "c-2", timestamp=MADE),
    ]
    IndelibleMessageHistory(SESSION, store).save(
        [
            ModelRequest([SystemPromptPart(SYSTEM, timestamp=MADE)]),
            ModelRequest([UserPromptPart(USER, timestamp=MADE)]),
            ModelResponse([ThinkingPart("hm"), TextPart(LOOK), *calls], timestamp=MADE),
            ModelRequest(results),
            ModelResponse([TextPart(DONE)], timestamp=MADE),
        ]
    )


WRITERS = {
    "plain": write_plain,
    "langchain": write_langchain,
    "openai": write_openai,
    "claude": write_claude,
    "llama": write_llama,
    "llama_blocks": write_llama_blocks,
    "pydantic_ai": write_pydantic_ai,
}
# Whose messages carry a time of their own.
WITH_TIMES = ("claude", "pydantic_ai")


# Readers: what they find, and at which times


async def read_langchain(store):
    roles = {"human": "user", "ai": "assistant", "system": "system"}
    found = []
    for message in IndelibleChatMessageHistory(SESSION, store).messages:
        if isinstance(message, ToolMessage):
            text = _text(message.content)
            found.append(("result", message.tool_call_id, message.name, text))
            continue
        if message.content:
            found.append((roles[message.type], _text(message.content)))
        calls = getattr(message, "tool_calls", ())
        found += [("call", call["id"], call["name"], call["args"]) for call in calls]
        assert not getattr(message, "invalid_tool_calls", ())
    return found, set()


def _text(content):
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content if "text" in block)


async def read_openai(store):
    found = []
    for item in await IndelibleSession(SESSION, store).get_items():
        if "role" in item:
            found.append((item["role"], _text(item["content"])))
        elif item["type"] == "function_call":
            arguments = json.loads(item["arguments"])
            found.append(("call", item["call_id"], item["name"], arguments))
        elif item["type"] == "function_call_output":
            found.append(("result", item["call_id"], None, _text(item["output"])))
    return found, set()


async def read_claude(store):
    found, times, parent = [], set(), None
    for entry in await IndelibleSessionStore(store).load(KEY):
        if entry["type"] == "custom-title":
            continue
        times.add(datetime.fromisoformat(entry["timestamp"]))
        if "parentUuid" in entry:
            assert entry["parentUuid"] == parent
        parent = entry["uuid"]
        if entry["type"] == "system":
            found.append(("system", entry["content"]))
            continue
        role, content = entry["message"]["role"], entry["message"]["content"]
        assert role == entry["type"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["type"] == "text":
                found.append((role, block["text"]))
            elif block["type"] == "tool_use":
                found.append(("call", block["id"], block["name"], block["input"]))
            elif block["type"] == "tool_result":
                result = block["tool_use_id"], None, _text(block["content"])
                found.append(("result", *result))
    return found, times


async def read_llama(store):
    found = []
    for message in IndelibleChatStore(store).get_messages(SESSION):
        more = message.additional_kwargs
        if message.role.value == "tool":
            call_id, name = more["tool_call_id"], more.get("name")
            found.append(("result", call_id, name, message.content))
            continue
        if message.content:
            found.append((message.role.value, message.content))
        for block in message.blocks:
            if getattr(block, "block_type", "") == "tool_call":
                given = block.tool_kwargs
                given = json.loads(given) if isinstance(given, str) else given
                found.append(("call", block.tool_call_id, block.tool_name, given))
        for call in more.get("tool_calls", ()):
            function = call["function"]
            arguments = json.loads(function["arguments"])
            found.append(("call", call["id"], function["name"], arguments))
    return found, set()


async def read_pydantic_ai(store):
    found, times = [], set()
    kinds = {"system-prompt": "system", "user-prompt": "user", "text": "assistant"}
    for message in IndelibleMessageHistory(SESSION, store).load():
        for part in message.parts:
            times.add(message.timestamp if message.kind == "response" else part.timestamp)
            if part.part_kind in kinds:
                found.append((kinds[part.part_kind], part.content))
            elif part.part_kind == "tool-call":
                found.append(("call", part.tool_call_id, part.tool_name, part.args_as_dict()))
            elif part.part_kind == "tool-return":
                found.append(("result", part.tool_call_id, part.tool_name, part.content))
    return found, times


READERS = {
    "langchain": read_langchain,
    "openai": read_openai,
    "claude": read_claude,
    "llama": read_llama,
    "pydantic_ai": read_pydantic_ai,
}
# Whose results do not name the tool.
WITHOUT_NAMES = ("openai", "claude")


@pytest.fixture
def store(url):
    """A store whose appends are all made at one known time."""
    with indelible.open(url, clock=APPENDED.timestamp) as opened:
        yield opened


def conversation(writer, *, names=True):
    """What is to be found of a writer's messages."""
    found = CONVERSATION if writer != "claude" else CONVERSATION[1:]
    if names:
        return found
    return [(*each[:2], None, each[3]) if each[0] == "result" else each for each in found]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
async def test_a_conversation_survives(store, writer, reader):
    await WRITERS[writer](store)
    found, times = await READERS[reader](store)
    own = writer.removesuffix("_blocks") == reader
    if own:
        # In its own form exactly, which names the tool of a result or does not.
        found = [(*each[:2], None, each[3]) if each[0] == "result" else each for each in found]
    assert found == conversation(writer, names=not own and reader not in WITHOUT_NAMES)
    if reader in WITH_TIMES:
        assert times == {MADE if writer in WITH_TIMES else APPENDED}


@pytest.mark.parametrize("writer", WRITERS)
async def test_the_store_itself_gives_texts_and_objects(store, writer):
    await WRITERS[writer](store)
    assert store.load_memory(SESSION) == [
        {"human": USER, "ai": LOOK},
        {"human": None, "ai": DONE},
    ]
    records = store.get_tool_calls(SESSION)
    assert [(each.call_id, each.name, each.arguments) for each in records] == [
        ("c-1", "book", BOOK),
        ("c-2", "weather", WEATHER),
    ]
    assert [each.status for each in records] == ["done", "done"]


@pytest.mark.parametrize("writer", WRITERS)
def test_the_commands_show_texts_and_no_blocks(tmp_path, writer):
    path = tmp_path / "agent.db"
    with indelible.open(path, durability="process") as store:
        asyncio.run(WRITERS[writer](store))
    for command in ("show", "history"):
        run = [sys.executable, "-m", "indelible", command, SESSION, "--url", str(path)]
        done = subprocess.run(run, capture_output=True, text=True, check=True)
        assert LOOK in done.stdout
        assert "output_text" not in done.stdout
        assert "tool_use" not in done.stdout
        assert "block_type" not in done.stdout


async def test_a_transcript_goes_on_with_what_another_framework_wrote(store):
    """The parents of later entries are there in each load, and nothing is added twice."""
    await write_langchain(store)
    transcripts = IndelibleSessionStore(store)
    before = await transcripts.load(KEY)
    more = {
        "type": "user",
        "uuid": "u-1",
        "parentUuid": before[-1]["uuid"],
        "timestamp": "2026-03-01T13:00:00.000Z",
        "message": {"role": "user", "content": "And a hotel."},
    }
    await transcripts.append(KEY, [*before, more])
    assert await transcripts.load(KEY) == [*before, more]
    assert await IndelibleSessionStore(store).load(KEY) == [*before, more]


async def test_a_place_in_the_list_of_llama_index_is_that_of_its_own_list(store):
    """Two results in one stored message are two messages to LlamaIndex, and go together."""
    await write_pydantic_ai(store)
    listed = IndelibleChatStore(store)
    assert [message.content for message in listed.get_messages(SESSION)][-3:] == [SEAT, SKY, DONE]
    assert listed.delete_message(SESSION, 5).content == DONE
    assert [message.content for message in listed.get_messages(SESSION)][-2:] == [SEAT, SKY]


def test_arguments_that_are_no_object_are_kept_as_text(store):
    call = {"id": "c-1", "type": "function", "function": {"name": "book", "arguments": '{"to": '}}
    store.add_messages(SESSION, [{"role": "assistant", "content": None, "tool_calls": [call]}])
    (record,) = store.get_tool_calls(SESSION)
    assert record.arguments == '{"to": '
    (message,) = IndelibleChatMessageHistory(SESSION, store).messages
    (invalid,) = message.invalid_tool_calls
    assert (invalid["id"], invalid["name"], invalid["args"]) == ("c-1", "book", '{"to": ')
    (response,) = IndelibleMessageHistory(SESSION, store).load()
    assert response.parts[0].args == '{"to": '


def test_what_was_stored_before_arguments_were_parsed_reads_alike(store):
    """Messages of earlier versions: the arguments of OpenAI's items were text."""
    item = {"type": "function_call", "call_id": "c-1", "name": "book", "arguments": '{"to": "X"}'}
    call = {"id": "c-1", "name": "book", "arguments": '{"to": "X"}'}
    stored = {"form": item, "shared": {}}
    store.add_messages(
        SESSION,
        [indelible.ChatMessage(role="assistant", tool_calls=[call], openai_agents=stored)],
    )
    (message,) = IndelibleChatMessageHistory(SESSION, store).messages
    assert message.tool_calls[0]["args"] == {"to": "X"}
    assert store.get_tool_calls(SESSION)[0].arguments == {"to": "X"}
