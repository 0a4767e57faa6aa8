"""How values are put into words, and a session into lines; no process is needed to see that."""

import pytest
from rich.cells import cell_len

import indelible
from indelible import ChatMessage, ToolCall, ToolResult
from indelible.cli import phrases, timeline
from indelible.core.operations import ReadLog
from indelible.core.settings import Settings
from indelible.printable import escape_unseen_in_lines


@pytest.fixture
def memory():
    with indelible.open("memory:") as store:
        yield store


def drawn(store, session="s", page=None, **options):
    """What is drawn of a session that is read in pages of this many entries."""
    whole = store.timeline(session)
    lines = timeline.TimelineLines(whole, **options)
    pages = batched(whole.entries, page or len(whole.entries) or 1)
    every = [line for entries in pages for line in lines.add(entries)] + list(lines.finish())
    return [(line.position, line.who, line.note) for line in every if line.who != "UTC"]


def batched(items, size):
    return [items[start : start + size] for start in range(0, len(items), size)]


def test_what_was_stored_cannot_steer_the_terminal():
    assert phrases.format_line("a\n\tb \x1b[2J\x07\x9b") == "a b \\x1b[2J\\x07\\x9b"
    assert escape_unseen_in_lines("a\n\tb\r\x1b") == "a\n\tb\\x0d\\x1b"


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


def test_a_long_session_is_drawn_before_all_of_it_is_read(memory):
    memory.add_entries(
        "s",
        [
            ToolCall(call_id="a", name="look"),
            ToolCall(call_id="b", name="look"),
            ToolCall(call_id="c", name="look"),
            ToolResult(call_id="b", content="found"),
            ToolResult(call_id="a", content="found late"),
        ],
    )
    assert drawn(memory, page=2) == [
        ("0", "tool call", "no result up to 3"),
        ("1", "tool call", "answered 3"),
        ("2", "tool call", "dangling"),
        ("3", "tool result", "answers 1"),
        ("4", "tool result", "answers 0"),
    ]
    # As if there were entries before these.
    memory.add_tool_result("s", "z", "found")
    assert drawn(memory, last=1, is_whole=False) == [
        ("", "", ""),
        ("5", "tool result", "answers no call since 0"),
    ]


class CountedReads:
    """A backend that notes which pages of a log are read."""

    def __init__(self, backend, notes):
        self._backend = backend
        self._notes = notes

    def perform(self, op):
        if isinstance(op, ReadLog):
            self._notes.append(("read", op.start))
        return self._backend.perform(op)


class NotedOutput:
    """An output that notes which positions are drawn."""

    columns = 100

    def __init__(self, notes):
        self._notes = notes

    def say(self, text):
        self._notes.append(("say", text.partition(",")[0]))

    def draw_segments(self, segments):
        *_, last, _ = segments
        self._notes.append(("draw", int(last.text.split()[0])))


@pytest.fixture
def long_session(memory):
    """Draws a session of 3500 messages; gives what was read and drawn, in this order."""
    for start in range(0, 3500, 500):
        texts = [ChatMessage(role="user", content=str(start + nth)) for nth in range(500)]
        memory.add_messages("s", texts)

    def draw(last=None):
        notes = []
        store = indelible.MemoryStore(CountedReads(memory._backend, notes), Settings())
        timeline.draw(NotedOutput(notes), store, "s", last=last, full=False)
        return notes

    return draw


def test_lines_are_written_while_the_session_is_read(long_session):
    notes = long_session()
    steps = [note for note in notes if note[0] == "read" or note[1] in ("s: active", 999, 1999)]
    assert steps == [
        ("read", 0),
        ("say", "s: active"),
        ("read", 1000),
        ("draw", 999),
        ("read", 2000),
        ("draw", 1999),
        ("read", 3000),
    ]
    assert notes[-1] == ("draw", 3499)


def test_what_changes_meanwhile_is_not_drawn(memory):
    memory.add_messages("s", [ChatMessage(role="user", content="m")] * 1000)
    memory.add_message("s", "user", "m")
    pages = []

    def on_page(page):
        pages.append(page)
        memory.add_message("s", "user", "later")
        memory.clear("s")

    memory.timeline("s", on_page=on_page)
    assert [len(page.entries) for page in pages] == [1000, 1]
    assert pages[1].entries[0].visible


def test_the_last_entries_are_read_alone(long_session):
    assert long_session(last=5) == [
        ("read", 3500 - 5 - timeline.CONTEXT_ENTRIES),
        ("say", "s: active"),
        ("draw", 3499),
    ]


def laid_out(layout, line):
    return "".join(segment.text for segment in layout.draw([line])).splitlines()


@pytest.mark.parametrize("columns", [40, 79, 80])
def test_no_line_is_wider_than_the_terminal(columns):
    line = timeline.TimelineLine("7", "09:00:00", "tool result", "answers 6", "語" * 100)
    *above, content = laid_out(timeline.Layout(columns, full=False), line)
    assert cell_len(content) in (columns - 1, columns)
    assert content.endswith(("語…", " …"))
    assert above == ([] if columns == 80 else ["7  09:00:00  tool result  answers 6"])


def test_whole_contents_are_indented_below_their_line():
    line = timeline.TimelineLine("7", "09:00:00", "user", "", "one\n" + 50 * "two ")
    written = laid_out(timeline.Layout(40, full=True), line)
    assert written == ["7  09:00:00  user", "    one", f"    {50 * 'two '}"]


def test_columns_grow_and_never_shrink():
    layout = timeline.Layout(100, full=False)
    lines = [timeline.TimelineLine(who=who, what="x") for who in ("user", "assistant", "ai")]
    places = [laid_out(layout, line)[0].index("x") for line in lines]
    assert places[0] < places[1] == places[2]


def test_snapshots_stand_behind_the_last_entry_that_they_hold(memory):
    memory.add_message("s", "user", "one")
    memory.save_snapshot("s")
    memory.clear("s")
    memory.save_snapshot("s")
    memory.add_message("s", "user", "two")
    memory.save_snapshot("s")
    assert [position for position, _, _ in drawn(memory)] == ["──", "0", "──", "1", "──"]
    assert [position for position, _, _ in drawn(memory, last=1)] == ["", "1", "──"]


def count_earlier(store, *, is_whole):
    lines = timeline.TimelineLines(store.timeline("s"), last=2, is_whole=is_whole)
    list(lines.add(store.timeline("s", last=3).entries))
    return next(lines.finish()).what


def test_only_entries_that_exist_are_counted_as_earlier(memory):
    memory.add_messages("s", [ChatMessage(role="user", content="m")] * 8)
    assert count_earlier(memory, is_whole=False) == "… 6 earlier"
    memory.trim("s", before=5)
    memory.vacuum(undo_window=0)
    assert count_earlier(memory, is_whole=True) == "… 1 earlier"
    # It is not known which of the hidden entries before those that were read exist.
    assert count_earlier(memory, is_whole=False) == "… up to 6 earlier"


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
    first, second = explained(memory)
    assert first.startswith("1 entry is hidden by the clear")
    assert "indelible undo s" in first
    assert second == "1 entry is hidden by earlier changes: undo again for each of those."
    memory.vacuum(undo_window=0)
    notes = explained(memory)
    assert f"indelible rollback s {snapshot.id}" in notes[0]
    memory.delete_snapshot("s", snapshot.id)
    assert explained(memory) == ["2 entries are hidden, and vacuum may remove them."]
    memory.vacuum(undo_window=0)
    assert explained(memory)[0] == "1 entry was removed by vacuum."
    # It is not known which entries are there if only the last are read.
    assert list(timeline.explain_hidden(memory.timeline("s"), there=None)) == []


def explained(store):
    whole = store.timeline("s")
    there = {each.entry.position for each in whole.entries if not each.visible}
    return list(timeline.explain_hidden(whole, there=there))


def test_a_call_is_written_with_what_it_has():
    calls = [
        {"id": "a", "args": {"x": 1}},
        {"id": "b", "function": {"name": "look", "arguments": "{}"}},
    ]
    message = ChatMessage(role="assistant", tool_calls=calls)
    assert phrases.format_message(message) == 'calls {"x": 1}\ncalls look {}'
    block = {"block_type": "tool_call", "tool_name": "look", "tool_kwargs": {"x": 1}}
    assert phrases.format_content([block]) == 'calls look {"x": 1}'
