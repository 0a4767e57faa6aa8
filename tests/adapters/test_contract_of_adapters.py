"""Every adapter through every gate of the kit."""

import factories
import handles
import pytest

from indelible.contract import check

NAMED = [
    "langchain:factories:langchain_on_memory",
    "langchain:factories:langchain_on_sqlite",
    "openai-agents:factories:openai_on_memory",
    "openai-agents:factories:openai_on_sqlite",
]
GATES = ["sequential", "edges", "lifecycle", "concurrency"]


def assert_kept(report):
    broken = [r for r in report.results if r.verdict not in ("PASS", "NOT CLAIMED")]
    assert [(r.id, r.verdict, r.reason, r.seed) for r in broken] == []
    assert report.verdict == "PASS"


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("target", NAMED)
def test_what_the_kit_has_a_target_for_keeps_the_contract(target, gate):
    assert_kept(check(target, gates=[gate], seed=3, budget_s=0))


@pytest.mark.parametrize("gate", GATES)
def test_a_session_on_redis_keeps_the_contract(redis_url, gate):
    assert_kept(check("openai-agents:factories:openai_on_redis", gates=[gate], seed=3, budget_s=0))


@pytest.mark.parametrize("engine", [factories.memory, factories.sqlite])
@pytest.mark.parametrize("framework", [handles.llama, handles.pydantic_ai, handles.claude])
def test_what_speaks_in_its_own_words_keeps_the_contract(framework, engine):
    assert_kept(check(framework(engine), seed=3, budget_s=0))
