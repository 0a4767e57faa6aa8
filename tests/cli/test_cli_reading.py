"""Commands that look and change nothing."""

import json
import shlex

from langgraph.checkpoint.base import empty_checkpoint

import indelible
from indelible.adapters.langgraph import IndelibleSaver
from tests.support.prepared_store import SNAPSHOT


def test_sessions_lists_what_is_there(command, golden):
    command("sessions")
    command("sessions", "--prefix", "a", "--json")
    command("sessions", "--limit", "1")
    golden()


def test_sessions_are_found_by_metadata_status_and_dates(command, golden):
    with indelible.open(command.folder / "agent.db") as store:
        store.set_metadata("ada", {"team": "support", "score": 3, "code": "3"})
        store.set_metadata("bob", {"team": "sales", "score": 5})
    command("sessions", "--where", "metadata.team=support")
    command("sessions", "--where", "metadata.score>=3", "--order", "-id")
    command("sessions", "--where", "metadata.score=3", "--where", 'metadata.code="3"')
    command("sessions", "--where", "metadata.team!=support", "--status", "active")
    command("sessions", "--where", "last_activity<2001-01-01")
    command("sessions", "--status", "expired")
    command("sessions", "--status", "expired", "--status", "active")
    command("sessions", "--where", "colour=red", code=2)
    command("sessions", "--where", "nothing", code=2)
    command("sessions", "--where", "last_activity<yesterday", code=2)
    command("sessions", "--where", "entries=1", "--where", "entries=2", code=2)
    command("sessions", "--order", "size", code=2)
    command("sessions", "--cursor", "x", code=2)
    golden()


def test_the_next_page_of_sessions_is_a_command_away(command):
    first = command("sessions", "--limit", "1", "--order", "id", "--json")
    page = json.loads(first.out)
    assert [each["session_id"] for each in page["sessions"]] == ["ada"]
    proposed = shlex.split(first.err.partition("There are more: indelible ")[2])
    again = command(*proposed, "--json")
    rest = json.loads(again.out)
    assert [each["session_id"] for each in rest["sessions"]] == ["bob"]
    assert rest["cursor"] is None


def test_sessions_fit_a_narrow_terminal(command):
    lines = command("sessions", env={"COLUMNS": "40"}).out.splitlines()
    assert [line.split() for line in lines] == [
        ["session", "status", "active", "(UTC)"],
        ["bob", "active", "2001-01-02", "09:03"],
        ["ada", "active", "2001-01-02", "09:02"],
    ]
    assert all(len(line) <= 40 for line in lines)


def test_show_draws_what_shows_and_what_is_hidden(command, golden):
    command("show", "ada")
    command("show", "bob")
    command("show", "ada", "--last", "2")
    command("show", "nobody", code=1)
    golden()


def test_show_prints_whole_contents(command, golden):
    command("show", "ada", "--full", "--last", "2")
    golden()


def test_show_fits_a_narrow_terminal(command, golden):
    command("show", "ada", env={"COLUMNS": "40"})
    golden()


def test_json_of_the_newest_entries(command):
    timeline = json.loads(command("show", "ada", "--last", "2", "--json").out)
    assert [each["entry"]["position"] for each in timeline["entries"]] == [7, 8]
    assert timeline["hidden"] == [[1, 8]]


def test_history_prints_messages(command, golden):
    command("history", "ada")
    command("history", "bob", "--last", "1", "--json")
    command("history", "ada", "--max-tokens", "60")
    command("history", "ada", "--namespace", "elsewhere", code=1)
    golden()


def test_snapshots_and_diff_compare_states(command, golden):
    command("snapshots", "ada")
    command("snapshots", "bob")
    command("diff", "ada", SNAPSHOT)
    command("diff", "ada", SNAPSHOT, SNAPSHOT)
    golden()


def test_claims_say_what_is_promised(command, golden):
    command("claims")
    golden()


def test_json_is_one_document_with_everything(command):
    timeline = json.loads(command("show", "ada", "--json").out)
    assert [each["visible"] for each in timeline["entries"]] == [True, *[False] * 7, True]
    assert timeline["undo"]["change"] == "trim"
    assert timeline["entries"][0]["entry"]["written_at"] == "2001-01-01T09:00:00Z"
    (snapshot,) = json.loads(command("snapshots", "ada", "--json").out)
    assert (snapshot["id"], snapshot["entries"]) == (SNAPSHOT, 5)
    diff = json.loads(command("diff", "ada", SNAPSHOT, "--json").out)
    assert [each["position"] for each in diff["removed"]] == [1, 2, 3, 4]
    assert json.loads(command("claims", "--json").out)["durability"] == "power"


def test_an_expired_session_is_told_from_one_that_never_was(command, store):
    store.add_message("gone", "user", "hello", ttl=0.001)
    while store.session("gone").status != "expired":
        pass
    assert "it expired" in command("history", "gone", code=1).err


def test_history_of_a_session_that_shows_nothing_says_where_it_is(command, store):
    store.clear("bob")
    note = "No messages show; 2 entries are hidden: indelible show bob\n"
    assert command("history", "bob") == (0, "", note)
    assert command("history", "bob", "--json").err == note
    assert command("history", "bob", "--last", "0").err == ""
    store.add_message("bob", "user", "back")
    assert command("history", "bob").err == ""


def put_checkpoint(saver, number, parent):
    configurable = {"thread_id": "trip", "checkpoint_ns": ""}
    if parent is not None:
        configurable["checkpoint_id"] = f"step-{parent}"
    checkpoint = empty_checkpoint() | {"id": f"step-{number}"}
    checkpoint |= {"channel_values": {"n": number}, "channel_versions": {"n": str(number)}}
    config = {"configurable": configurable}
    return saver.put(config, checkpoint, {}, checkpoint["channel_versions"])


def test_show_draws_the_steps_writes_and_branches_of_a_thread(command):
    with indelible.open(command.folder / "agent.db") as store:
        saver = IndelibleSaver(store)
        for number, parent in ((1, None), (2, 1), (3, 1)):
            config = put_checkpoint(saver, number, parent)
        saver.put_writes(config, [("n", 4), ("asked", "yes")], "task-a")
        drawn = command("show", "~thread/trip").out
        assert "step-2 after step-1: n" in drawn
        (branch,) = [line for line in drawn.splitlines() if "branch" in line]
        assert "step-3 after step-1" in branch
        assert "task task-a writes n, asked" in drawn
        saver.compact()
    assert "packed entries between 0 and" in command("show", "~thread/trip").out


def test_show_finds_a_thread_by_its_own_id_unless_it_is_that_of_a_session(command):
    with indelible.open(command.folder / "agent.db") as store:
        put_checkpoint(IndelibleSaver(store), 1, None)
        assert command("show", "trip").out == command("show", "~thread/trip").out
        assert "no session 'trap'" in command("show", "trap", code=1).err
        store.add_message("trip", "user", "a chat of the same id")
    assert "a chat of the same id" in command("show", "trip").out


def test_a_checkpoint_that_compact_stored_again_is_no_branch(command):
    with indelible.open(command.folder / "agent.db") as store:
        saver = IndelibleSaver(store)
        for number, parent in ((1, None), (2, 1), (3, 2)):
            put_checkpoint(saver, number, parent)
        # The snapshot keeps the old entries, so they are drawn too.
        store.save_snapshot("~thread/trip")
        saver.compact()
    drawn = command("show", "~thread/trip").out
    assert drawn.count("step-3 after step-2") == 2
    assert "branch" not in drawn


def test_history_says_what_a_session_has_instead_of_messages(command):
    with indelible.open(command.folder / "agent.db") as store:
        put_checkpoint(IndelibleSaver(store), 1, None)
        store.remember("facts", "She drinks coffee", id="drink")
    thread, facts = command("history", "~thread/trip"), command("history", "facts")
    assert (thread.out, facts.out) == ("", "")
    assert "a thread of LangGraph, which has checkpoints: indelible show" in thread.err
    assert facts.err == "This is a collection, which has memories: indelible memories facts\n"
