"""Commands that append, or change what a session shows."""

import json

import pytest

import indelible
from indelible import ToolCall, ToolResult
from tests.support.prepared_store import SNAPSHOT


def test_append_adds_a_message_and_begins_a_store(command, golden):
    command("append", "eve", "user", "hello", "--url", "new.db")
    command("append", "eve", "assistant", "-", "--url", "new.db", stdin="Two\nlines.")
    command("append", "ada", "user", "Once.", "--key", "turn-7")
    command("append", "ada", "user", "Once.", "--key", "turn-7")
    command("append", "ada", "user", "Else.", "--key", "turn-7", code=1)
    command("append", "ada", "user", "Late.", "--expected", "1.1.1.1", code=1)
    command("append", "ada", "", "No role.", code=2)
    command("append", "ada", "usr", "No such role.", code=2)
    command("append", "ada", "user", "-", stdin=b"\xff", code=2)
    golden()
    with indelible.open(command.folder / "new.db") as begun:
        assert [each.content for each in begun.get_history("eve")] == ["hello", "Two\nlines."]


def test_append_takes_roles_of_frameworks_and_refuses_misspelled_ones(command, store):
    for role in ("ipython", "chat", "critic"):
        command("append", "eve", role, "hi")
    assert [each.role for each in store.get_history("eve")] == ["ipython", "chat", "critic"]
    for role, meant in {"asistant": "assistant", "User": "user", "sytem": "system"}.items():
        told = command("append", "eve", role, "hi", code=2).err
        assert f"did you mean {meant}? Nothing was changed." in told


def test_append_gives_a_receipt_as_json(command, store):
    receipt = json.loads(command("append", "bob", "user", "hi", "--ttl", "60", "--json").out)
    assert receipt["positions"] == [2]
    assert receipt["replayed"] is False
    assert store.session("bob").ttl_s is not None


def test_append_refuses_a_key_whose_entry_was_hidden(command, store):
    append = ("append", "bob", "user", "hi", "--key", "turn-7")
    command(*append)
    store.clear("bob")
    said = command(*append, code=1).err
    assert "Was there already, at position 2, and was hidden since: nothing was written." in said
    assert "A new --key adds it again" in said
    assert store.get_history("bob") == []


def test_snapshot_writes_down_what_shows(command, golden, store):
    command("snapshot", "bob", "--label", "two entries")
    command("snapshot", "nobody", code=1)
    command("snapshots", "bob")
    golden()
    assert store.session("nobody").status == "new"


def test_rollback_shows_what_a_snapshot_holds(command, golden):
    command("rollback", "ada", SNAPSHOT, "--dry-run", "--json")
    command("rollback", "ada", SNAPSHOT, code=2)
    command("rollback", "ada", SNAPSHOT, "--yes", "--key", "once")
    command("rollback", "ada", SNAPSHOT, "--yes", "--key", "once")
    command("rollback", "ada", "unknown", "--yes", code=1)
    golden()


def test_undo_goes_back_one_change_at_a_time(command, golden):
    command("undo", "ada", code=2)
    command("undo", "ada", "--yes")
    command("undo", "ada", "--yes", "--json")
    command("undo", "ada", "--yes", code=2)
    command("undo", "nobody", "--yes", code=1)
    golden()


def test_redo_makes_an_undone_change_again(command, golden):
    command("redo", "ada", "--yes", code=2)
    command("undo", "ada", "--yes")
    command("redo", "ada", code=2)
    command("redo", "ada", "--yes")
    command("redo", "nobody", "--yes", code=1)
    golden()


def test_a_snapshot_is_named_by_its_label_or_as_the_latest(command, store):
    store.save_snapshot("ada", label="by hand")
    command("clear", "ada", "--yes")
    command("rollback", "ada", "by hand", "--yes")
    assert store.get_history("ada")
    command("clear", "ada", "--yes")
    command("rollback", "ada", "latest", "--yes")
    assert store.get_history("ada")


def test_trim_and_clear_let_go(command, golden):
    command("trim", "bob", "--keep-last", "1", "--before", "2", code=2)
    command("trim", "ada", "--before", "9", "--dry-run")
    command("trim", "ada", "--before", "9", code=2)
    command("trim", "ada", "--before", "9", "--yes")
    command("trim", "ada", "--before", "9", "--yes")
    command("clear", "bob", "--dry-run")
    command("clear", "bob", "--yes")
    command("clear", "nobody", "--yes", code=1)
    golden()


def test_fork_copies_a_state(command, golden):
    command("fork", "ada", "copy", code=2)
    command("fork", "ada", "copy", "--yes")
    command("fork", "ada", "copy", "--yes", code=1)
    command("fork", "ada", "earlier", "--at", SNAPSHOT, "--yes")
    command("fork", "nobody", "other", "--yes", code=1)
    golden()


@pytest.mark.parametrize(
    "rule", [{"keep_last": n} for n in range(7)] + [{"before": 4}, {"max_tokens": 80}]
)
def test_a_dry_run_of_trim_says_what_trim_does(rule):
    with indelible.open("memory:") as store:
        store.add_message("s", "system", "Be brief.")
        for turn in range(3):
            store.save_context("s", f"question {turn}", "answer " * 5)
            store.add_entries("s", [ToolCall(call_id=f"c{turn}", name="look")])
        store.add_entries("s", [ToolResult(call_id="c0", content="found")])
        said = store.trim("s", **rule, dry_run=True)
        assert said.dry_run
        assert said.dropped == store.trim("s", **rule).dropped


def test_stdin_loses_the_newline_that_its_maker_put_at_the_end(command, store):
    for sent in ("plain", "echoed\n", "two\n\n", "windows\r\n"):
        command("append", "eve", "user", "-", stdin=sent)
    said = [each.content for each in store.get_history("eve")]
    assert said == ["plain", "echoed", "two\n", "windows"]


def test_stdin_is_read_up_to_the_limit_of_an_entry(command, store):
    before = store.session("ada").logged
    assert (
        "Stdin has more than"
        in command("append", "ada", "user", "-", stdin=b"y" * 2**26, code=2).err
    )
    assert store.session("ada").logged == before


@pytest.mark.parametrize("seconds", ["-5", "0", "nan", "inf", "1e12"])
@pytest.mark.parametrize("line", [["append", "eve", "user", "hi"], ["remember", "eve", "tea"]])
def test_a_ttl_is_refused_in_the_words_of_the_command_line(command, line, seconds):
    told = command(*line, "--ttl", seconds, "--url", "new.db", code=2).err
    assert "Invalid value for '--ttl': Input should be" in told
    assert "NEVER" not in told
    assert not (command.folder / "new.db").exists()
