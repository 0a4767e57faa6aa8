"""The kit pointed at stores of frameworks that hold every session.

Those of LangGraph, LlamaIndex and the Claude Agent SDK; `test_targets_beside.py` has the others.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from memory_contract import Adapter, Refused, check
from memory_contract.targets import FRAMEWORKS, TargetError, resolve
from memory_contract.targets.llama_index import from_llama, to_llama
from tests.support.kit import store_factories

FACTORIES = {
    "langgraph-saver": "saver",
    "langgraph-store": "store",
    "claude-agent": "session_store",
    "llama-index": "chat_store",
    "llama-index-vectors": "index",
}
# Kept in memory as they are: whoever changes a message that they handed over changes the history.
ALIASED = {"langgraph-store", "claude-agent", "llama-index"}
SOME = (
    *("append_then_read", "batch_in_order", "capabilities_are_true", "reads_are_copies"),
    *("clear_only_this_session", "sessions_are_listed", "limit_gives_the_newest"),
    *("message_fields_survive", "refused_append_leaves_nothing", "short_programs"),
)


def target(framework, factory=None):
    return f"{framework}:tests.support.kit.store_factories:{factory or FACTORIES[framework]}"


def checked(store, *cases):
    """Every result that says something, by case and mode.

    More than one process would be true of some. But each would import a framework anew.
    """
    adapter = resolve(store)
    if adapter.reach == "machine":
        adapter = replace(adapter, reach="process")
    report = check(adapter, cases=cases or SOME, seed=3, budget_s=0)
    return {r.id.split("/")[1]: r for r in report.results if r.verdict != "NOT CLAIMED"}


def verdicts(found):
    return {name: (result.verdict, result.reason) for name, result in found.items()}


def test_every_framework_has_a_factory_here():
    elsewhere = {"langchain", "openai-agents", "adk", "strands", "agno", "mem0", "crewai"}
    assert set(FACTORIES) | elsewhere == set(FRAMEWORKS)


@pytest.mark.parametrize("framework", FACTORIES)
def test_a_store_keeps_what_its_interface_offers(framework):
    found = checked(target(framework))
    aliased = {name: found.pop(name) for name in list(found) if name.startswith("reads_are_")}
    assert {result.verdict for result in found.values()} == {"PASS"}, verdicts(found)
    expected = "FAIL" if framework in ALIASED else "PASS"
    assert {result.verdict for result in aliased.values()} == {expected}, verdicts(aliased)


@pytest.mark.parametrize(
    ("framework", "factory", "case"),
    [
        ("langgraph-saver", "forgetful_saver", "short_programs"),
        ("langgraph-store", "forgetful_store", "short_programs"),
        ("llama-index", "forgetful_chat_store", "short_programs"),
        ("llama-index-vectors", "forgetful_index", "retracted_is_not_found"),
        ("claude-agent", "forgetful_session_store", "append_storm"),
    ],
)
def test_a_store_that_forgets_is_caught(framework, factory, case):
    found = checked(target(framework, factory), case)
    assert {result.verdict for result in found.values()} == {"FAIL"}, verdicts(found)


# What a factory turns out to be


@pytest.mark.parametrize(
    ("framework", "factory", "reach", "flavours", "keep"),
    [
        ("langgraph-saver", "saver", "handle", (True, True), True),
        ("langgraph-saver", "opened_saver", "handle", (True, True), True),
        ("langgraph-saver", "awaited_saver", "handle", (False, True), True),
        ("langgraph-saver", "coroutine_saver", "handle", (False, True), True),
        ("llama-index", "chat_store", "handle", (True, False), True),
        ("claude-agent", "session_store", "handle", (False, True), True),
    ],
)
def test_a_factory_is_tried_before_it_is_judged(framework, factory, reach, flavours, keep):
    adapter = resolve(target(framework, factory))
    assert adapter.reach == reach
    assert (adapter.open is not None, adapter.open_async is not None) == flavours
    assert {side.keep for side in (adapter.open, adapter.open_async) if side} == {keep}
    assert pickle.loads(pickle.dumps(adapter)) == adapter


@pytest.mark.parametrize(("keep", "closed"), [(True, 0), (False, 1)])
def test_a_store_that_others_have_too_stays_open(keep, closed, tmp_path):
    opener = resolve(target("llama-index", "chat_store_to_close")).open
    store_factories.CLOSED.clear()
    handle = replace(opener, keep=keep)(tmp_path)
    handle.close()
    assert len(store_factories.CLOSED) == closed


def test_what_a_store_leaves_out_is_not_claimed():
    adapter = resolve(target("claude-agent", "forgetful_session_store"))
    assert adapter.capabilities == {"fields"}
    assert "not implemented, and not claimed: clear, list" in adapter.notes


@pytest.mark.parametrize("framework", FACTORIES)
def test_what_is_no_store_is_refused(framework):
    with pytest.raises(TargetError, match="nothing_of_the_kind gave int: expected a "):
        resolve(target(framework, "nothing_of_the_kind"))
    with pytest.raises(TargetError, match=r"is no factory: .* needs one of \(workspace\)"):
        resolve(target(framework, "no_factory"))


@pytest.mark.parametrize(
    ("framework", "package"),
    [("adk", "google-adk"), ("strands", "strands-agents"), ("agno", "agno"), ("crewai", "crewai")],
)
def test_a_missing_framework_is_named(framework, package):
    with pytest.raises(TargetError, match=f"{package} is not installed: pip install {package}"):
        resolve(target(framework, "nothing_of_the_kind"))


# One message at a time


def test_a_store_without_batches_has_none_to_tear():
    adapter = resolve(target("llama-index"))
    assert not adapter.batches
    report = check(adapter, cases=["batch_storm"], seed=3, budget_s=0)
    assert {result.verdict for result in report.results} == {"NOT CLAIMED"}
    claiming_more = replace(resolve(target("llama-index", "slow_chat_store")), batches=True)
    found = checked(claiming_more, "batch_storm")["batch_storm[tasks]"]
    assert found.verdict == "FAIL", "its messages go in one by one"


@pytest.mark.parametrize(("batches", "verdict"), [(False, "PASS"), (True, "FAIL")])
def test_half_a_refused_batch_is_a_fault_only_of_a_store_that_takes_batches(batches, verdict):
    adapter = Adapter(
        open="tests.support.kit.store_factories:OneByOne", reach="handle", batches=batches
    )
    (found,) = checked(adapter, "refused_append_leaves_nothing").values()
    assert found.verdict == verdict, found.reason


# Messages


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
        {"role": "user", "content": [{"type": "text", "text": "what is this?"}], "name": "Ann"},
        {"role": "tool", "content": "42", "tool_call_id": "c1", "unknown": {"a": [None, {}]}},
    ],
)
def test_messages_of_llama_index_are_mapped_without_loss(message):
    assert from_llama(to_llama(message)) == message


@pytest.mark.parametrize(
    "message", [{"role": "critic", "content": "well"}, {"role": "user", "content": b"raw"}]
)
def test_what_is_no_message_of_llama_index_is_refused(message):
    with pytest.raises(Refused):
        to_llama(message)


# Servers


def test_a_factory_that_takes_a_server_names_its_own():
    with pytest.raises(TargetError, match="give `server` a default"):
        resolve(target("langgraph-saver", "on_a_server"))
