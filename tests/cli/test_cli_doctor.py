"""The doctor, as a person calls it."""

import json

import pytest

import indelible


def test_the_doctor_says_what_an_engine_can_lose(command, golden):
    command("doctor")
    command("doctor", "agent.db", "--json")
    command("doctor", "missing.db", code=4)
    command("doctor", "memory:", code=2)
    golden()


DANGEROUS = """
from pathlib import Path
from indelible.backends.sqlite import risks
mounts = Path("mountinfo")
mounts.write_text("1 1 0:1 / / rw - nfs4 server:/agents rw")
risks.MOUNTS = mounts
from indelible.cli.main import run
run()
"""


def test_the_doctor_ends_with_1_when_it_finds_a_danger(command, golden):
    command("doctor", "agent.db", python=("-c", DANGEROUS), code=1)
    golden()


@pytest.mark.parametrize("named", [("doctor", "agent.db"), ("doctor", "--url", "agent.db")])
def test_the_store_may_be_named_in_either_way(command, named):
    done = command(*named, "--json", env={"INDELIBLE_URL": ""})
    assert json.loads(done.out)["claims"]["engine"] == "sqlite"


def test_the_doctor_warns_of_sessions_that_are_mostly_out_of_reach(command):
    long_ago = {"clock": lambda: 1_000_000_000.0}
    with indelible.open(command.folder / "agent.db", **long_ago) as store:
        store.save_context("old", "hello", "hello")
        store.clear("old")
    done = command("doctor")
    assert "warning: session 'old'" in done.out
    assert done.out.endswith("Found 0 dangers, 1 warning.\n")
