"""`explain_trace`: what a trace proves, and what it must never be taken to prove."""

import random
import shutil

import pytest

import indelible
from memory_contract import explain_trace, load_trace, record
from memory_contract.checker.verdict import Anomaly, Ok, Undecided, Violated
from memory_contract.history import HistoryError, Operation, write_history
from memory_contract.report import to_page
from memory_contract.traces.diagnosis import AnomalyStory, judge_lines
from memory_contract.traces.diagnosis.render import (
    ROWS_MAX,
    build_report,
    render_explanation,
    render_timeline,
)
from memory_contract.traces.format import (
    DroppedLines,
    OtherCall,
    TraceEnd,
    TraceHeader,
    format_line,
    list_parts,
    write_trace,
)
from memory_contract.traces.recorder import get_trace_writer
from tests.support.kit.tape import FRESH, OLD, Tape, names


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.jsonl"


@pytest.fixture
def tape(path):
    return Tape(path)


@pytest.fixture
def old(path):
    """A trace that begins in the middle of a store's life."""
    return Tape(path, OLD)


# What is proved


def test_a_lost_append_is_named_with_who_overwrote_it(tape):
    tape.append("a", worker="1.1-t1", at=(10, 30))
    tape.append("b", worker="2.1-t1", at=(12, 40))
    tape.read("b", worker="3.1-t1", at=(50, 60))
    found = tape.explained()
    assert names(found) == ["lost append"]
    (story,) = found.stories
    assert story.anomaly.ids == ("a",)
    assert [op.worker for op in story.small] == ["1.1-t1", "2.1-t1", "3.1-t1"]
    said = render_explanation(found)
    assert "a was acknowledged to 1.1-t1 and is missing" in said
    assert "Likely: 2.1-t1 wrote back a list" in said
    assert "2.1-t1     ├─────┤        s: append [b]" in said


def test_an_entry_of_another_session_is_a_leak_wherever_it_came_from(tape):
    for n in range(40):
        tape.append(f"x{n}", session=f"s{n}", worker=f"1.1-t{n}")
    tape.read("x7", session="other")
    found = tape.explained()
    assert names(found) == ["cross-session leak"]
    assert "x7 was appended to session s7 and seen in other" in render_explanation(found)


def test_the_same_words_twice_are_two_entries(tape):
    tape.append("yes")
    tape.append("no")
    tape.append("yes")
    tape.read("yes", "no", "yes")
    assert isinstance(tape.explained().verdict, Ok)


def test_one_of_two_equal_entries_can_be_missed(tape):
    tape.append("yes")
    tape.append("yes")
    tape.read("yes")
    found = tape.explained()
    assert names(found) == ["lost append"]
    assert "2 entries yes were acknowledged and 1 is missing" in render_explanation(found)


def test_more_equal_entries_than_were_said_are_a_duplicate(tape):
    tape.append("yes")
    tape.append("yes")
    tape.read("yes", "yes", "yes")
    assert names(tape.explained()) == ["duplicate"]


def test_a_retry_with_its_key_is_one_entry(tape):
    tape.append("a", key="k", outcome="info")
    tape.append("a", key="k")
    tape.read("a", "a")
    assert names(tape.explained()) == ["duplicate after retry"]


def test_a_field_that_got_lost_is_a_corrupted_entry(tape):
    tape.append("a+11112222", "b")
    tape.read("a", "b")
    assert names(tape.explained()) == ["corrupted entry"]


def test_a_field_that_a_store_added_is_none(tape):
    tape.append("a+11112222", "b")
    tape.read("a+11112222+33334444", "b+33334444")
    assert isinstance(tape.explained().verdict, Ok)


# What is not


def test_what_is_older_than_the_trace_is_nobodys_fault(old):
    old.read("o1", "o2")
    old.append("a")
    old.read("o1", "o2", "a")
    old.call("pop", value="a")
    old.call("pop", value="o2")
    old.read("o1")
    assert isinstance(old.explained().verdict, Ok)


def test_words_that_may_be_older_than_the_trace_are_not_held_against_a_store(old):
    # An older "yes" stands before a; the newer one was popped.
    old.append("a")
    old.append("yes")
    old.call("pop", value="yes")
    old.read("yes", "a")
    assert isinstance(old.explained().verdict, Ok)


def test_what_was_looked_for_and_was_not_there_is_new(old):
    old.read("o1")
    old.append("a")
    old.append("b")
    old.read("o1", "b")
    assert names(old.explained()) == ["lost append"]


def test_a_trim_that_looks_at_more_than_numbers_may_keep_more(tape):
    tape.append("sys", roles=("system",), structured=True)
    tape.append("a")
    tape.append("b")
    tape.call("trim", keep=1)
    tape.read("sys", "b")
    assert isinstance(tape.explained().verdict, Ok)


def test_a_trim_counts_entries_that_share_a_hash(tape):
    tape.append("a")
    tape.append("yes")
    tape.append("yes")
    tape.call("trim", keep=2)
    tape.read("yes", "yes")
    assert isinstance(tape.explained().verdict, Ok)


def test_a_read_of_the_last_ones_counts_entries_that_share_a_hash(tape):
    tape.append("a")
    tape.append("yes")
    tape.append("b")
    tape.append("yes")
    tape.read("yes", "b", "yes", limit=3)
    assert isinstance(tape.explained().verdict, Ok)


def test_a_snapshot_that_somebody_deleted_is_not_lost(tape):
    tape.append("a")
    tape.call("snapshot", snapshot="p")
    write_trace(tape.path, tape.header, tape.lines)
    tape.call("rollback", snapshot="p", outcome="fail", value="not found", at=(20, 21))
    assert names(tape.explained()) == ["lost snapshot"]
    deleted = OtherCall(
        session="s",
        worker="1.1-t1",
        verb="delete_snapshot",
        invoke_ns=8,
        complete_ns=9,
        outcome="ok",
        snapshot="p",
    )
    tape.path.write_text(tape.path.read_text() + format_line(deleted) + "\n")
    assert isinstance(explain_trace(tape.path).verdict, Ok)


def test_a_clear_that_was_only_announced_may_have_happened(tape):
    tape.append("a")
    tape.call("clear", at=(5, None), outcome="info")
    tape.read()
    assert isinstance(tape.explained().verdict, Ok)


def test_a_clear_of_everything_clears_every_session(tape):
    tape.append("a")
    tape.append("b", session="t")
    tape.call("clear", session="", every=True)
    tape.read()
    tape.read(session="t")
    assert isinstance(tape.explained().verdict, Ok)


def test_a_session_may_have_any_name(tmp_path):
    with record(indelible.open("memory:"), tmp_path / "t", fresh=True) as store:
        for name in ("*", '","every":true,"', "\u2028", "a"):
            store.add_message(name, "user", f"in {name}")
            store.get_history(name)
        store.clear_all()
        store.get_history("*")
    found = explain_trace(tmp_path / "t")
    assert isinstance(found.verdict, Ok)
    assert found.verdict.scope.sessions == 4


def test_what_came_in_by_another_way_than_an_append_is_no_garbage(tmp_path):
    with record(indelible.open("memory:"), tmp_path / "t", fresh=True) as store:
        store.add_entries("s", [indelible.ChatMessage(role="user", content="a")])
        store.get_history("s")
        store.add_message("s", "user", "b")
        store.get_history("s")
        store.export(tmp_path / "all.jsonl")
        store.forget("s")
        store.import_(tmp_path / "all.jsonl")
        store.get_history("s")
    found = explain_trace(tmp_path / "t")
    assert not isinstance(found.verdict, Violated), render_explanation(found)


def test_an_append_that_failed_and_was_made_again_is_one(tape):
    tape.append("a", outcome="fail")
    tape.append("a")
    tape.read("a")
    assert isinstance(tape.explained().verdict, Ok)
    tape.read("a", "a")
    assert names(tape.explained()) == ["duplicate"]


@pytest.mark.parametrize("gap", ["dropped", "killed"])
def test_where_lines_are_missing_nothing_is_called_a_duplicate_or_garbage(tape, gap):
    tape.append("a")
    tape.read("a", "a", "never appended")
    assert names(tape.explained()) == ["duplicate", "garbage read"]
    lines = [format_line(tape.header), *map(format_line, tape.lines)]
    if gap == "dropped":
        lines += [format_line(DroppedLines(dropped=3)), format_line(TraceEnd(closed=2))]
    tape.path.write_text("\n".join(lines) + "\n")
    found = explain_trace(tape.path)
    assert not isinstance(found.verdict, Violated)
    assert "missing" in render_explanation(found)


def test_the_text_of_blocks_in_turns_is_no_strange_entry(path):
    with record(indelible.open("memory:"), path, fresh=True) as store:
        blocks = [[{"type": "text", "text": "hi"}], [{"type": "output_text", "text": "ho"}]]
        said = zip(("user", "assistant"), blocks, strict=True)
        store.add_messages("s", [{"role": role, "content": content} for role, content in said])
        assert store.load_memory("s") == [{"human": "hi", "ai": "ho"}]
    assert isinstance(explain_trace(path).verdict, Ok)


def test_a_refused_repeat_of_a_hidden_key_is_no_lost_append(path):
    with record(indelible.open("memory:"), path, fresh=True) as store:
        store.add_message("s", "user", "hi", key="k")
        store.clear("s")
        store.add_message("s", "user", "hi", key="k", replay="hidden-ok")
        with pytest.raises(indelible.ConflictError):
            store.add_message("s", "user", "hi", key="k")
        store.get_history("s")
        store.undo("s")
        store.get_history("s")
    assert isinstance(explain_trace(path).verdict, Ok)


def test_turns_are_not_held_to_what_they_leave_out(tape):
    tape.append("sys", roles=("system",), structured=True)
    tape.append("q", "r", roles=("user", "assistant"))
    tape.read("q", "r", turns=True)
    assert isinstance(tape.explained().verdict, Ok)


def test_expiry_is_no_loss_and_too_early_is_one(tape):
    tape.append("a", at=(1, 2), ttl_s=2.0)
    tape.read(at=(1_500_000_000, 1_500_000_001))
    assert names(tape.explained()) == ["early expiry"]
    tape.lines.pop()
    tape.read(at=(2_500_000_000, 2_500_000_001))
    assert isinstance(tape.explained().verdict, Ok)
    tape.lines.pop()
    tape.read("a", at=(9_000_000_000, 9_000_000_001))
    assert names(tape.explained()) == ["zombie entry"]


SAID = ("yes", "no", "ok", "where is it?", "thanks")


def change(rng, store, session, snapshots):
    """Take something away, or bring it back."""
    match rng.randrange(5):
        case 0:
            store.clear(session)
        case 1:
            store.trim(session, keep_last=rng.randrange(4))
        case 2:
            snapshots[session].append(store.save_snapshot(session).id)
        case 3 if snapshots[session]:
            store.rollback_to_snapshot(session, rng.choice(snapshots[session]))
        case 4 if store.timeline(session).undo is not None:
            store.undo(session)


def talk(rng, store, session):
    """Say something, or look."""
    match rng.randrange(7):
        case 0:
            store.save_context(session, rng.choice(SAID), rng.choice(SAID))
        case 1:
            role = rng.choice(("system", "user"))
            store.add_message(session, role, rng.choice(SAID), pinned=rng.random() < 0.3)
        case 2:
            store.get_history(session, last=rng.randrange(5))
        case 3:
            store.load_memory(session)
        case 4:
            store.get_history(session)
        case _:
            store.add_message(session, "user", rng.choice((*SAID, f"{rng.random()}")))


@pytest.mark.parametrize("seed", range(12))
def test_a_right_store_is_never_accused_whatever_it_is_told(tmp_path, seed, monkeypatch):
    """Few different words, so that most are said twice; a trace that begins late; lines lost."""
    rng = random.Random(seed)
    inner = indelible.open("memory:")
    fresh = rng.random() < 0.5
    if not fresh:
        for n in range(6):
            inner.add_message(f"s{n % 2}", "user", rng.choice(SAID))
        inner.save_snapshot("s0")
    snapshots = {"s0": [s.id for s in inner.list_snapshots("s0")], "s1": []}
    size = rng.choice((5, 50_000))
    monkeypatch.setattr("memory_contract.traces.recorder.trace_writer.BUFFERED_MAX", size)
    store = record(inner, tmp_path / "t", fresh=fresh)
    for _ in range(120):
        session = rng.choice(("s0", "s1"))
        if rng.random() < 0.4:
            change(rng, store, session, snapshots)
        else:
            talk(rng, store, session)
    store.get_history("s0")
    store.close()
    found = explain_trace(tmp_path / "t")
    assert not isinstance(found.verdict, Violated), render_explanation(found)


# Files


def test_a_history_of_the_kit_is_a_trace(path):
    ops = [
        Operation(
            worker="w0",
            session="ü\ud800",
            op="append",
            invoke_ns=1,
            complete_ns=2,
            outcome="ok",
            ids=("e0",),
        ),
        Operation(
            worker="w1",
            session="ü\ud800",
            op="read",
            invoke_ns=3,
            complete_ns=4,
            outcome="ok",
            value=(),
        ),
    ]
    write_history(path, ops)
    assert names(explain_trace(path)) == ["lost append"]


def test_a_file_is_judged_as_its_lines_in_memory_are(tape):
    for n in range(60):
        tape.append(f"a{n}", session=f"s{n}", worker=f"1.1-t{n}")
        tape.call("fork", session=f"s{n}", target=f"f{n}", worker=f"1.1-t{n}")
        shown = () if n in (7, 23) else (f"a{n}",)
        tape.read(*shown, session=f"s{n}", worker=f"1.1-t{n}")
    whole = tape.explained()
    trace = load_trace(tape.path)
    in_memory = judge_lines(trace.lines, trace.metadata)
    assert in_memory.counts == whole.counts == {"lost append": 2}
    assert in_memory.verdict.scope == whole.verdict.scope


def test_a_fork_is_held_to_what_was_appended_to_it(tape):
    tape.append("a")
    tape.call("fork", target="t")
    tape.read("a", session="t")
    tape.append("b", session="t")
    tape.read("a", "b", session="t")
    assert isinstance(tape.explained().verdict, Ok)
    tape.read("a", session="t")
    found = tape.explained()
    assert names(found) == ["lost append"]
    assert found.stories[0].anomaly.session == "t"


def test_forks_in_a_history_of_the_kit_are_judged_together(path):
    def call(op, at, **fields):
        fields = {"worker": "w0", "session": "s", "outcome": "ok"} | fields
        return Operation(op=op, invoke_ns=at, complete_ns=at + 1, **fields)

    history = [
        call("append", 1, ids=("e0",)),
        call("fork", 3, target="t"),
        call("read", 5, session="t", value=("e0",)),
    ]
    for session in (None, "t"):
        write_history(path, history)
        assert isinstance(explain_trace(path, session=session).verdict, Ok)
    write_history(path, [*history, call("read", 7, session="t", value=("e0", "e1"))])
    assert names(explain_trace(path)) == ["garbage read"]


def test_sessions_of_any_name_are_told_apart(tape):
    names = ["", "a", "A", "\ud800", "é", "a\0b", 'say "hi"', "\\"]
    for name in names:
        tape.append(f"x{names.index(name)}", session=name)
        tape.read(f"x{names.index(name)}", session=name)
    found = tape.explained()
    assert isinstance(found.verdict, Ok)
    assert found.verdict.scope.sessions == len(names)


def test_one_session_can_be_asked_for(tape):
    for session in ("s", "t"):
        tape.append(f"a-{session}", session=session)
        tape.read(session=session)
    found = tape.explained(session="t")
    assert found.counts == {"lost append": 1}
    assert found.stories[0].anomaly.session == "t"


def test_the_torn_last_line_of_a_killed_process_is_no_error(tape):
    tape.append("a")
    tape.explained()
    cut = tape.path.read_text().splitlines()[:-1]
    tape.path.write_text("\n".join([*cut, '{"session":"s","worker":"1.1-t1","op":"app']))
    found = explain_trace(tape.path)
    assert isinstance(found.verdict, Ok)
    assert found.metadata.dropped == 1


def test_a_history_that_is_cut_off_accuses_nobody(path):
    def call(worker, op, at, **fields):
        fields = {"worker": worker, "session": "s", "outcome": "ok"} | fields
        return Operation(op=op, invoke_ns=at, complete_ns=at + 1, **fields)

    # Worker by worker, as the kit writes it.
    history = [
        call("w0", "append", 1, ids=("a",)),
        call("w0", "read", 20, value=("b",)),
        call("w1", "clear", 5),
        call("w1", "append", 10, ids=("b",)),
    ]
    write_history(path, history)
    assert isinstance(explain_trace(path).verdict, Ok)
    whole = path.read_bytes()
    for end in (len(whole) - 9, whole.rindex(b"clear")):
        path.write_bytes(whole[:end])
        found = explain_trace(path)
        assert isinstance(found.verdict, Undecided), render_explanation(found)
        assert "cut off" in found.verdict.reason


@pytest.mark.parametrize("seen", [(), ("b",)])
def test_a_file_that_is_cut_off_excuses_what_was_seen_after_its_end(tmp_path, seen):
    """What its process cleared later is missing; what was lost before is lost."""
    one = Tape(tmp_path / "1.jsonl", TraceHeader(fresh=True, pid=1))
    one.append("a", at=(10, 20))
    one.call("clear", at=(30, 40))
    two = Tape(tmp_path / "2.jsonl", TraceHeader(fresh=True, pid=2))
    two.append("b", worker="2.1-t1", at=(1, 2))
    two.read(*seen, worker="2.1-t1", at=(5, 8))
    two.read(worker="2.1-t1", at=(50, 60))
    for tape in (one, two):
        write_trace(tape.path, tape.header, tape.lines)
    text = one.path.read_bytes()
    one.path.write_bytes(text[: text.index(b"clear")])
    assert names(explain_trace(tmp_path)) == ([] if seen else ["lost append"])


def test_what_happens_while_a_trace_is_read_is_not_judged(tmp_path, monkeypatch):
    """The first file has been read when its process clears the session."""
    monkeypatch.setattr("memory_contract.traces.diagnosis.trace_reader.PROGRESS_LINES", 1)
    folder = tmp_path / "trace"
    store = indelible.open("memory:")
    first = record(store, folder / "1.jsonl", fresh=True)
    shutil.copy(folder / "1.key", folder / "2.key")
    second = record(store, folder / "2.jsonl", fresh=True)
    first.add_message("s", "user", "a")
    second.get_history("s")
    for recorded in (first, second):
        get_trace_writer(recorded).flush()
    sizes = [part.stat().st_size for part in list_parts(folder)]

    def go_on(doing, share):
        if doing == "reading" and share > sizes[0] / sum(sizes) and first.get_history("s"):
            first.clear("s")
            second.get_history("s")
            get_trace_writer(second).flush()

    found = explain_trace(folder, progress=go_on)
    assert store.get_history("s") == []
    assert found.verdict.scope.operations == 3
    assert not isinstance(found.verdict, Violated), render_explanation(found)
    store.close()


def test_a_trace_without_an_operation_proves_nothing(tape, path):
    found = tape.explained()
    assert isinstance(found.verdict, Undecided)
    assert found.verdict.reason == "the trace holds no operation"
    tape.append("a")
    found = tape.explained(session="nobody")
    assert isinstance(found.verdict, Undecided)
    assert found.verdict.reason == "the trace holds no operation of session nobody"
    for text in (b"", b'{"indelible_trace": 1, "ver', b"no trace at all"):
        path.write_bytes(text)
        assert isinstance(explain_trace(path).verdict, Undecided)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "line 2: no JSON"),
        ('{"session":"s","worker":"w","op":"append"}', "line 2: 'invoke_ns' is missing"),
        ('{"indelible_trace": 99}', "line 2: a trace of format 99; this version reads 1"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(path, line, words):
    path.write_text(f"{format_line(FRESH)}\n{line}\n")
    with pytest.raises(HistoryError, match=words):
        explain_trace(path)


def test_machines_cannot_be_compared(tmp_path):
    for boot, wall in (("one", 1_000), ("two", 2_000)):
        tape = Tape(tmp_path / f"{boot}.jsonl", TraceHeader(fresh=True, boot=boot, wall_ns=wall))
        tape.append(f"a-{boot}")
        tape.read()
        write_trace(tape.path, tape.header, tape.lines)
    verdict = explain_trace(tmp_path).verdict
    assert isinstance(verdict, Undecided)
    assert "clocks" in verdict.reason
    with pytest.raises(HistoryError, match="clocks cannot be compared"):
        load_trace(tmp_path)


def test_hashes_of_several_keys_cannot_be_compared(tmp_path):
    store = indelible.open("memory:")
    first, second = (record(store, tmp_path / f"{n}.jsonl", fresh=True) for n in (1, 2))
    first.add_message("s", "user", "a")
    second.get_history("s")
    for recorded in (first, second):
        get_trace_writer(recorded).close()
    verdict = explain_trace(tmp_path).verdict
    assert isinstance(verdict, Undecided)
    assert "different keys" in verdict.reason
    with pytest.raises(HistoryError, match="cannot be replayed: its files were hashed with"):
        load_trace(tmp_path)


def test_a_long_timeline_shows_what_the_proof_is_about():
    def call(worker, name, at, **fields):
        times = {"invoke_ns": at, "complete_ns": at + 1, "outcome": "ok"}
        return Operation(worker=worker, session="s", op=name, **times, **fields)

    kept = [call("w0", "append", 2 * at, ids=(f"m{at}",)) for at in range(40)]
    lost = call("w1", "append", 90, ids=("lost",))
    read = call("w2", "read", 92, value=tuple(f"m{at}" for at in range(40)))
    anomaly = Anomaly("lost append", "s", ("lost",), (lost, read), "lost is missing")
    rows = render_timeline(AnomalyStory(anomaly, (*kept, lost, read), ()))
    assert len(rows) == 1 + ROWS_MAX + 1
    assert "append [lost]" in rows[-3]
    assert "read saw" in rows[-2]
    assert rows[-1] == "    … and 26 more"


def test_a_page_shows_the_timeline_and_asks_the_network_for_nothing(tape):
    tape.append("a")
    tape.read()
    page = to_page(build_report(tape.explained(), command="memory-contract explain trace.jsonl"))
    assert "memory-contract explain trace.jsonl" in page
    assert "lost append" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_real_race_is_explained(tmp_path):
    store = record(indelible.open("memory:"), tmp_path / "t", fresh=True)
    store.add_message("s", "user", "a")
    store.get_history("s")
    get_trace_writer(store).flush()
    store.close()
    found = explain_trace(tmp_path / "t")
    assert isinstance(found.verdict, Ok)
    assert found.verdict.scope.operations == 2
