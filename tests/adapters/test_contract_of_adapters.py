"""Every adapter through every gate of the kit."""

import engines
import handles
import pytest

from indelible.contract import check

NAMED = [
    "langchain:langchain_factories:on_memory",
    "langchain:langchain_factories:on_sqlite",
    "openai-agents:openai_factories:on_memory",
    "openai-agents:openai_factories:on_sqlite",
]


def assert_kept(target):
    report = check(target, seed=3, budget_s=0)
    broken = [r for r in report.results if r.verdict not in ("PASS", "NOT CLAIMED")]
    assert [(r.id, r.verdict, r.reason, r.seed) for r in broken] == []
    assert report.verdict == "PASS"


@pytest.mark.parametrize("target", NAMED)
def test_what_the_kit_has_a_target_for_keeps_the_contract(target):
    assert_kept(target)


def test_a_session_on_redis_keeps_the_contract(redis_url):
    assert_kept("openai-agents:openai_factories:on_redis")


@pytest.mark.parametrize("engine", [engines.memory, engines.sqlite])
@pytest.mark.parametrize("framework", [handles.llama, handles.pydantic_ai, handles.claude])
def test_what_speaks_in_its_own_words_keeps_the_contract(framework, engine):
    assert_kept(framework(engine))
