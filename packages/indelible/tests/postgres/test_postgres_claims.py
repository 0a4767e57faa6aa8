"""Claims and risks: what the running server keeps, read from its own settings."""

import json

import psycopg
import pytest
from typer.testing import CliRunner

import indelible
from indelible import Gravity
from indelible.backends.postgres.risks import PostgresSettings, build_claims, build_risks
from indelible.cli.main import app

SAFE = PostgresSettings(
    version="18.6",
    fsync=True,
    full_page_writes=True,
    synchronous_commit="on",
    has_standby_names=True,
    in_recovery=False,
    replicas=1,
    synchronous_replicas=1,
    isolation="read committed",
)


def test_a_plain_server_keeps_what_it_acknowledged_through_a_power_cut(url):
    with indelible.open(url) as store:
        claims = store.claims()
        assert (claims.engine, claims.durability, claims.ttl_clock) == (
            "postgresql",
            "power",
            "server",
        )
        assert claims.multi_process
        assert not claims.simulated
        assert claims.engine_version.split(".")[0].isdigit()
        (risk,) = store.risks()
        assert (risk.severity, risk.subject) == (Gravity.NOTE, "one server")


def test_a_store_with_a_clock_of_its_own_says_so(url):
    with indelible.open(url, clock=lambda: 0.0) as store:
        assert store.claims().ttl_clock == "caller"


def test_the_servers_clock_stamps_and_expires(url):
    with indelible.open(url) as store, psycopg.connect(url) as other:
        before = other.execute("SELECT clock_timestamp()").fetchone()[0]
        store.add_message("s", "user", "hi", ttl=3600)
        (entry,) = store.get_entries("s")
        after = other.execute("SELECT clock_timestamp()").fetchone()[0]
        # Stamps are whole milliseconds.
        assert before.replace(microsecond=0) <= entry.written_at <= after
        assert 3590 < store.session("s").ttl_s <= 3600


@pytest.fixture
def careless(url):
    """A URL whose connections do not wait for the disk."""
    return url + "?options=-c%20synchronous_commit%3Doff"


def test_a_server_that_does_not_wait_for_the_disk_is_warned_of(careless):
    with pytest.warns(RuntimeWarning, match="synchronous_commit"):
        store = indelible.open(careless)
    with store:
        assert store.claims().durability == "none"
        assert store.claims().warnings
        assert store.risks()[0].severity is Gravity.DANGER


def test_a_server_that_does_not_wait_for_the_disk_is_refused_if_asked_to(careless):
    with pytest.raises(indelible.UnsupportedError, match="synchronous_commit"):
        indelible.open(careless, strict=True)
    with pytest.raises(indelible.UnsupportedError, match="none"):
        indelible.open(careless, durability="process")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_doctor_looks_at_a_server(url, careless):
    well = CliRunner().invoke(app, ["doctor", url, "--json"])
    assert well.exit_code == 0, well.output
    ill = CliRunner().invoke(app, ["doctor", careless, "--json"])
    assert ill.exit_code == 1
    assert "synchronous_commit=off" in json.dumps(json.loads(ill.stdout))


@pytest.mark.parametrize(
    ("changed", "durability", "subject"),
    [
        ({}, "replicated", None),
        ({"fsync": False}, "process", "fsync=off"),
        ({"full_page_writes": False}, "process", "full_page_writes=off"),
        ({"synchronous_commit": "off"}, "none", "synchronous_commit=off"),
        ({"synchronous_commit": "local"}, "power", "synchronous_commit=local"),
        ({"synchronous_commit": "remote_write"}, "power", "synchronous_commit=remote_write"),
        ({"synchronous_commit": "remote_apply"}, "replicated", None),
        ({"has_standby_names": False}, "power", "asynchronous standbys"),
        ({"synchronous_replicas": 0}, "replicated", "no synchronous standby"),
        ({"in_recovery": True}, "replicated", "a standby"),
        ({"isolation": "serializable"}, "replicated", "default_transaction_isolation=serializable"),
    ],
)
def test_each_setting_that_can_lose_something_is_named(changed, durability, subject):
    settings = SAFE._replace(**changed)
    assert build_claims(settings, ttl_clock="server").durability == durability
    subjects = [risk.subject for risk in build_risks(settings)]
    assert (subject in subjects) if subject else subjects == []


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_writers_agree_whatever_isolation_the_role_has_by_default(url, level):
    value = level.replace(" ", "%5C%20")
    odd = f"{url}?options=-c%20default_transaction_isolation%3D{value}"
    with indelible.open(odd) as one, indelible.open(odd) as two:
        for n in range(10):
            one.add_message("s", "user", f"one {n}")
            two.add_message("s", "user", f"two {n}", key=f"k{n}")
            two.add_message("s", "user", f"two {n}", key=f"k{n}")
        one.clear("s")
        two.undo("s")
        assert len(one.get_history("s")) == 20


STRANGERS = {
    "everyone": ("GRANT CREATE ON SCHEMA indelible TO PUBLIC", "PUBLIC"),
    "a role that may create": ("GRANT CREATE ON SCHEMA indelible TO stranger", "stranger"),
    "a role that may add triggers": ("GRANT TRIGGER ON indelible.entry TO stranger", "stranger"),
    "a role that owns a table": ("ALTER TABLE indelible.entry OWNER TO stranger", "stranger"),
    "a role that owns a function": (
        "ALTER FUNCTION indelible.field OWNER TO stranger",
        "stranger",
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("who", STRANGERS)
def test_a_schema_that_others_may_write_to_is_a_danger(fresh_url, who):
    statement, role = STRANGERS[who]
    indelible.open(fresh_url).close()
    with psycopg.connect(fresh_url, autocommit=True) as owner:
        if not owner.execute("SELECT FROM pg_roles WHERE rolname = 'stranger'").fetchall():
            owner.execute("CREATE ROLE stranger")
        owner.execute("GRANT USAGE ON SCHEMA indelible TO stranger")
        owner.execute("GRANT SELECT ON ALL TABLES IN SCHEMA indelible TO stranger")
        assert CliRunner().invoke(app, ["doctor", fresh_url]).exit_code == 0
        owner.execute(statement)
    with indelible.open(fresh_url) as store:
        (risk,) = [risk for risk in store.risks() if risk.severity is Gravity.DANGER]
    assert risk.subject == f"the schema indelible is open to {role}"
    assert f"FROM {role}" in risk.remedy
    with pytest.raises(indelible.UnsupportedError, match="schema indelible"):
        indelible.open(fresh_url, strict=True)
    assert CliRunner().invoke(app, ["doctor", fresh_url]).exit_code == 1
