"""indelible as a session store of the Claude Agent SDK."""

import asyncio

import pytest
from claude_agent_sdk import fork_session_via_store, get_session_messages_from_store
from claude_agent_sdk.testing import run_session_store_conformance

import indelible
from indelible.adapters.claude_agent import IndelibleSessionStore, build_session_id

SESSION = "8e6ad9b8-8a6c-4a6e-9c1f-0e7a4a3f1d11"
KEY = {"project_key": "-srv-app", "session_id": SESSION}


def entry(uuid, role, content, parent=None):
    return {
        "type": role,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": SESSION,
        "timestamp": "2026-11-15T10:00:00.000Z",
        "isSidechain": False,
        "message": {"role": role, "content": content, "id": f"m-{uuid}"},
    }


USES = [{"type": "tool_use", "id": "t-1", "name": "Read", "input": {"path": "a.txt"}}]
RESULT = [{"type": "tool_result", "tool_use_id": "t-1", "content": "hello"}]
TRANSCRIPT = [
    entry("u-1", "user", "Read a.txt"),
    entry("u-2", "assistant", USES, "u-1"),
    entry("u-3", "user", RESULT, "u-2"),
    {"type": "summary", "summary": "reading", "leafUuid": "u-3"},
    {"type": "custom-title", "customTitle": "Reading", "sessionId": SESSION},
    {"type": "strange", "uuid": "u-4", "message": "not a dict", "deep": [1, {"a": None}]},
]


async def test_it_passes_the_conformance_suite_of_the_sdk(tmp_path):
    opened = []

    def fresh():
        opened.append(indelible.open(tmp_path / f"{len(opened)}.db", durability="process"))
        return IndelibleSessionStore(opened[-1])

    await run_session_store_conformance(fresh)
    assert len(opened) > 10, "one for each clause"
    for store in opened:
        store.close()


async def test_entries_read_back_equal(any_store):
    store = IndelibleSessionStore(any_store)
    await store.append(KEY, TRANSCRIPT)
    assert await store.load(KEY) == TRANSCRIPT


async def test_a_uuid_is_there_once_in_whatever_batches_it_comes(any_store):
    store = IndelibleSessionStore(any_store)
    await store.append(KEY, TRANSCRIPT[:2])
    await store.append(KEY, TRANSCRIPT[:2])
    await store.append(KEY, [TRANSCRIPT[1], TRANSCRIPT[2], TRANSCRIPT[2]])
    assert await store.load(KEY) == TRANSCRIPT[:3]
    again = IndelibleSessionStore(any_store)
    await again.append(KEY, [*TRANSCRIPT[:3], TRANSCRIPT[5]])
    await store.append(KEY, TRANSCRIPT[:3])
    assert await store.load(KEY) == [*TRANSCRIPT[:3], TRANSCRIPT[5]]


async def test_entries_without_a_uuid_are_always_added(any_store):
    store = IndelibleSessionStore(any_store)
    for _ in range(2):
        await store.append(KEY, [TRANSCRIPT[3]])
    assert await store.load(KEY) == [TRANSCRIPT[3]] * 2


async def test_writers_that_send_the_same_at_once_store_it_once(any_store):
    stores = [IndelibleSessionStore(any_store) for _ in range(4)]
    batches = [[entry(f"u-{n}", "user", str(n)) for n in range(start, 8)] for start in range(4)]
    pairs = zip(stores, batches, strict=True)
    await asyncio.gather(*(store.append(KEY, batch) for store, batch in pairs))
    found = [each["uuid"] for each in await stores[0].load(KEY)]
    assert sorted(found) == [f"u-{n}" for n in range(8)]


async def test_the_summary_comes_with_the_append_and_follows_a_rollback(any_store):
    store = IndelibleSessionStore(any_store)
    await store.append(KEY, TRANSCRIPT[:5])
    before = await store.snapshot(KEY, "before")
    (first,) = await store.list_session_summaries(KEY["project_key"])
    await store.append(KEY, [{"type": "custom-title", "customTitle": "Another"}])
    (second,) = await store.list_session_summaries(KEY["project_key"])
    assert first["data"]["custom_title"] == "Reading"
    assert second["data"]["custom_title"] == "Another"
    await store.rollback(KEY, before.id)
    assert await store.load(KEY) == TRANSCRIPT[:5]
    (third,) = await store.list_session_summaries(KEY["project_key"])
    assert third == first
    await store.undo(KEY)
    assert len(await store.load(KEY)) == 6
    await store.rollback(KEY, "before")
    await store.append(KEY, [entry("u-9", "user", "on")])
    (fourth,) = await store.list_session_summaries(KEY["project_key"])
    assert fourth["data"]["custom_title"] == "Reading"


async def test_names_with_slashes_and_percents_stay_apart(any_store):
    store = IndelibleSessionStore(any_store)
    keys = [
        {"project_key": "a/b", "session_id": "c"},
        {"project_key": "a", "session_id": "b/c"},
        {"project_key": "a", "session_id": "b", "subpath": "c"},
        {"project_key": "a", "session_id": "b", "subpath": "c/d"},
        {"project_key": "a%2Fb", "session_id": "c"},
    ]
    for number, key in enumerate(keys):
        await store.append(key, [entry(f"u-{number}", "user", "hello")])
    for number, key in enumerate(keys):
        assert [each["uuid"] for each in await store.load(key)] == [f"u-{number}"]
    listed = await store.list_sessions("a")
    assert [each["session_id"] for each in listed] == ["b/c"]
    subkeys = await store.list_subkeys({"project_key": "a", "session_id": "b"})
    assert sorted(subkeys) == ["c", "c/d"]


async def test_indelible_understands_the_transcript(store):
    await IndelibleSessionStore(store).append(KEY, TRANSCRIPT)
    name = build_session_id(KEY)
    assert [message.role for message in store.get_history(name)][:3] == [
        "user",
        "assistant",
        "user",
    ]
    (call,) = store.get_tool_calls(name)
    assert (call.name, call.arguments, call.result) == ("Read", {"path": "a.txt"}, "hello")


async def test_what_others_wrote_into_the_session_is_no_part_of_the_transcript(store):
    transcripts = IndelibleSessionStore(store)
    await transcripts.append(KEY, TRANSCRIPT[:1])
    store.add_message(build_session_id(KEY), "user", "from elsewhere")
    await transcripts.append(KEY, TRANSCRIPT[1:2])
    assert await transcripts.load(KEY) == TRANSCRIPT[:2]


async def test_delete_erases(store):
    transcripts = IndelibleSessionStore(store)
    await transcripts.append(KEY, TRANSCRIPT)
    await transcripts.delete(KEY)
    assert store.session(build_session_id(KEY)).status == "new"
    await transcripts.append(KEY, TRANSCRIPT[:1])
    assert await transcripts.load(KEY) == TRANSCRIPT[:1]


async def test_the_functions_of_the_sdk_work_on_it(any_store):
    store = IndelibleSessionStore(any_store)
    directory = "/srv/app"
    await store.append(KEY, TRANSCRIPT[:3])
    messages = await get_session_messages_from_store(store, SESSION, directory)
    assert [message.uuid for message in messages] == ["u-1", "u-2", "u-3"]
    forked = await fork_session_via_store(store, SESSION, directory)
    copied = await store.load({**KEY, "session_id": forked.session_id})
    assert [each["message"]["content"] for each in copied if "message" in each] == [
        "Read a.txt",
        USES,
        RESULT,
    ]


async def test_an_entry_that_json_would_change_is_refused_whole(any_store):
    store = IndelibleSessionStore(any_store)
    with pytest.raises(indelible.UsageError):
        await store.append(KEY, [TRANSCRIPT[0], {"type": "x", "bad": float("nan")}])
    assert await store.load(KEY) is None
