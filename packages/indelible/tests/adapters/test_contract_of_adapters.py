"""Every adapter through every gate of the kit."""

from dataclasses import replace

import pytest

from memory_contract import check
from memory_contract.targets import resolve
from tests.support.adapters import engines, handles


def repeats(value):
    """A run that differs from another one only by the engine."""
    return pytest.param(value, marks=pytest.mark.exhaustive)


NAMED = [
    repeats("langchain:tests.support.adapters.langchain_factories:on_memory"),
    "langchain:tests.support.adapters.langchain_factories:on_sqlite",
    repeats("openai-agents:tests.support.adapters.openai_factories:on_memory"),
    "openai-agents:tests.support.adapters.openai_factories:on_sqlite",
]
ON_REDIS = "openai-agents:tests.support.adapters.openai_factories:on_redis"


def assert_kept(target, **options):
    report = check(target, seed=3, budget_s=0, **options)
    broken = [r for r in report.results if r.verdict not in ("PASS", "NOT CLAIMED")]
    assert [(r.id, r.verdict, r.reason, r.seed) for r in broken] == []
    assert report.verdict == "PASS"
    return report


def in_one_process(target):
    """The target, claiming less than it can: each other process would import its framework anew."""
    return replace(resolve(target), reach="process")


@pytest.mark.parametrize("target", NAMED)
def test_what_the_kit_has_a_target_for_keeps_the_contract(target):
    assert_kept(in_one_process(target))


@pytest.mark.exhaustive
def test_a_session_on_redis_keeps_the_contract(redis_url):
    assert_kept(in_one_process(ON_REDIS))


@pytest.mark.parametrize(
    "target", ["langchain:tests.support.adapters.langchain_factories:on_sqlite", ON_REDIS]
)
def test_processes_that_append_at_once_lose_nothing(target, redis_url):
    report = assert_kept(target, cases=["append_storm"])
    assert any("processes" in result.id for result in report.results)


@pytest.mark.parametrize("engine", [repeats(engines.memory), engines.sqlite])
@pytest.mark.parametrize("framework", [handles.llama, handles.pydantic_ai, handles.claude])
def test_what_speaks_in_its_own_words_keeps_the_contract(framework, engine):
    assert_kept(framework(engine))
