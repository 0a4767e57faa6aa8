"""Stores of frameworks on a real server, and faults between the two."""

from __future__ import annotations

import os
import sys

import pytest

from memory_contract import check
from memory_contract.targets import resolve
from tests.support import redis_server


@pytest.fixture
def url(monkeypatch):
    monkeypatch.setitem(os.environ, "INDELIBLE_TEST_REDIS", redis_server.emptied())
    yield os.environ["INDELIBLE_TEST_REDIS"]
    sys.modules.pop("server_factories", None)


@pytest.mark.parametrize(
    "target",
    [
        "langchain:tests.support.kit.server_factories:langchain_history",
        "claude-agent:tests.support.kit.server_factories:session_store",
    ],
)
def test_a_factory_that_takes_a_server_can_be_given_a_faulty_one(target, url):
    adapter = resolve(target)
    assert adapter.server == url
    assert adapter.reach == "machine"
    report = check(adapter, cases=["reply_lost"], seed=3, budget_s=0)
    # What was seen is the store's affair; that replies were lost on their way to it is ours.
    assert {result.verdict for result in report.results} <= {"PASS", "FAIL"}, report.results
