"""Commands that look after a store."""

import json
from contextlib import closing

import apsw

import indelible


def test_verify_and_repair_close_an_open_tool_call(command, golden):
    command("verify")
    command("repair", "--dry-run")
    command("repair", code=2)
    command("repair", "--yes")
    command("repair")
    golden()


def test_a_damaged_entry_is_found_shown_and_set_aside(command, corrupt, golden):
    command("undo", "ada", "--yes")
    command("verify", code=1)
    command("history", "ada", code=1)
    command("show", "ada")
    command("repair", "--dry-run", "--json")
    command("repair", "ada", "--yes")
    command("history", "ada")
    golden()


def test_damage_reaches_other_commands_as_a_sentence_or_not_at_all(command, corrupt, golden):
    command("diff", "ada", "before-refund", code=1)
    command("rollback", "ada", "before-refund", "--yes")
    command("trim", "ada", "--keep-last", "1", "--dry-run")
    command("trim", "ada", "--keep-last", "1", "--yes")
    command("export", "all.jsonl")
    golden()


def test_reports_come_as_json(command, corrupt):
    report = json.loads(command("verify", "--json", code=1).out)
    assert not report["ok"]
    (error,) = [each for each in report["findings"] if each["severity"] == "error"]
    assert (error["session_id"], error["position"]) == ("ada", 2)
    report = json.loads(command("vacuum", "--dry-run", "--json").out)
    assert (report["entries"], report["dry_run"]) == (3, True)
    receipt = json.loads(command("forget", "bob", "--yes", "--json").out)
    assert (receipt["entries"], receipt["pending"]) == (2, False)


def test_vacuum_removes_only_what_nothing_can_reach(command, golden):
    command("vacuum", "--dry-run")
    command("vacuum", "--undo-days", "36500", code=2)
    command("vacuum", "--yes")
    command("show", "ada")
    golden()


def test_forget_erases_a_session(command, golden):
    command("fork", "bob", "copy-of-bob", "--yes")
    command("forget", "bob", code=2)
    command("forget", "bob", "--yes")
    command("forget", "bob", "--yes")
    golden()
    with indelible.open(command.folder / "agent.db") as store:
        assert store.session("bob").status == "new"


def test_forget_erases_a_damaged_session(command):
    with closing(apsw.Connection(str(command.folder / "agent.db"))) as file:
        file.execute("UPDATE session SET checksum = checksum + 1 WHERE name = 'bob'")
    command("history", "bob", code=1)
    assert "damaged" in command("forget", "bob", code=2).err
    command("forget", "bob", "--yes")
    assert "There is no session" in command("history", "bob", code=1).err


def test_a_repair_does_not_say_that_it_repaired_what_it_left(command):
    with closing(apsw.Connection(str(command.folder / "agent.db"))) as file:
        file.execute("UPDATE session SET checksum = checksum + 1 WHERE name = 'bob'")
    for line in (["repair", "--dry-run"], ["repair", "--yes"]):
        assert command(*line, code=1).out.endswith("Cannot repair 1 session.\n")


def test_forget_does_not_ask_about_a_session_that_is_not_there(command):
    done = command("forget", "nobody")
    assert done.out == "There is no session 'nobody': nothing was erased. Check the id.\n"
    assert done.err == ""


def test_trim_says_what_it_hides_even_if_that_is_damaged(command, corrupt):
    command("undo", "ada", "--yes")
    told = command("trim", "ada", "--keep-last", "1", code=2).err
    assert "Trimming session 'ada' hides 4 entries (1-4)." in told


def test_an_audit_is_shown_and_proved(command):
    assert command("audit", "log", "ada").err == "Nothing of ada was audited.\n"
    audited = {"env": {"INDELIBLE_AUDIT_KEY": "a secret of the tests"}}
    command("append", "ada", "user", "audited", **audited)
    command("clear", "ada", "--yes", **audited)
    first, second = command("audit", "log", "ada").out.splitlines()
    assert first.startswith("0  ")
    assert first.endswith("  append 1")
    assert second.endswith("  clear")
    lines = json.loads(command("audit", "log", "ada", "--json").out)
    head = command("audit", "head", "ada").out.strip()
    assert head == lines[1]["hash"]
    command("append", "ada", "user", "more", **audited)
    command("verify", "ada", "--head", head, **audited)
    command("verify", "ada", "--head", "0" * 64, code=1, **audited)
    command("verify", "--head", head, code=2, **audited)
    command("forget", "ada", "--yes", **audited)
    assert len(command("audit", "log", "ada").out.splitlines()) == 4
    command("verify", "ada", "--head", head, **audited)
    command("verify", "ada", "--head", head, code=2)
