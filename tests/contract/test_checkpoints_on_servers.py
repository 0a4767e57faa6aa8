"""Checkpoints on servers that lose replies: writes of tasks are there once, prunes take nothing."""

import pytest

from memory_contract import Adapter, check
from tests.support import postgres_server, redis_server, server_goldfish

CASES = ("lost_reply_in_pending_writes", "lost_reply_in_prune")
SERVERS = {"Redis": redis_server.emptied, "Postgres": postgres_server.fresh_database}


def expect_passed(adapter):
    report = check(adapter, cases=CASES, seed=5, budget_s=0)
    said = {(result.case, result.verdict, result.reason) for result in report.results}
    assert said == {(case, "PASS", "") for case in CASES}


@pytest.mark.parametrize("server", SERVERS)
def test_a_right_store_is_caught_by_no_case(server):
    (kind,) = (each for each in server_goldfish.CHECKPOINTS if each.__name__.startswith(server))
    expect_passed(server_goldfish.adapter_on(kind, SERVERS[server]()))


# PostgreSQL and SQLite perform its operations by the same handlers.
@pytest.mark.parametrize(
    "server", ["Redis", pytest.param("Postgres", marks=pytest.mark.exhaustive)]
)
def test_our_checkpointer_keeps_it(server):
    opener = "tests.support.saver_factories:saver"
    expect_passed(Adapter(open=opener, server=SERVERS[server]()))
