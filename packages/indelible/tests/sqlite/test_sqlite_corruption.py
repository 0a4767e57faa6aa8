"""Somebody damaged the file: every read says so, names the place, and never just gives less."""

from __future__ import annotations

import io
import random
from contextlib import suppress

import pytest

import indelible
from indelible import CorruptEntryError, FormatError, MemoryStoreError
from indelible.backends.sqlite import checksums
from tests.support.sqlite.seams import beside, forging

SESSION = "session"
TOLD = ["one", "two", "three", "four", "five"]
# The first session's number is 1; a row id is the number, and the position in the lower half.
AT_2 = f"id = {1 << 32 | 2}"


@pytest.fixture
def store(path):
    with indelible.open(path) as store:
        for content in TOLD:
            store.add_message(SESSION, "user", content)
        yield store


def damage(path, statement, *args):
    with beside(path) as file:
        file.execute(statement, args)
        assert file.changes() > 0, "nothing was damaged"


def payload_at_2(path):
    with beside(path) as file:
        return file.execute(f"SELECT payload FROM entry WHERE {AT_2}").get


def check_that_2_is_said_to_be_corrupt(store):
    for read in (
        lambda **how: store.get_history(SESSION, **how),
        lambda **how: store.get_entries(SESSION, **how),
        lambda **how: store.get_history(SESSION, last=5, **how),
        lambda **how: store.get_history(SESSION, max_tokens=1000, **how),
    ):
        with pytest.raises(CorruptEntryError) as caught:
            read()
        assert (caught.value.session, caught.value.position) == (SESSION, 2)
        rest = read(on_corrupt="quarantine")
        contents = [getattr(item, "value", item).content for item in rest]
        assert contents == ["one", "two", "four", "five"]
        (corrupt,) = rest.corrupt
        assert corrupt.position == 2
        assert corrupt.reason
        yield corrupt.raw


def test_every_byte_of_a_payload_is_guarded(store, path):
    whole = payload_at_2(path)
    for at in range(len(whole)):
        for changed in (whole[at] ^ 0x01, whole[at] ^ 0x80):
            broken = whole[:at] + bytes([changed]) + whole[at + 1 :]
            damage(path, f"UPDATE entry SET payload = ? WHERE {AT_2}", broken)
            with pytest.raises(CorruptEntryError) as caught:
                store.get_history(SESSION)
            assert (caught.value.session, caught.value.position) == (SESSION, 2)
            assert caught.value.raw == broken


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: b"",
        lambda whole: whole[:-1],
        lambda whole: whole[:20],
        lambda whole: whole + b" ",
        lambda whole: whole + whole,
        lambda whole: b"\x00" * len(whole),
        lambda whole: whole.replace(b"three", b"seven"),
    ],
)
def test_a_changed_payload_is_named_and_its_bytes_are_kept(store, path, change):
    broken = change(payload_at_2(path))
    damage(path, f"UPDATE entry SET payload = ? WHERE {AT_2}", broken)
    for raw in check_that_2_is_said_to_be_corrupt(store):
        assert raw == broken


def test_a_payload_that_was_exchanged_for_another_of_the_same_kind_is_said(store, path):
    damage(
        path,
        f"UPDATE entry SET payload = (SELECT payload FROM entry WHERE id = {1 << 32}) WHERE {AT_2}",
    )
    for raw in check_that_2_is_said_to_be_corrupt(store):
        assert b"one" in raw


@pytest.mark.parametrize("kind", [2, 3, 4, 0, 5, 99, 1 << 40, -1, -5, -(1 << 40)])
def test_an_entry_whose_kind_was_changed_is_named(store, path, kind):
    whole = payload_at_2(path)
    damage(path, f"UPDATE entry SET kind = ? WHERE {AT_2}", kind)
    for raw in check_that_2_is_said_to_be_corrupt(store):
        assert raw == whole


@pytest.mark.parametrize("read", ["get_history", "get_entries", "trim", "fork"])
@pytest.mark.parametrize("kind", [2, 99, -5])
def test_no_verb_passes_over_an_entry_whose_kind_was_changed(store, path, kind, read):
    damage(path, f"UPDATE entry SET kind = ? WHERE {AT_2}", kind)
    verb = {
        "get_history": lambda: store.get_history(SESSION),
        "get_entries": lambda: store.get_entries(SESSION, kinds=["message"]),
        "trim": lambda: store.trim(SESSION, max_tokens=1, count_tokens=lambda message: 1),
        "fork": lambda: store.fork(SESSION, "copy"),
    }[read]
    with pytest.raises((CorruptEntryError, FormatError)):
        verb()
    assert store.session("copy").status == "new"


@pytest.mark.parametrize("position", range(4))
def test_a_missing_row_is_named(store, path, position):
    damage(path, "DELETE FROM entry WHERE id = ?", 1 << 32 | position)
    with pytest.raises(CorruptEntryError, match="missing") as caught:
        store.get_history(SESSION)
    assert (caught.value.session, caught.value.position) == (SESSION, position)
    rest = store.get_history(SESSION, on_corrupt="quarantine")
    assert [message.content for message in rest] == [
        content for at, content in enumerate(TOLD) if at != position
    ]
    assert [(corrupt.position, corrupt.raw) for corrupt in rest.corrupt] == [(position, b"")]
    assert store.add_message(SESSION, "user", "six").positions.start == len(TOLD)


def test_many_missing_rows_are_all_named(store, path):
    damage(path, f"DELETE FROM entry WHERE id < {1 << 32 | 4}")
    rest = store.get_history(SESSION, on_corrupt="quarantine")
    assert [message.content for message in rest] == ["five"]
    assert [corrupt.position for corrupt in rest.corrupt] == [0, 1, 2, 3]


def test_a_newest_batch_that_lost_its_end_is_no_shorter_batch(store, path):
    store.save_context(SESSION, "six", "seven")
    damage(path, f"DELETE FROM entry WHERE id = {1 << 32 | 6}")
    for read in (
        lambda: store.get_history(SESSION),
        lambda: store.get_history(SESSION, last=3),
        lambda: store.get_entries(SESSION),
    ):
        with pytest.raises(CorruptEntryError, match="missing") as caught:
            read()
        assert (caught.value.session, caught.value.position) == (SESSION, 6)
    (finding,) = store.verify(SESSION).findings
    assert finding.position == 6
    assert store.add_message(SESSION, "user", "eight").positions == range(7, 8)
    store.repair(SESSION)
    contents = [message.content for message in store.get_history(SESSION)]
    assert contents == [*TOLD, "six", "eight"]


def test_a_newest_row_that_was_moved_far_away_is_said_at_once(store, path):
    # One bit of a row id is enough: from then on the log seems to have a million entries.
    damage(path, f"UPDATE entry SET id = id + {1 << 20} WHERE id = {1 << 32 | 4}")
    for on_corrupt in ("raise", "quarantine"):
        with pytest.raises(FormatError, match="1048576 entries missing"):
            store.get_history(SESSION, on_corrupt=on_corrupt)
    moved, missing = store.verify(SESSION).findings
    assert moved.position == 4 + 1048576
    assert (missing.what, missing.position) == ("1048576 entries are missing from the log", 4)
    with pytest.raises(FormatError, match="1048576 entries missing"):
        store.repair(SESSION)
    (left,) = store.repair().actions
    assert left.what.startswith("left as it is")


def test_a_row_that_was_moved_to_another_position_is_missed_where_it_stood(store, path):
    damage(path, f"UPDATE entry SET id = {1 << 32 | 9} WHERE {AT_2}")
    rest = store.get_history(SESSION, on_corrupt="quarantine")
    assert [corrupt.position for corrupt in rest.corrupt] == [2, 5, 6, 7, 8, 9]
    assert [message.content for message in rest] == ["one", "two", "four", "five"]


@pytest.mark.parametrize("verb", ["trim", "get_tool_calls"])
@pytest.mark.parametrize("column", ["call_ids", "answer_ids"])
@pytest.mark.parametrize("links", ["[", "5", "{}", '["a', "[1]", "null"])
def test_damaged_links_are_said_by_the_verbs_that_read_them(store, path, column, links, verb):
    store.add_tool_call(SESSION, "call", "tool", {})
    damage(path, f"UPDATE entry SET {column} = ? WHERE {AT_2}", links)
    try:
        if verb == "trim":
            store.trim(SESSION, keep_last=1)
        else:
            store.get_tool_calls(SESSION)
    except MemoryStoreError as error:
        assert isinstance(error, (CorruptEntryError, FormatError))  # noqa: PT017
    assert [message.content for message in store.get_history(SESSION)][-1] == "five"


NOT_TEXT = "CAST(x'66ff66' AS TEXT)"


@pytest.mark.parametrize(
    ("statement", "verb"),
    [
        (f"UPDATE entry SET call_ids = {NOT_TEXT}", lambda s: s.trim(SESSION, keep_last=1)),
        (f"UPDATE entry SET answer_ids = {NOT_TEXT}", lambda s: s.trim(SESSION, keep_last=1)),
        (f"UPDATE session SET name = {NOT_TEXT}", lambda s: s.list_sessions()),
        (f"UPDATE session SET forked_from = {NOT_TEXT}", lambda s: s.session(SESSION)),
        (f"UPDATE session SET forked_from = {NOT_TEXT}", lambda s: s.get_history(SESSION)),
        (f"UPDATE snapshot SET label = {NOT_TEXT}", lambda s: s.list_snapshots(SESSION)),
        (f"UPDATE snapshot SET id = {NOT_TEXT}", lambda s: s.list_snapshots(SESSION)),
        (f"UPDATE journal SET change = {NOT_TEXT}", lambda s: s.undo(SESSION)),
        (f"UPDATE journal SET operation = {NOT_TEXT}", lambda s: s.undo(SESSION)),
    ],
)
def test_text_that_is_no_text_is_a_format_error(store, path, statement, verb):
    store.save_snapshot(SESSION, label="here")
    store.trim(SESSION, keep_last=4)
    damage(path, statement)
    with pytest.raises(FormatError):
        verb(store)
    store.add_message("another", "user", "goes on")
    assert len(store.get_history("another")) == 1


@pytest.mark.parametrize(
    "extents", [b"\x80", b"\x01", b"\x00\x00", b"\x01\x01\x00\x01", b"\xff" * 9]
)
def test_a_view_that_is_none_is_a_format_error(store, path, extents):
    with forging(path) as file:
        file.execute("UPDATE session SET extents = ?", (extents,))
    with pytest.raises(FormatError):
        store.get_history(SESSION)
    with pytest.raises(FormatError):
        store.clear(SESSION)
    store.add_message("another", "user", "goes on")


def test_a_view_that_shows_more_than_the_log_holds_names_what_is_missing(store, path):
    # From position 0, one hundred entries; then from 200 on.
    with forging(path) as file:
        file.execute("UPDATE session SET extents = x'0064', tail = 200")
    with pytest.raises((CorruptEntryError, FormatError)):
        store.get_history(SESSION)


def test_a_view_that_begins_behind_the_end_of_the_log_is_damage_and_no_empty_session(store, path):
    with forging(path) as file:
        file.execute("UPDATE session SET tail = 200")
    with pytest.raises(MemoryStoreError):
        store.get_history(SESSION)


def test_metadata_that_is_no_json_is_a_format_error_and_the_messages_come_back(store, path):
    with forging(path) as file:
        file.execute("UPDATE session SET metadata = x'7b'")
    with pytest.raises(FormatError):
        store.session(SESSION)
    assert [message.content for message in store.get_history(SESSION)] == TOLD


@pytest.mark.parametrize("at_ms", [1 << 62, -(1 << 62)])
def test_a_time_that_is_none_is_said(store, path, at_ms):
    with forging(path) as file:
        file.execute(f"UPDATE entry SET written_at = ? WHERE {AT_2}", (at_ms,))
    assert [message.content for message in store.get_history(SESSION)] == TOLD
    with pytest.raises(CorruptEntryError) as caught:
        store.get_entries(SESSION)
    assert (caught.value.session, caught.value.position) == (SESSION, 2)
    rest = store.get_entries(SESSION, on_corrupt="quarantine")
    assert [entry.position for entry in rest] == [0, 1, 3, 4]
    assert [corrupt.position for corrupt in rest.corrupt] == [2]


@pytest.mark.parametrize("at_ms", [1 << 62, -(1 << 62)])
def test_times_of_sessions_and_snapshots_that_are_none_are_format_errors(store, path, at_ms):
    store.save_snapshot(SESSION)
    with forging(path) as file:
        file.execute("UPDATE session SET created_at = ?", (at_ms,))
        file.execute("UPDATE snapshot SET taken_at = ?", (at_ms,))
    with pytest.raises(FormatError):
        store.session(SESSION)
    with pytest.raises(FormatError):
        store.list_snapshots(SESSION)


def make_file(path, *, sessions=4, entries=40):
    """A file of some pages; gives what each session says."""
    told = {}
    with indelible.open(path) as store:
        for session in range(sessions):
            told[f"session {session}"] = [f"{session} {n} " + "x" * 200 for n in range(entries)]
            batch = [{"role": "user", "content": c} for c in told[f"session {session}"]]
            store.add_messages(f"session {session}", batch)
    return told


def check_all_or_loud(path, told):
    """Every session comes back whole, or its read fails; gives how many failed."""
    failed = 0
    try:
        store = indelible.open(path)
    except (FormatError, CorruptEntryError):
        return len(told)
    with store:
        for session, contents in told.items():
            try:
                history = store.get_history(session)
            except (FormatError, CorruptEntryError):
                failed += 1
            else:
                assert [message.content for message in history] == contents
    return failed


def test_a_file_with_any_page_garbled_is_loud_or_whole(path):
    told = make_file(path)
    whole = path.read_bytes()
    pages = len(whole) // 4096
    noise = random.Random(7).randbytes(4096)
    failed = 0
    for page in range(pages):
        path.write_bytes(whole[: page * 4096] + noise + whole[(page + 1) * 4096 :])
        failed += check_all_or_loud(path, told)
    assert failed >= pages / 2


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_a_format_error(path, share):
    told = make_file(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert check_all_or_loud(path, told) >= 1


def test_a_file_that_is_garbled_while_it_is_open_is_a_format_error_and_no_less(path):
    told = make_file(path)
    with indelible.open(path) as store:
        whole = path.read_bytes()
        path.write_bytes(whole[:4096] + b"\xaa" * (len(whole) - 4096))
        for session in told:
            with pytest.raises(FormatError):
                store.get_history(session)
        with pytest.raises(FormatError) as caught:
            store.add_message("session 0", "user", "more")
        assert caught.value.landed == "no"
        path.write_bytes(whole)
        for session, contents in told.items():
            assert [message.content for message in store.get_history(session)] == contents
        store.add_message("session 0", "user", "more")


@pytest.mark.parametrize("payload", [b"", b"{", b'{"sum":"'])
def test_a_payload_that_was_cut_off_is_said_by_every_verb(store, path, payload):
    store.add_tool_call(SESSION, "c1", "search", {})
    damage(path, f"UPDATE entry SET payload = ? WHERE {AT_2}", payload)
    for read in (store.get_history, store.get_entries):
        with pytest.raises(CorruptEntryError):
            read(SESSION)
        found = read(SESSION, on_corrupt="quarantine")
        assert [entry.position for entry in found.corrupt] == [2]
    # This asks for another kind, and must not pass over an entry that may be of any kind.
    with pytest.raises(CorruptEntryError):
        store.get_summaries(SESSION)
    assert not store.verify().ok
    store.clear(SESSION)
    store.add_message(SESSION, "user", "newest")
    assert store.vacuum(undo_window=0).entries == 6


def test_a_session_with_a_time_that_is_none_does_not_stop_an_export(store, path, tmp_path):
    store.add_message("other", "user", "hello")
    damage(path, "UPDATE session SET created_at = ? WHERE name = ?", 2**60, SESSION)
    target = tmp_path / "export.jsonl"
    report = store.export(target)
    assert (report.sessions, [finding.session_id for finding in report.skipped]) == (1, [SESSION])
    with pytest.raises(FormatError):
        store.export(tmp_path / "one.jsonl", SESSION)
    with indelible.open("memory:") as other:
        assert other.import_(target).sessions == 1
        assert other.list_sessions().ids == ["other"]


def test_an_entry_whose_outline_was_damaged_travels_raw(store, path, tmp_path):
    damage(path, f"UPDATE entry SET keep = 1 - keep WHERE {AT_2}")
    target = tmp_path / "export.jsonl"
    store.export(target)
    with indelible.open("memory:") as other:
        assert other.import_(target).sessions == 1
        assert not other.verify().ok
        assert [message.content for message in other.get_history(SESSION)] == TOLD


TYPED = [
    ("session", "born"),
    ("session", "created_at"),
    ("session", "last_activity"),
    *(("entry", name) for name in ("written_at", "deadline", "batch_size", "generation")),
    *(("entry", name) for name in ("payload", "call_ids", "key")),
    ("audit", "line"),
    ("audit", "hash"),
]


def damage_type(path, table, column, value):
    """Write a value of another type, which the table does not declare."""
    with beside(path) as file:
        checksums.register(file)
        schema = file.execute("SELECT sql, name FROM sqlite_schema WHERE sql <> ''").fetchall()
        file.execute("PRAGMA writable_schema = ON")
        for word in ("STRICT", "NOT NULL"):
            file.execute(
                "UPDATE sqlite_schema SET sql = replace(sql, ?, '') WHERE name = ?", (word, table)
            )
    with beside(path) as file:
        checksums.register(file)
        file.execute(f"UPDATE {table} SET {column} = {value}")
        file.execute("PRAGMA writable_schema = ON")
        for sql, name in schema:
            file.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, name))


def list_all(store, order):
    """List all sessions, one on each page."""
    listed, cursor = [], None
    while len(listed) <= 3:
        page = store.list_sessions(order=order, limit=1, cursor=cursor, expired=True)
        listed += page.ids
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(set(listed)) == sorted(listed), "a session was listed twice"


@pytest.mark.parametrize("value", ["'text'", "7", "2.5", "x'00ff'", "NULL"])
@pytest.mark.parametrize(("table", "column"), TYPED)
def test_a_value_of_another_type_is_a_typed_error(path, table, column, value):
    options = {"audit": True, "audit_key": b"a secret of the tests"}
    with indelible.open(path, **options) as store:
        for number in range(3):
            store.add_message("s", "user", f"message {number}", key=f"k{number}", ttl=1000)
        store.add_tool_call("s", "c1", "search")
        store.remember("s", "fact", id="m")
        store.clear("s", key="c")
        store.undo("s")
        store.add_message("t", "user", "another session")
        store.add_message("u", "user", "and another")
    damage_type(path, table, column, value)
    with indelible.open(path, **options) as store:
        for use in (
            lambda: store.get_history("s"),
            lambda: store.get_history("s", on_corrupt="quarantine"),
            lambda: store.get_memory("s", "m"),
            lambda: store.search("message"),
            lambda: store.timeline("s"),
            lambda: store.trim("s", max_tokens=1000),
            lambda: list_all(store, order="created"),
            lambda: list_all(store, order="-last_activity"),
            lambda: store.audit_log("s"),
            store.verify,
            lambda: store.export(io.StringIO()),
            lambda: store.add_message("s", "user", "message 1", key="k1"),
            store.repair,
            lambda: store.vacuum(undo_window=0),
            lambda: store.forget("s"),
        ):
            with suppress(MemoryStoreError):
                use()
