"""Export and import: an equal session on any engine, or nothing."""

import base64
import io
import json

import pytest

import indelible
from indelible import (
    ConflictError,
    CorruptEntryError,
    FormatError,
    SessionNotFoundError,
    UsageError,
)
from tests.support.lived_sessions import exported, lived, state


@pytest.mark.parametrize("target", ["memory:", "target.db"])
def test_an_imported_session_equals_the_exported_one(store, clock, target, tmp_path):
    session = lived(store)
    url = target if target == "memory:" else tmp_path / target
    with indelible.open(url, clock=clock) as other:
        report = other.import_(exported(store))
        assert (report.sessions, report.entries, report.snapshots) == (1, 9, 2)
        assert state(other, session) == state(store, session)


def test_every_rollback_target_and_undo_works_the_same_after_an_import(store, clock):
    session = lived(store)
    with indelible.open("memory:", clock=clock) as other:
        other.import_(exported(store))
        for snapshot in store.list_snapshots(session):
            for one in (store, other):
                one.rollback_to_snapshot(session, snapshot.id)
            assert state(other, session)["entries"] == state(store, session)["entries"]
        for _ in range(3):
            assert other.undo(session).restored == store.undo(session).restored
        assert other.get_history(session) == store.get_history(session)


def test_a_key_is_still_known_after_an_import(store, clock):
    session = lived(store)
    with indelible.open("memory:", clock=clock) as other:
        other.import_(exported(store))
        receipt = other.save_context(session, "q1", "a1", key="turn-1", replay="hidden-ok")
        assert receipt.replayed
        assert receipt.positions == range(1, 3)
        with pytest.raises(ConflictError):
            other.save_context(session, "q1", "something else", key="turn-1")


def test_an_export_of_an_import_is_the_same_text(store, clock):
    lived(store)
    text = exported(store).getvalue()
    with indelible.open("memory:", clock=clock) as other:
        other.import_(io.StringIO(text))
        assert exported(other).getvalue() == text


def test_positions_stay_after_a_vacuum_and_in_a_later_life(make_store, clock):
    store = make_store(ttl=60)
    store.add_message("s", "user", "first life")
    clock.advance(61)
    for number in range(6):
        store.add_message("s", "user", f"m{number}")
    store.trim("s", keep_last=2)
    store.vacuum(undo_window=0)
    with indelible.open("memory:", clock=clock) as other:
        other.import_(exported(store))
        assert state(other, "s") == state(store, "s")
        assert other.add_message("s", "user", "next").positions == range(7, 8)


def test_a_session_that_exists_is_a_conflict_and_stays_as_it_is(store):
    session = lived(store)
    lines = exported(store)
    before = state(store, session)
    with pytest.raises(ConflictError) as caught:
        store.import_(lines)
    assert caught.value.reason == "exists"
    assert state(store, session) == before


def test_a_file_that_was_cut_off_imports_nothing_of_its_last_session(store):
    lived(store)
    for cut in (2, 5, -1):
        lines = exported(store).getvalue().splitlines(keepends=True)[:cut]
        with indelible.open("memory:") as other:
            with pytest.raises(FormatError, match="cut off"):
                other.import_(io.StringIO("".join(lines)))
            assert other.session("origin").status == "new"
            assert other.get_history("origin") == []
            # And the whole file still goes in afterwards.
            assert other.import_(exported(store)).sessions == 1


def test_an_entry_that_was_changed_in_the_file_is_refused_with_its_line(store):
    lived(store)
    text = exported(store).getvalue().replace('"content":"q1"', '"content":"Q1"')
    with indelible.open("memory:") as other:
        with pytest.raises(FormatError, match="line 4"):
            other.import_(io.StringIO(text))
        assert other.session("origin").status == "new"


def test_something_else_than_an_export_is_refused(store):
    for text in ("", "hello\n", '{"indelible":"export","format":99}\n', "[1]\n"):
        with pytest.raises(FormatError):
            store.import_(io.StringIO(text))


def test_an_export_and_an_import_take_a_path_or_a_text_file(store):
    store.add_message("s", "user", "hi")
    for other in (None, 5, ["a line\n"]):
        with pytest.raises(UsageError):
            store.export(other)
        with pytest.raises(UsageError):
            store.import_(other)


def test_one_session_or_a_prefix_can_be_exported(store):
    for name in ("a/1", "a/2", "b/1"):
        store.add_message(name, "user", name)
    lines = io.StringIO()
    assert store.export(lines, prefix="a/").sessions == 2
    headers = [json.loads(line) for line in lines.getvalue().splitlines() if '"session":{' in line]
    assert sorted(line["session"]["id"] for line in headers) == ["a/1", "a/2"]
    with pytest.raises(SessionNotFoundError):
        store.export(io.StringIO(), "nobody")


@pytest.mark.parametrize("chosen", [{"session_id": "a/1", "prefix": "b/"}, {"prefix": 5}])
def test_an_export_that_cannot_be_meant_is_refused(store, chosen):
    store.add_message("a/1", "user", "hi")
    lines = io.StringIO()
    with pytest.raises(UsageError):
        store.export(lines, **chosen)
    assert lines.getvalue() == ""


def test_a_session_that_ends_while_it_is_exported_is_a_conflict_that_says_so():
    class Forgetting(io.StringIO):
        def write(self, line):
            if line.startswith('{"session"'):
                store.forget("s")
            return super().write(line)

    with indelible.open("memory:") as store:
        store.add_message("s", "user", "hi")
        with pytest.raises(ConflictError, match="while it was exported") as caught:
            store.export(Forgetting(), "s")
        assert caught.value.reason == "gone"


def test_a_file_gets_its_name_when_the_export_is_complete(store, tmp_path):
    lived(store)
    path = tmp_path / "sessions.jsonl"
    path.write_text("an older export")

    def fail(session_id, entries):
        assert path.read_text() == "an older export"
        raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        store.export(path, progress=fail)
    assert path.read_text() == "an older export"
    assert [file.name for file in tmp_path.glob("*.jsonl*")] == ["sessions.jsonl"]
    store.export(path)
    with indelible.open("memory:") as other:
        assert other.import_(path).sessions == 1


def test_an_expired_session_is_not_exported(make_store, clock):
    store = make_store(ttl=10)
    store.add_message("s", "user", "hello")
    clock.advance(11)
    assert store.export(io.StringIO()).sessions == 0


def tampered(text, kind, fields):
    """The export with fields of its first line of a kind replaced."""
    lines = [json.loads(line) for line in text.splitlines()]
    next(line[kind] for line in lines if kind in line).update(fields)
    return io.StringIO("".join(json.dumps(line) + "\n" for line in lines))


MISFITS = [
    ("session", {"view": {"extents": [], "tail": 99}}),
    ("session", {"view": {"extents": [[0, 2**40]], "tail": 2**41}}),
    ("session", {"end": 2**40}),
    ("session", {"end": 3}),
    ("session", {"born": -1}),
    ("session", {"metadata": None}),
    ("snapshot", {"end": 99}),
    ("snapshot", {"view": {"extents": [[5, 2**50]], "tail": 2**51}}),
    ("journal", {"end": 99}),
    ("journal", {"before": {"extents": [], "tail": 98}}),
    ("entry", {"position": 5}),
    ("entry", {"position": 2**70}),
    ("entry", {"written_at_ms": "soon"}),
    ("entry", {"kind": "poem"}),
    ("end", {"entries": 8}),
]


def test_a_file_that_does_not_fit_together_is_refused_and_shows_nothing(store):
    session = lived(store)
    text = exported(store).getvalue()
    for kind, fields in MISFITS:
        with indelible.open("memory:") as other:
            with pytest.raises(FormatError):
                other.import_(tampered(text, kind, fields))
            assert other.session(session).status == "new"
            assert other.get_history(session) == []


def test_an_import_that_was_broken_off_can_be_repeated(store):
    lived(store)
    text = exported(store).getvalue()
    with indelible.open("memory:") as other:
        with pytest.raises(FormatError):
            other.import_(io.StringIO("".join(text.splitlines(keepends=True)[:7])))
        assert other.import_(io.StringIO(text)).sessions == 1


def test_a_session_that_expired_may_be_imported_anew(make_store, clock):
    store = make_store(ttl=60)
    store.add_message("s", "user", "hello")
    lines = exported(store)
    clock.advance(30)
    store.add_message("s", "user", "later")
    clock.advance(61)
    assert store.session("s").status == "expired"
    assert store.import_(lines).sessions == 1


def test_bytes_that_could_not_be_read_where_they_stood_cannot_be_read_after_an_import(store):
    """An engine that binds entries to their place exports those at a wrong one as bytes alone."""
    for text in ("one", "two", "three"):
        store.add_message("origin", "user", text)
    lines = [json.loads(line) for line in exported(store)]
    (second,) = (line["entry"] for line in lines if line.get("entry", {}).get("position") == 1)
    raw = json.dumps(second.pop("envelope"), separators=(",", ":"))
    second["raw"] = base64.b64encode(raw.encode()).decode()
    store.forget("origin")
    store.import_(io.StringIO("\n".join(map(json.dumps, lines))))
    with pytest.raises(CorruptEntryError) as caught:
        store.get_history("origin")
    assert caught.value.position == 1
    rest = store.get_history("origin", on_corrupt="quarantine")
    assert [message.content for message in rest] == ["one", "three"]
    assert rest.corrupt[0].raw == raw.encode()
