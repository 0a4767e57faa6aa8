"""What a server can lose, by the settings that it really runs with."""

import json
import subprocess
import sys

import pytest

import indelible
from indelible import Gravity, Landed, MemoryStoreBackendError, UnsupportedError
from indelible.backends.redis.risks import (
    build_settings,
    compute_durability,
    list_risks,
    refuse_weaker,
)
from memory_contract.faults.servers.ports import reserve_port


def risks(store):
    return {risk.subject: risk.severity for risk in store.risks()}


@pytest.mark.parametrize(
    ("options", "durability", "found"),
    [
        ({}, "power", {}),
        ({"appendfsync": "everysec"}, "process", {"appendfsync everysec": Gravity.WARNING}),
        (
            {"no_appendfsync_on_rewrite": "yes"},
            "process",
            {"no-appendfsync-on-rewrite yes": Gravity.WARNING},
        ),
    ],
)
def test_claims_follow_the_settings(start, options, durability, found):
    server = start(**options)
    with indelible.open(server.url, strict=True) as store:
        assert store.claims().durability == durability
        assert risks(store) == found
        assert len(store.claims().warnings) == len(found)


def test_claims_follow_a_setting_that_changes_while_the_store_is_open(start):
    server = start()
    with indelible.open(server.url, durability="power") as store, server.client() as client:
        client.config_set("appendfsync", "everysec")
        assert store.claims().durability == "process"
        client.config_set("appendonly", "no")
        assert store.claims().durability == "none"
        assert risks(store) == {"appendonly no": Gravity.DANGER}


def test_more_than_a_server_gives_is_refused(start):
    server = start(appendfsync="everysec")
    with pytest.raises(UnsupportedError, match="gives process"):
        indelible.open(server.url, durability="power")


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-ttl"])
def test_a_server_that_may_drop_sessions_warns_or_is_refused(start, policy):
    server = start(maxmemory_policy=policy)
    with (
        pytest.warns(RuntimeWarning, match=f"maxmemory-policy {policy}.*in silence"),
        indelible.open(server.url) as store,
    ):
        assert risks(store) == {f"maxmemory-policy {policy}": Gravity.DANGER}
    with pytest.raises(UnsupportedError, match="strict=True"):
        indelible.open(server.url, strict=True)


async def test_the_async_store_warns_of_the_same(start):
    server = start(maxmemory_policy="allkeys-lfu")
    with pytest.warns(RuntimeWarning, match="allkeys-lfu"):
        store = await indelible.open_async(server.url)
    await store.close()
    with pytest.raises(UnsupportedError):
        await indelible.open_async(server.url, strict=True)


def test_a_server_that_keeps_nothing_is_a_danger_unless_that_was_asked_for(start):
    server = start(appendonly="no")
    with pytest.warns(RuntimeWarning, match="appendonly no"), indelible.open(server.url) as store:
        assert store.claims().durability == "none"
    with indelible.open(server.url, durability="none", strict=True) as store:
        assert risks(store) == {"appendonly no": Gravity.NOTE}
        assert store.forget("s").left == ()


def test_forget_says_what_the_server_keeps_on_disk(start):
    server = start(save="3600 1")
    with indelible.open(server.url) as store:
        store.add_message("s", "user", "a secret")
        receipt = store.forget("s")
    assert not receipt.pending
    assert len(receipt.left) == 2
    assert any("append-only file" in place for place in receipt.left)
    assert any("RDB" in place for place in receipt.left)


INFO = {"redis_version": "7.0.15", "aof_enabled": "1", "role": "master"}
CONFIG = {
    "appendonly": "no",
    "appendfsync": "always",
    "save": "",
    "min-replicas-to-write": "0",
    "no-appendfsync-on-rewrite": "no",
}


def settings(info=None, **config):
    words = {name.replace("_", "-"): value for name, value in config.items()}
    return build_settings({**INFO, **(info or {})}, {**CONFIG, **words})


def test_replicas_without_a_minimum_are_a_warning():
    (risk,) = list_risks([settings({"connected_slaves": "1"})], demanded=None, simulated=False)
    assert risk.subject == "replicas without min-replicas-to-write"
    found = settings({"connected_slaves": "1"}, min_replicas_to_write="1")
    (risk,) = list_risks([found], demanded=None, simulated=False)
    assert risk.severity is Gravity.NOTE


def test_the_weakest_server_of_a_cluster_decides():
    every = [settings(), settings(appendfsync="everysec"), settings()]
    assert compute_durability(every, demanded=None, simulated=False) == "process"
    assert (
        compute_durability([*every, settings({"aof_enabled": "0"})], demanded=None, simulated=False)
        == "none"
    )


def test_a_server_that_hides_its_settings_is_not_trusted_with_more():
    hidden = settings(appendfsync=None, save=None, min_replicas_to_write=None)
    assert compute_durability([hidden], demanded=None, simulated=False) == "process"
    subjects = [risk.subject for risk in list_risks([hidden], demanded=None, simulated=False)]
    assert "CONFIG GET is refused" in subjects


def test_a_server_that_says_nothing_of_itself_is_not_accused_of_anything(start):
    server = start()
    with server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "ann", "on", ">pw", "~indelible:*", "+@all", "-info", "-config"
        )
    url = server.url.replace("redis://", "redis://ann:pw@")
    with indelible.open(url, strict=True) as store:
        store.add_message("s", "user", "hi")
        assert store.claims().durability == "none"
        assert risks(store) == {"INFO is refused": Gravity.WARNING}
        assert store.list_sessions().ids == ["s"]
        store.forget("s")


def test_a_user_who_may_not_run_every_command_is_refused_before_anything_is_half_done(start):
    server = start()
    with indelible.open(server.url) as store, server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "ann", "on", ">pw", "~indelible:*", "+@all", "-rpush", "-zrem"
        )
        with pytest.raises(MemoryStoreBackendError, match="RPUSH, ZREM") as caught:
            indelible.open(server.url.replace("redis://", "redis://ann:pw@"))
        assert caught.value.code == "NOPERM"
        assert caught.value.landed is Landed.NO
        assert store.list_sessions().ids == []


def test_replicated_without_waitaof_needs_a_server_that_always_syncs():
    demanded = indelible.Durability.REPLICATED
    old = settings({"connected_slaves": "1"})
    assert compute_durability([old], demanded=demanded, simulated=False) == "replicated"
    lazy = settings({"connected_slaves": "1"}, appendfsync="everysec")
    with pytest.raises(UnsupportedError):
        refuse_weaker([lazy], demanded=demanded, simulated=False, shown="x")


def doctor(url, timeout="30"):
    done = subprocess.run(
        [sys.executable, "-m", "indelible", "doctor", url, "--json", "--timeout", timeout],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()


def test_the_doctor_looks_at_a_running_server(start):
    server = start(maxmemory_policy="allkeys-lru", appendfsync="everysec")
    code, found = doctor(server.url)
    assert code == 1
    assert [risk["severity"] for risk in found["risks"]] == ["danger", "warning"]
    assert found["claims"]["durability"] == "process"
    with server.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("appendfsync", "always")
    assert doctor(server.url) == (0, {"ok": True, "claims": found["claims"] | {
        "durability": "power", "warnings": []}, "risks": []})  # fmt: skip


def test_the_doctor_says_that_nobody_is_there():
    code, said = doctor(f"redis://:s3cret@127.0.0.1:{reserve_port()}", timeout="1")
    assert code == 4
    assert "cannot be reached" in said
    assert "s3cret" not in said
