"""How values are put into words, and a session into lines; no process is needed to see that."""

import pytest

import indelible
from indelible import ChatMessage, ToolCall, ToolResult
from indelible.cli import phrases, timeline


@pytest.fixture
def memory():
    with indelible.open("memory:") as store:
        yield store


def drawn(store, session="s", **options):
    lines = timeline.build_lines(store.timeline(session), **options)
    return [(line.position, line.who, line.note) for line in lines if line.who != "UTC"]


def test_what_was_stored_cannot_steer_the_terminal():
    assert phrases.format_line("a\n\tb \x1b[2J\x07\x9b") == "a b \\x1b[2J\\x07\\x9b"
    assert phrases.escape_text("a\n\tb\r\x1b") == "a\n\tb\\x0d\\x1b"


def test_a_long_text_is_cut_without_reading_all_of_it():
    line = phrases.format_line("word " * 1_000_000)
    assert len(line) == phrases.LINE_CHARS_MAX
    assert line.endswith("…")


def test_content_blocks_read_as_text_where_they_are_text():
    blocks = [{"type": "text", "text": "look:"}, {"type": "image", "url": "cat.png"}]
    message = ChatMessage(role="user", content=blocks)
    assert phrases.format_value(message) == 'look:\n{"type": "image", "url": "cat.png"}'


def test_positions_are_told_in_short():
    assert phrases.format_positions([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    assert phrases.format_positions([]) == ""


def test_calls_and_results_point_at_one_another(memory):
    memory.add_entries(
        "s",
        [
            ToolCall(call_id="a", name="look"),
            ToolCall(call_id="b", name="look"),
            ToolResult(call_id="b", content="no", is_error=True),
            ToolResult(call_id="z", content="?"),
        ],
    )
    assert drawn(memory) == [
        ("0", "tool call", "dangling"),
        ("1", "tool call", "failed 2"),
        ("2", "tool result", "answers 1"),
        ("3", "tool result", "answers no call"),
    ]


def test_a_call_whose_result_is_hidden_is_open_again(memory):
    memory.add_tool_call("s", "a", "look")
    snapshot = memory.save_snapshot("s")
    memory.add_tool_result("s", "a", "found")
    memory.rollback_to_snapshot("s", snapshot.id)
    assert drawn(memory) == [
        ("0", "tool call", "dangling"),
        ("──", "snapshot", ""),
        ("1", "tool result", "hidden, answers 0"),
    ]


def test_snapshots_stand_behind_the_last_entry_that_they_hold(memory):
    memory.add_message("s", "user", "one")
    memory.save_snapshot("s")
    memory.clear("s")
    memory.save_snapshot("s")
    memory.add_message("s", "user", "two")
    memory.save_snapshot("s")
    assert [position for position, _, _ in drawn(memory)] == ["──", "0", "──", "1", "──"]
    assert [position for position, _, _ in drawn(memory, last=1)] == ["", "1", "──"]


def test_a_session_without_entries_has_nothing_to_draw(memory):
    memory.set_metadata("s", {"user": "ada"})
    assert drawn(memory) == []
    assert "shows 0 of 0 entries" in timeline.format_heading(memory.timeline("s"))


def test_hidden_entries_come_with_the_way_back(memory):
    memory.add_message("s", "user", "one")
    snapshot = memory.save_snapshot("s")
    memory.add_message("s", "user", "two")
    memory.trim("s", before=1)
    memory.clear("s")
    first, second = timeline.explain_hidden(memory.timeline("s"))
    assert first.startswith("1 entry is hidden by the clear")
    assert "indelible undo s" in first
    assert second == "1 entry is hidden by earlier changes: undo again for each of those."
    memory.vacuum(undo_window=0)
    notes = list(timeline.explain_hidden(memory.timeline("s")))
    assert f"indelible rollback s {snapshot.id}" in notes[0]
