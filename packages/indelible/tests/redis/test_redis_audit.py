"""Audited changes on Redis: what is known of a change whose reply was lost."""

import itertools

import pytest

import indelible
from indelible import OutcomeUnknownError
from indelible.backends.redis import requests
from indelible.core.deadline import Deadline
from indelible.core.operations import Audited, Quarantine, ReadQuarantine
from memory_contract.faults.proxy import Proxy, ProxyFault

AUDIT = {"audit": True, "audit_key": b"a secret of the tests"}
# An audited append calls two scripts: one reads the newest line, one writes.
WRITE = 2


@pytest.fixture
def proxied(url):
    """A store behind a proxy, of which the server knows all scripts."""
    with Proxy(url) as proxy, indelible.open(proxy.url, **AUDIT) as store:
        for text in ("first", "second"):
            store.add_message("s", "user", text, key=text)
        store.add_message("s", "user", "second", key="second")
        yield proxy, store


def describe(store):
    texts = [message.content for message in store.get_history("s")]
    return texts, [line.change for line in store.audit_log("s")]


def test_an_append_whose_reply_was_lost_is_stored_once_with_one_line(proxied):
    proxy, store = proxied
    proxy.arm(ProxyFault("cut after", "EVALSHA", WRITE))
    receipt = store.add_message("s", "user", "third")
    assert receipt.positions == range(2, 3)
    assert len(proxy.struck) == 1
    assert describe(store) == (["first", "second", "third"], ["append"] * 3)
    assert store.verify("s").ok


def test_an_append_whose_reply_was_lost_stays_unknown_if_it_cannot_be_looked_up(proxied):
    proxy, store = proxied
    # The resent write is refused, since its own line is there; then the server refuses everything.
    refusal = ProxyFault("answer", "EVALSHA", WRITE + 2, times=0, reply="OOM no memory is left")
    proxy.arm(ProxyFault("cut after", "EVALSHA", WRITE), refusal)
    with pytest.raises(OutcomeUnknownError) as lost:
        store.add_message("s", "user", "third")
    assert lost.value.landed == "maybe"
    proxy.heal()
    assert store.add_message("s", "user", "third", key=lost.value.key).replayed
    assert describe(store) == (["first", "second", "third"], ["append"] * 3)


def test_a_fork_is_made_once_with_one_line_whichever_reply_is_lost(proxied):
    proxy, store = proxied
    store.fork("s", "first")
    for nth in itertools.count(1):
        struck = len(proxy.struck)
        proxy.arm(ProxyFault("cut after", "EVALSHA", nth))
        store.fork("s", f"fork-{nth}")
        if len(proxy.struck) == struck:
            break
        assert len(store.get_history(f"fork-{nth}")) == 2
        assert [line.change for line in store.audit_log(f"fork-{nth}")] == ["create"]
        proxy.heal()
    assert nth > 4


def test_a_quarantine_whose_reply_was_lost_adds_one_line(proxied):
    proxy, store = proxied
    quarantine = Quarantine("s", ((1, "a reason", b"bytes"),))
    proxy.arm(ProxyFault("cut after", "EVAL"))
    store._backend.perform(Audited(quarantine, "s", "", "quarantine", 1, AUDIT["audit_key"]))
    assert len(proxy.struck) == 1
    assert describe(store)[1] == ["append", "append", "quarantine"]
    assert store._backend.perform(ReadQuarantine("s")) == quarantine.entries


def test_all_requests_of_an_audited_call_share_a_deadline(url, monkeypatch):
    with indelible.open(url, **AUDIT) as store:
        begun = []

        def begin(seconds):
            begun.append(seconds)
            return Deadline(seconds)

        monkeypatch.setattr(requests, "Deadline", begin)
        store.add_message("s", "user", "one", key="k")
        store.add_message("s", "user", "one", key="k")
        assert len(begun) == 2


def test_a_damaged_view_hides_no_audit_and_stops_no_forget(url, client):
    with indelible.open(url, **AUDIT) as store:
        store.add_message("s", "user", "one")
        client.delete("indelible:{:s}v")
        client.set("indelible:{:s}v", "no hash")
        assert len(store.audit_log("s")) == 1
        assert store.forget("s").entries == 1
        assert [line.change for line in store.audit_log("s")][-1] == "forget"
