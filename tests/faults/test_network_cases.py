"""Cases between a store and its server that cannot do their work say so, and accuse nobody."""

import pytest

from memory_contract.adapter import Adapter
from memory_contract.cases import servers
from memory_contract.contract_run import select
from memory_contract.faults.servers.managed import ServerMissing
from memory_contract.runner import StoreUnderTest, list_modes, run_case
from tests.support import redis_server
from tests.support.server_goldfish import RedisLog, adapter_on


class OpenDeaf:
    """Opens a store on its own server, whatever it is told."""

    def __init__(self, url):
        self.url = url

    def __call__(self, workspace, *, server=None):
        return RedisLog(self.url, workspace.name)


class OpenPicky(OpenDeaf):
    """Opens a store where it was made for, and nowhere else."""

    def __call__(self, workspace, *, server=None):
        if server is not None:
            raise RuntimeError("not my server")
        return RedisLog(self.url, workspace.name)


def said_of(adapter, name, mode="blocking"):
    subject = StoreUnderTest(adapter)
    try:
        (case,) = select(cases=[name])
        known = dict(list_modes(case, subject))[mode]
        result = known or run_case(case, mode, subject, seed=1)
    finally:
        subject.close()
    return result.verdict, result.reason


@pytest.fixture
def url():
    return redis_server.emptied()


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (None, "names no server"),
        ("redis+cluster://127.0.0.1:1,127.0.0.1:2", "one server, without TLS"),
        ("rediss://127.0.0.1:1", "one server, without TLS"),
    ],
)
def test_where_no_proxy_can_stand_nothing_is_claimed(url, server, words):
    adapter = Adapter(open=OpenDeaf(url), server=server)
    verdict, reason = said_of(adapter, "reply_lost")
    assert verdict == "NOT CLAIMED"
    assert words in reason


def test_a_store_that_stays_with_its_own_server_proves_nothing(url):
    assert said_of(Adapter(open=OpenDeaf(url), server=url), "reply_lost") == (
        "VACUOUS",
        "no fault was made",
    )


def test_a_server_that_is_not_installed_is_not_run(url, monkeypatch):
    def missing(_):
        raise ServerMissing("there is no such server here")

    monkeypatch.setattr(servers, "start_managed", missing)
    verdict = said_of(adapter_on(RedisLog, url), "server_emptied")
    assert verdict == ("NOT RUN", "there is no such server here")


def test_a_store_that_wants_more_than_an_empty_server_is_not_accused(url):
    adapter = Adapter(open=OpenPicky(url), server=url)
    verdict, reason = said_of(adapter, "server_emptied")
    assert verdict == "NOT CLAIMED"
    assert "not my server" in reason


def test_a_store_that_claims_no_durability_may_lose_it_with_its_server(url):
    adapter = Adapter(open=OpenDeaf(url), server=url)
    assert said_of(adapter, "server_restart", "processes")[0] == "NOT CLAIMED"
