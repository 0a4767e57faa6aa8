"""Files that somebody else wrote: refused with line and reason, and nothing of them stays."""

import base64
import copy
import io
import json

import pytest

import indelible
from indelible import ChatMessage, FormatError
from indelible.core import limits
from tests.support.stores import said

# What stands in the file, by line; `exported` asserts that it is so.
SESSION, FIRST, SECOND, THIRD, NEWEST, SNAPSHOT, JOURNAL, UNDONE, END = range(1, 10)


def exported():
    """An export with a batch, keys, a snapshot, a label, and two changes; as one object a line."""
    with indelible.open("memory:") as store:
        store.add_message("mine", "system", "be kind")
        store.save_context("mine", "q", "a", key="turn-1")
        store.save_snapshot("mine", label="first")
        store.clear("mine", key="op1")
        store.undo("mine", key="op2")
        store.add_message("mine", "user", "last")
        store.set_metadata("mine", {"user": "ann"})
        lines = io.StringIO()
        store.export(lines)
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    kinds = [next(iter(line)) for line in found[1:]]
    assert kinds == ["session", *["entry"] * 4, "snapshot", "journal", "journal", "end"]
    return found


def text_of(lines):
    return io.StringIO("".join(json.dumps(line) + "\n" for line in lines))


FAR = 2**32 + 5
NESTED = {}
for _ in range(limits.JSON_DEPTH_MAX + 5):
    NESTED = {"n": NESTED}
WRONG_NUMBERS = [-1, FAR, 2**63, 10**400, 1.0, 2.5, True, "3", None, [], {}]
WRONG_TIMES = [-1, limits.MILLISECONDS_MAX + 1, 2**63, 10**400, 1.5, "soon", True, [], {}]
WRONG_TEXTS = ["", "k" * 513, "\ud800", 5, True, [], {}]
WRONG_VIEWS = [
    None,
    [],
    {},
    {"extents": []},
    {"tail": 0},
    {"extents": [], "tail": -1},
    {"extents": [], "tail": 99},
    {"extents": [], "tail": FAR},
    {"extents": [], "tail": 1.0},
    {"extents": None, "tail": 4},
    {"extents": [[0, FAR]], "tail": FAR + 9},
    {"extents": [[0, 1, 2]], "tail": 4},
    {"extents": [[0]], "tail": 4},
    {"extents": ["01"], "tail": 4},
    {"extents": [[1, 0]], "tail": 4},
    {"extents": [[1, 1]], "tail": 4},
    {"extents": [[2, 3], [0, 1]], "tail": 4},
    {"extents": [[0, 1], [1, 2]], "tail": 4},
    {"extents": [[0, 4]], "tail": 4},
    {"extents": [[-1, 1]], "tail": 4},
    {"extents": [[True, 2]], "tail": 4},
    {"extents": [[0, 1.0]], "tail": 4},
    {"extents": [[0, 1]] * 1001, "tail": 4},
]

# Line, field, and values that no store would have written there.
FIELDS = [
    (SESSION, "id", WRONG_TEXTS),
    (SESSION, "born", [*WRONG_NUMBERS, 1]),
    (SESSION, "end", [*WRONG_NUMBERS, 0, 3, 5, limits.LOG_ENTRIES_MAX]),
    (SESSION, "view", [*WRONG_VIEWS, {"extents": [], "tail": 1}]),
    (SESSION, "generation", [*WRONG_NUMBERS[:1], *WRONG_NUMBERS[2:], 0, 1]),
    (SESSION, "created_at_ms", [*WRONG_TIMES, None]),
    (SESSION, "deadline_ms", [*WRONG_TIMES, 1_700_000_000_000]),
    (SESSION, "forked_from", WRONG_TEXTS),
    (SESSION, "metadata", [None, [], "x", 5, NESTED, {"x": "y" * limits.METADATA_BYTES_MAX}]),
    (SECOND, "position", [*WRONG_NUMBERS, 0]),
    (SECOND, "kind", ["poem", 5, [], {}, "summary", None]),
    (SECOND, "written_at_ms", [*WRONG_TIMES, None]),
    (NEWEST, "deadline_ms", [*WRONG_TIMES, 1_700_000_000_000]),
    (SECOND, "batch", [*WRONG_NUMBERS, 0, 1, 3, 4, limits.BATCH_ENTRIES_MAX + 1, 10**12]),
    (THIRD, "batch", [1, 2]),
    (NEWEST, "batch", [0, 2, FAR]),
    (SECOND, "generation", [*WRONG_NUMBERS, 3]),
    (SECOND, "keep", [None, 0, 1, "yes", True]),
    (SECOND, "key", WRONG_TEXTS),
    (THIRD, "key", ["mine"]),
    (NEWEST, "key", ["turn-1"]),
    (SECOND, "opens", [None, "abc", {}, [1], ["c1"]]),
    (SECOND, "answers", [None, "abc", {}, [1], ["c1"]]),
    (SECOND, "envelope", [None, {}, "x", 5, [], NESTED]),
    (SECOND, "raw", [None, 5, "not base64!", "é"]),
    (SNAPSHOT, "id", WRONG_TEXTS),
    (SNAPSHOT, "label", WRONG_TEXTS),
    (SNAPSHOT, "taken_at_ms", [*WRONG_TIMES, None]),
    (SNAPSHOT, "view", [*WRONG_VIEWS, {"extents": [], "tail": 4}]),
    (SNAPSHOT, "end", [*WRONG_NUMBERS, 5]),
    (JOURNAL, "operation", [*WRONG_TEXTS, "op2"]),
    (JOURNAL, "change", [*WRONG_TEXTS, "a b", "clear|0 0"]),
    (JOURNAL, "changed_at_ms", [*WRONG_TIMES, None]),
    (JOURNAL, "end", [*WRONG_NUMBERS, 5]),
    (JOURNAL, "before", WRONG_VIEWS),
    (JOURNAL, "after", [*WRONG_VIEWS, {"extents": [], "tail": 0}]),
    (UNDONE, "after", [{"extents": [[1, 2]], "tail": 3}]),
    (JOURNAL, "undone_by", [*WRONG_TEXTS, "nobody"]),
    (END, "session", ["theirs", None, 5]),
    (END, "entries", [*WRONG_NUMBERS, 3, 5]),
    (END, "snapshots", [*WRONG_NUMBERS, 0]),
    (END, "journal", [*WRONG_NUMBERS, 1]),
]


def broken_files():
    """A name and the lines of each file that must be refused."""
    good = exported()
    for line, field, values in FIELDS:
        (kind,) = good[line]
        for value in values:
            lines = copy.deepcopy(good)
            lines[line][kind][field] = value
            yield f"{kind} {field} {value!r:.40}", lines
        lines = copy.deepcopy(good)
        if lines[line][kind].pop(field, None) is not None:
            yield f"{kind} without {field}", lines
    for kind, at, repeats in (
        ("snapshots", SNAPSHOT, 2),
        ("journal", JOURNAL, limits.JOURNAL_LINES_MAX + 1),
    ):
        lines = copy.deepcopy(good)
        lines[at:at] = [copy.deepcopy(good[at]) for _ in range(repeats - 1)]
        lines[-1]["end"][kind] += repeats - 1
        yield f"{repeats} equal {kind}", lines
    for line in (SESSION, SECOND, END):
        for other in ({}, [], None, 5, "x", {"a": {}, "b": {}}, {"poem": {}}, {"entry": []}):
            yield f"line {line} {other!r}", [*good[:line], other, *good[line + 1 :]]
    yield "sessions inside of each other", [*good[:3], good[SESSION], *good[3:]]


@pytest.fixture(scope="module")
def files():
    return list(broken_files())


def test_a_broken_file_is_refused_and_leaves_nothing(store, files):
    for neighbour in ("before", "zebra"):
        store.add_message(neighbour, "user", f"secret {neighbour}")
    not_refused = []
    for what, lines in files:
        try:
            store.import_(text_of(lines))
        except FormatError as error:
            if "line" not in error.details:
                not_refused.append(f"{what}: {error}")
        else:
            not_refused.append(what)
            store.forget("mine")
    assert not_refused == []
    assert sorted(store.list_sessions(expired=True).ids) == ["before", "zebra"]
    assert store.session("mine").status == "new"
    assert store.vacuum(undo_window=0).entries == 0
    assert store.verify().ok
    assert [said(store, name) for name in ("before", "zebra")] == [
        ["secret before"],
        ["secret zebra"],
    ]
    assert store.import_(text_of(exported())).sessions == 1
    assert said(store, "mine") == ["be kind", "q", "a", "last"]


def test_a_long_session_that_is_refused_at_its_end_leaves_nothing(store):
    with indelible.open("memory:") as source:
        for _ in range(3):
            source.add_messages("mine", [ChatMessage(role="user", content="x")] * 900)
        lines = io.StringIO()
        source.export(lines)
    text = lines.getvalue().splitlines(keepends=True)
    for broken in ("".join(text[:-1]), "".join([*text[:-1], text[-1].replace("2700", "2699")])):
        with pytest.raises(FormatError):
            store.import_(io.StringIO(broken))
        assert store.session("mine").status == "new"
        assert store.list_sessions(expired=True).ids == []
        report = store.vacuum(undo_window=0)
        assert (report.sessions, report.entries) == (0, 0)
        assert store.verify().ok
    assert store.import_(io.StringIO("".join(text))).entries == 2700


def test_a_stage_that_was_taken_over_is_left_to_its_new_owner(store, stores):
    if stores.flavour == "async":
        pytest.skip("the import has the event loop that the other writer would need")
    with indelible.open("memory:") as source:
        for _ in range(3):
            source.add_messages("mine", [ChatMessage(role="user", content="x")] * 900)
        lines = io.StringIO()
        source.export(lines)
    text = lines.getvalue().splitlines(keepends=True)[:-1]

    def interrupted():
        """The lines of the file, with another writer between the last two."""
        yield from text
        store.add_message("mine", "user", "I was first")

    class Source:
        """A file whose lines come one after the other."""

        def __init__(self):
            self._lines = interrupted()

        def readline(self, _size=-1):
            return next(self._lines, "")

    with pytest.raises(FormatError, match="cut off"):
        store.import_(Source())
    assert said(store, "mine") == ["I was first"]


@pytest.mark.parametrize("header", [True, 0, -1, 2, 1.0, "1", None, [], 10**400], ids=str)
def test_a_format_that_is_none_is_refused(header):
    with indelible.open("memory:") as store, pytest.raises(FormatError):
        store.import_(io.StringIO(json.dumps({"indelible": "export", "format": header})))


def test_a_line_without_end_is_not_read_into_memory(monkeypatch):
    monkeypatch.setattr("indelible.core.plans.transfer.EXPORT_LINE_CHARS_MAX", 1000)

    class Endless:
        """A file whose first line is an export's, and whose second never ends."""

        def __init__(self):
            self.asked = []

        def readline(self, size=-1):
            self.asked.append(size)
            if len(self.asked) == 1:
                return '{"indelible":"export","format":1}\n'
            assert 0 < size < 10_000, "somebody wants all of it"
            return "x" * size

    source = Endless()
    with indelible.open("memory:") as store, pytest.raises(FormatError, match="line 2"):
        store.import_(source)
    assert len(source.asked) == 2


def test_a_file_that_is_not_utf8_is_a_format_error(tmp_path):
    path = tmp_path / "export.jsonl"
    path.write_bytes(b'{"indelible":"export","format":1}\n\xff\xfe\n')
    with indelible.open("memory:") as store, pytest.raises(FormatError):
        store.import_(path)


def test_an_edited_entry_is_refused_without_advice_on_reading_it():
    lines = exported()
    lines[NEWEST]["entry"]["envelope"]["message"]["content"] = "first"
    with indelible.open("memory:") as store, pytest.raises(FormatError) as refused:
        store.import_(text_of(lines))
    assert refused.value.message == (
        f"line {NEWEST + 1} is an entry line that no store wrote: its checksum does not match;"
        " the session it belongs to was not imported"
    )


def test_missing_entries_are_counted_not_walked_over():
    lines = exported()
    lines[SESSION]["session"].update(end=limits.LOG_ENTRIES_MAX)
    lines[NEWEST]["entry"].update(position=limits.LOG_ENTRIES_MAX - 1)
    with indelible.open("memory:") as store, pytest.raises(FormatError, match="not in its log"):
        store.import_(text_of(lines))


def test_a_batch_of_an_entry_that_travels_raw_stays_inside_of_the_log(store):
    lines = exported()
    entry = lines[NEWEST]["entry"]
    envelope = json.dumps(entry.pop("envelope"), separators=(",", ":"))
    entry["raw"] = base64.b64encode(envelope.encode()).decode()
    entry["batch"] = 1000
    with pytest.raises(FormatError, match="reaches past the end of the log"):
        store.import_(text_of(lines))
    assert store.session("mine").status == "new"


def test_a_gap_of_any_size_is_passed_over(store):
    store.add_message("mine", "user", "hello")
    lines = io.StringIO()
    store.export(lines)
    header, session, first, end = (json.loads(line) for line in lines.getvalue().splitlines())
    store.forget("mine")
    far = copy.deepcopy(first)
    far["entry"].update(position=2**32 - 7, key=None)
    session["session"]["end"] = 2**32 - 6
    session["session"]["view"] = {"extents": [[0, 1]], "tail": 2**32 - 7}
    end["end"]["entries"] = 2
    store.import_(text_of([header, session, first, far, end]))
    assert said(store, "mine") == ["hello", "hello"]
    assert store.verify().ok
    assert len(store.timeline("mine").entries) == 2


def test_a_session_with_the_most_changes_can_still_be_changed(store):
    lines = exported()
    lines[SESSION]["session"]["generation"] = limits.COUNTER_MAX
    store.import_(text_of(lines))
    store.clear("mine")
    assert said(store, "mine") == []
    store.undo("mine")
    assert said(store, "mine")[-1] == "last"
    assert store.verify().ok
