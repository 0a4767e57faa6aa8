"""What `--write` allows: each change is previewed, confirmed, and refused on an old page."""

import getpass
import os
import re
import subprocess
import sys

import pytest

import indelible
from indelible import ABSENT, Status
from indelible.inspector.security import Access
from tests.support.inspector import Inspector, form_fields


def visible(store, session="s"):
    return [message.content for message in store.get_history(session)]


@pytest.fixture
def changed(store, writer):
    """A session that was rolled back."""
    store.save_snapshot("s", label="good")
    store.add_message("s", "user", "two")
    store.rollback_to_snapshot("s", "good")
    return writer


def test_an_undo_is_previewed_and_done(store, changed):
    preview = changed.get("/change", do="undo", id="s").text
    assert "brings back <b>1 entry</b>" in preview
    assert "is-added" in preview
    assert visible(store) == ["one"]
    answer = changed.confirm(do="undo", id="s")
    assert (answer.status, answer.getheader("Location")) == (303, "/session?id=s&done=undo")
    assert "Undone" in changed.get(answer.getheader("Location")).text
    assert visible(store) == ["one", "two"]
    changed.confirm(do="redo", id="s")
    assert visible(store) == ["one"]


def test_a_form_that_is_sent_twice_is_one_change(store, changed):
    store.hide("s", [0])
    form = form_fields(changed.get("/change", do="undo", id="s").text)
    assert changed.post("/change", id="s", **form).status == 303
    assert changed.post("/change", id="s", **form).status == 303
    assert visible(store) == ["one"]


@pytest.mark.parametrize(
    "fields", [{"do": "snapshot", "label": "x"}, {"do": "forget", "sure": "yes"}]
)
def test_a_form_that_is_sent_twice_leads_to_the_same_page(store, writer, fields):
    form = fields | form_fields(writer.get("/change", id="s", **fields).text)
    first, second = (writer.post("/change", id="s", **form) for _ in range(2))
    assert (first.status, second.status) == (303, 303)
    assert first.getheader("Location") == second.getheader("Location")
    assert len(store.list_snapshots("s")) == (fields["do"] == "snapshot")


def test_a_form_that_was_filled_in_anew_is_another_change(store, writer):
    form = form_fields(writer.get("/change", id="s", do="snapshot").text)
    for label in ("one", "two"):
        assert writer.post("/change", id="s", **form, label=label).status == 303
    assert [each.label for each in store.list_snapshots("s")] == ["one", "two"]


def test_a_rollback(store, changed):
    store.undo("s")
    preview = changed.get("/change", do="rollback", id="s", snapshot="good").text
    assert "hides <b>1 entry</b>" in preview
    assert changed.confirm(do="rollback", id="s", snapshot="good").status == 303
    assert visible(store) == ["one"]


def test_a_snapshot_with_a_label(store, writer):
    assert writer.confirm(do="snapshot", id="s", label=" before the refund ").status == 303
    assert writer.confirm(do="snapshot", id="s").status == 303
    assert [each.label for each in store.list_snapshots("s")] == ["before the refund", None]


def test_a_fork_of_now_and_of_a_snapshot(store, writer):
    store.save_snapshot("s", label="first")
    store.add_message("s", "user", "two")
    answer = writer.confirm(do="fork", id="s", new_id="a/b c")
    assert answer.getheader("Location") == "/session?id=a%2Fb+c&done=fork"
    writer.confirm(do="fork", id="s", new_id="older", snapshot="first")
    assert (visible(store, "a/b c"), visible(store, "older")) == (["one", "two"], ["one"])
    assert writer.confirm(do="fork", id="s", new_id="older").status == 409


def test_a_memory_is_retracted(store, writer):
    store.remember("facts", "tea", id="drink", expected=ABSENT)
    assert "tea" in writer.get("/change", do="retract", id="facts", memory="drink").text
    assert writer.confirm(do="retract", id="facts", memory="drink").status == 303
    assert store.get_memory("facts", "drink") is None
    assert writer.get("/change", do="retract", id="facts", memory="drink").status == 400


def test_a_session_is_erased_only_if_the_box_is_ticked(store, writer):
    assert writer.confirm(do="forget", id="s").status == 400
    assert visible(store) == ["one"]
    answer = writer.confirm(do="forget", id="s", sure="yes")
    assert (answer.status, answer.getheader("Location")) == (303, "/?done=forget")
    assert "erased" in writer.get("/?done=forget").text
    assert store.session("s").status is Status.NEW


@pytest.mark.parametrize(
    "fields",
    [
        {"do": "undo"},
        {"do": "rollback", "snapshot": "good"},
        {"do": "snapshot", "label": "late"},
        {"do": "fork", "new_id": "copy"},
        {"do": "forget", "sure": "yes"},
    ],
    ids=lambda fields: fields["do"],
)
def test_nothing_is_done_from_an_old_page(store, changed, fields):
    form = form_fields(changed.get("/change", id="s", **fields).text)
    store.add_message("s", "user", "meanwhile")
    answer = changed.post("/change", id="s", **{**fields, **form})
    assert answer.status == 409
    assert "Nothing was changed" in answer.text
    assert visible(store) == ["one", "meanwhile"]
    assert len(store.list_snapshots("s")) == 1
    assert store.list_sessions().ids == ["s"]


def test_a_memory_that_was_replaced_meanwhile_is_not_retracted(store, writer):
    store.remember("facts", "tea", id="drink")
    form = form_fields(writer.get("/change", do="retract", id="facts", memory="drink").text)
    store.remember("facts", "coffee", id="drink")
    assert writer.post("/change", id="facts", memory="drink", **form).status == 409
    for expected in ("", "x", "-1"):
        fields = {**form, "expected": expected}
        assert writer.post("/change", id="facts", memory="drink", **fields).status == 400
    assert store.get_memory("facts", "drink").text == "coffee"


def test_what_cannot_be_done_says_so(writer):
    assert writer.get("/change", do="undo", id="s").status == 400
    assert writer.get("/change", do="undo").status == 400
    assert writer.get("/change", do="rollback", id="s", snapshot="none").status == 404
    assert writer.post("/change", do="undo", id="s").status == 400
    for do in ("undo", "fork", "forget", "snapshot"):
        assert writer.get("/change", do=do, id="nobody").status == 404


def test_a_change_by_the_command_is_audited_if_there_is_a_key(store, url):
    """As every other command does it."""
    store.add_message("s", "user", "one")
    key = "a secret of the tests"
    command = [sys.executable, "-m", "indelible", "inspect", url, "--write", "--no-open"]
    env = {**os.environ, "INDELIBLE_AUDIT_KEY": key}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as running:
        try:
            port, path = re.search(r":(\d+)(/\S+)", running.stdout.readline()).groups()
            client = Inspector(Access(int(port)), int(port))
            entered = client.request("GET", path)
            client.cookie = {"Cookie": entered.getheader("Set-Cookie").partition(";")[0]}
            preview = client.get("/change", do="snapshot", id="s").text
            assert client.post("/change", id="s", **form_fields(preview)).status == 303
        finally:
            running.terminate()
    (line,) = store.audit_log("s")
    assert (line.actor, line.change) == (getpass.getuser(), "save snapshot")
    with indelible.open(url, audit=True, audit_key=key.encode()) as audited:
        assert audited.verify("s").ok
