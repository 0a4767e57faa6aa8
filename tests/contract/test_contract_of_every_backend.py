"""Every backend of indelible through every gate of the kit, as anybody would check it."""

from dataclasses import replace
from itertools import product

import pytest

import indelible
from memory_contract import check
from memory_contract.cases import programs
from memory_contract.gates import GATES
from memory_contract.targets import resolve
from tests.support.stores import ENGINES, SERVERS

# Gates whose cases make one call after the other.
ONE_BY_ONE = {"sequential", "edges", "lifecycle"}
# How long programs are drawn on a server. `test_state_machine.py` draws others there; engines in
# this process have time for all short ones.
SERVER_PROGRAMS_S = 3.0


def build_target(url, gate):
    """The store on an engine; on a server, cases that make one call at a time are async only.

    The blocking clients of servers are generated from the async ones.
    """
    if url.startswith(("redis", "postgres")) and gate in ONE_BY_ONE:
        return replace(resolve(url), open=None)
    return url


def build_runs():
    """Each engine with each gate. For one caller, conformance compares all engines with memory."""
    for engine, gate in product([*ENGINES, "cluster"], GATES):
        repeats = engine in {*SERVERS, "cluster"} and gate in {*ONE_BY_ONE, "recall"}
        marks = [pytest.mark.exhaustive] if repeats else []
        yield pytest.param(engine, gate, marks=marks)


@pytest.mark.parametrize(("url", "gate"), list(build_runs()), indirect=["url"])
def test_the_contract_is_kept(url, gate, monkeypatch):
    if url.startswith(("redis", "postgres")):
        monkeypatch.setattr(programs, "PROGRAMS_S", SERVER_PROGRAMS_S)
    report = check(build_target(url, gate), gates=[gate], seed=3, budget_s=0)
    broken = [r for r in report.results if r.verdict not in ("PASS", "NOT CLAIMED")]
    assert [(r.id, r.verdict, r.reason, r.seed) for r in broken] == []
    # Who has no disk and no server has no bad days of that kind.
    assert report.exit_code == 0 or report.judge_gate(gate) == "NOT CLAIMED"


def test_the_kit_forgets_what_it_wrote_and_touches_nothing_else(server_url):
    url = server_url
    with indelible.open(url) as store:
        store.add_message("mine", "user", "do not touch")
    check(url, cases=["append_then_read", "similar_session_ids", "new_life_is_clean"], seed=1)
    with indelible.open(url) as store:
        assert store.list_sessions().ids == ["mine"]
        assert store.get_history("mine")[0].content == "do not touch"
        assert everything_on(url) == {"mine"}


def everything_on(url):
    """The sessions of every namespace, as the engine itself has them."""
    if url.startswith("postgres"):
        import psycopg

        with psycopg.connect(url) as connection:
            rows = connection.execute("SELECT * FROM indelible.session").fetchall()
        return {"mine"} if len(rows) == 1 else {str(row) for row in rows}
    import redis

    kind = redis.RedisCluster if "cluster" in url else redis.Redis
    plain = url.replace("redis+cluster", "redis").split(",")[0]
    with kind.from_url(plain) as client:
        keys = {key.decode() for key in client.scan_iter("indelible:{*}h")}
    return {key.partition("{")[2].rpartition("}")[0].rpartition(":")[2] for key in keys}
