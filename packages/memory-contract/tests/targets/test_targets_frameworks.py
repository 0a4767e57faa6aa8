"""The kit pointed at real stores of LangChain and of the OpenAI Agents SDK."""

from __future__ import annotations

import pickle
import sys
from functools import cache
from pathlib import Path

import pytest

from memory_contract import Refused, check
from memory_contract.targets import TargetError, resolve
from memory_contract.targets.langchain import from_langchain, to_langchain
from memory_contract.targets.vocabulary import Sessions

ROOT = str(Path(__file__).parents[4])
# Enough of each gate to see a store work; the kit's own tests run all of it.
SOME = (
    *("append_then_read", "batch_in_order", "clear_only_this_session", "capabilities_are_true"),
    *("reopened_store_remembers", "message_fields_survive", "json_values_survive"),
    *("append_storm", "batch_storm"),
)


def langchain(factory):
    return f"langchain:tests.support.kit.framework_factories:{factory}"


def agents(factory):
    return f"openai-agents:tests.support.kit.framework_factories:{factory}"


# Each is probed once.
resolved = cache(resolve)


def checked(target, *cases, seed=3, budget_s=3):
    """Every result that says something, by case and mode."""
    report = check(resolved(target), cases=cases or SOME, seed=seed, budget_s=budget_s)
    return {r.id.split("/")[1]: r for r in report.results if r.verdict != "NOT CLAIMED"}


def verdicts(found):
    return {name: (result.verdict, result.reason) for name, result in found.items()}


# What a factory turns out to be


@pytest.mark.parametrize(
    ("target", "reach", "flavours", "keep"),
    [
        (langchain("in_files"), "machine", (True, False), False),
        (langchain("in_sql"), "machine", (True, False), False),
        (langchain("in_sql_awaited"), "machine", (False, True), False),
        (langchain("in_memory"), "process", (True, True), True),
        (langchain("in_memory_each"), "handle", (True, True), True),
        (agents("sqlite_session"), "machine", (False, True), False),
        (agents("Forgetful"), "process", (False, True), False),
    ],
)
def test_a_factory_is_tried_before_it_is_judged(target, reach, flavours, keep):
    adapter = resolved(target)
    assert adapter.reach == reach
    assert (adapter.open is not None, adapter.open_async is not None) == flavours
    assert {side.keep for side in (adapter.open, adapter.open_async) if side} == {keep}
    assert adapter.name == target
    assert pickle.loads(pickle.dumps(adapter)) == adapter


def test_what_was_not_driven_is_told():
    (note,) = resolved(langchain("in_sql")).notes
    assert note.startswith("not driven async: ")
    (note,) = resolved(langchain("in_memory_each")).notes
    assert "does not see" in note


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("langchain:nowhere_at_all:factory", "nowhere_at_all"),
        ("langchain:tests.support.kit.framework_factories:nothing", "nothing"),
        ("openai-agents:tests.support.kit.framework_factories:no_factory", "is no factory"),
        ("openai-agents:framework_factories", "write package.module:name"),
    ],
)
def test_a_target_that_names_no_factory_is_refused(target, says):
    with pytest.raises(TargetError, match=says):
        resolve(target)


@pytest.mark.parametrize(
    ("target", "module", "package"),
    [
        (langchain("in_files"), "langchain_core", "langchain-core"),
        (agents("sqlite_session"), "agents", "openai-agents"),
    ],
)
def test_a_missing_framework_is_named(target, module, package, monkeypatch):
    hidden = [name for name in sys.modules if name.partition(".")[0] == module]
    for name in hidden:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [ROOT])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(TargetError, match=f"{package} is not installed: pip install {package}"):
        resolve(target)


# LangChain


def test_the_file_history_works_for_one_caller():
    found = checked(langchain("in_files"), *SOME[:-2])
    assert {result.verdict for result in found.values()} == {"PASS"}, verdicts(found)


@pytest.mark.exhaustive
def test_the_file_history_loses_and_breaks():
    races = ("append_storm", "batch_storm")
    left = {f"{case}[{mode}]" for case in races for mode in ("threads", "processes")}
    for seed in range(30):
        # With a big share of time, and again if need be.
        found = checked(langchain("in_files"), *races, seed=seed, budget_s=300)
        left -= {name for name, result in found.items() if result.verdict == "FAIL"}
        if not left:
            return
    raise AssertionError(f"{left} never failed")


@pytest.mark.exhaustive
def test_the_sql_history_keeps_everything():
    found = checked(langchain("in_sql_prepared"))
    assert {result.verdict for result in found.values()} == {"PASS"}, verdicts(found)


# LangChain's history in memory appends a batch message by message: threads get between them, if
# they are lucky.
NOT_IN_THREADS = "batch_storm[threads]"


def test_the_history_in_memory_is_not_copied():
    found = checked(langchain("in_memory"), *SOME, "reads_are_copies", "close_is_final")
    found.pop(NOT_IN_THREADS)
    for mode in ("blocking", "async"):
        assert found.pop(f"reads_are_copies[{mode}]").failures[0].name == "alias"
    assert {result.verdict for result in found.values()} == {"PASS"}, verdicts(found)


def test_a_history_that_is_all_that_there_is_stays():
    found = checked(langchain("in_memory_each"), *SOME, "close_is_final", "many_sessions")
    found.pop(NOT_IN_THREADS, None)
    assert {result.verdict for result in found.values()} == {"PASS"}, verdicts(found)


MESSAGES = [
    {"role": "user", "content": "hello"},
    {"role": "user", "content": "hello", "name": "Ann", "id": "m1", "metadata": {"a": [None, {}]}},
    {"role": "system", "content": ""},
    {"role": "tool", "content": "42", "tool_call_id": "call_1", "name": "add"},
    {"role": "tool", "content": "42"},
    {"role": "critic", "content": "well", "unknown": 7},
    {"role": "user", "content": [{"type": "text", "text": "what is this?"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
        ],
    },
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{broken"}}
        ],
    },
]


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_are_mapped_without_loss(message):
    assert from_langchain(to_langchain(message)) == message


def test_lost_tool_calls_are_seen():
    message = to_langchain(MESSAGES[-2])
    assert message.tool_calls == [
        {"name": "add", "args": {"a": 1}, "id": "c1", "type": "tool_call"}
    ]
    message.tool_calls = []
    assert "tool_calls" not in from_langchain(message)


@pytest.mark.parametrize("content", [b"raw", 7, {"a": 1}])
def test_what_is_no_content_is_refused(content):
    with pytest.raises(Refused):
        to_langchain({"role": "user", "content": content})


def test_what_is_no_message_is_shown_as_it_is():
    assert from_langchain({"some": "thing"}) == {"some": "thing"}


# The Agents SDK


@pytest.mark.exhaustive
def test_the_sqlite_session_keeps_what_it_claims():
    more = ("pop_from_the_end", "limit_gives_the_newest", "pop_race", "first_open_race")
    found = checked(agents("sqlite_session"), *SOME, *more)
    assert {result.verdict for result in found.values()} == {"PASS"}, verdicts(found)
    assert "pop_race[processes]" in found


@pytest.mark.exhaustive
def test_the_async_sqlite_session_works_for_one_caller():
    found = checked(agents("async_sqlite_session"), *SOME[:-2], "pop_from_the_end")
    assert {result.verdict for result in found.values()} == {"PASS"}, verdicts(found)


@pytest.mark.exhaustive
def test_the_sqlalchemy_session_works_for_one_caller():
    found = checked(agents("sqlalchemy_session"), "append_then_read")
    assert found["append_then_read[async]"].verdict == "PASS"


def test_a_session_that_forgets_is_caught():
    found = checked(agents("Forgetful"))
    assert found["append_storm[tasks]"].failures[0].name == "lost append"
    assert found["append_then_read[async]"].verdict == "PASS"


# Objects of sessions


def test_idle_objects_are_closed_when_they_are_many():
    made = []
    sessions = Sessions(lambda session: made.append(session) or session, keep=False)
    with sessions.using("first") as first:
        for number in range(100):
            with sessions.using(str(number)):
                pass
        surplus = sessions.take_surplus()
        assert first == "first"
    assert len(surplus) == 101 - 64
    assert "first" not in surplus, "somebody uses it"
    with sessions.using("99"):
        pass
    assert made.count("99") == 1
    assert set(sessions.take_all()) == {"first", *map(str, range(100))} - set(surplus)


def test_objects_that_are_not_ours_stay_open():
    sessions = Sessions(lambda session: session, keep=True)
    for number in range(100):
        with sessions.using(str(number)):
            pass
    assert sessions.take_surplus() == sessions.take_all() == []
