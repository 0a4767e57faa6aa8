"""Traces that begin in the middle of a store's life: what is lost is still found, and no more."""

import contextlib
import dataclasses
import random

import pytest

import indelible
from memory_contract import explain_trace, record
from memory_contract.checker.verdict import Ok, Undecided, Violated
from memory_contract.traces.diagnosis import judge_lines
from memory_contract.traces.diagnosis.render import render_explanation
from memory_contract.traces.diagnosis.trace_reader import TraceMetadata
from memory_contract.traces.format import (
    REMOVERS,
    DroppedLines,
    TraceHeader,
    TraceOperation,
    format_line,
    write_trace,
)
from memory_contract.traces.recorder import get_trace_writer
from tests.support.kit.simulated import EVERYTHING, legal
from tests.support.kit.tape import OLD, Tape, names


@pytest.fixture
def old(tmp_path):
    """A trace that does not say that the store was empty."""
    return Tape(tmp_path / "trace.jsonl", OLD)


# What is lost


def test_an_acknowledged_entry_is_lost_whatever_was_there_before(old):
    for each in ("a", "b", "c"):
        old.append(each)
    old.read("c")
    found = old.explained()
    assert names(found) == ["lost append"]
    assert found.counts["lost append"] == 2
    assert "a was acknowledged to 1.1-t1 and is missing from the final read" in render_explanation(
        found
    )


def test_so_many_of_one_text_must_be_there_as_were_acknowledged(old):
    old.append("yes")
    old.append("yes")
    old.read("older", "yes")
    found = old.explained()
    assert names(found) == ["lost append"]
    assert "2 entries yes were acknowledged and 1 is missing" in render_explanation(found)


def test_one_that_is_back_later_was_a_stale_read(old):
    old.append("a")
    old.read()
    old.read("a")
    assert names(old.explained()) == ["stale read"]


def test_what_was_seen_after_a_trim_must_stay(old):
    old.append("a", "b")
    old.call("trim", keep=1)
    old.read("b")
    old.read()
    assert names(old.explained()) == ["lost append"]


def test_a_loss_is_seen_after_lines_were_dropped(old):
    old.append("a")
    old.read()
    write_trace(old.path, old.header, old.lines)
    lines = old.path.read_text().splitlines()
    lines.insert(1, format_line(DroppedLines(dropped=4)))
    old.path.write_text("\n".join(lines) + "\n")
    assert names(explain_trace(old.path)) == ["lost append"]


# What is not


def test_an_older_entry_of_the_same_text_is_no_accusation(old):
    old.append("a")
    old.append("yes")
    old.call("pop", value="yes")
    old.read("yes", "a")
    old.read("yes", "a")
    assert isinstance(old.explained().verdict, Ok)


@pytest.mark.parametrize(
    "change",
    [
        {"op": "clear"},
        {"op": "clear", "outcome": "info"},
        {"op": "undo"},
        {"op": "trim", "keep": 3},
        {"op": "pop"},
        {"op": "pop", "value": "b"},
        {"op": "rollback", "snapshot": "older than the trace"},
        {"op": "clear", "session": "", "every": True},
    ],
)
def test_what_something_may_have_removed_is_not_lost(old, change):
    old.append("a")
    old.call(**change, at=(10, None if change.get("outcome") == "info" else 20))
    old.read(at=(30, 40))
    assert not names(old.explained())


def test_a_change_that_began_during_the_read_may_have_removed_it(old):
    old.append("a", at=(1, 2))
    old.read(at=(3, 20), worker="1.1-t2")
    old.call("clear", at=(10, 30))
    assert isinstance(old.explained().verdict, Ok)


def test_an_announced_change_may_happen_at_any_later_time(old):
    old.call("clear", at=(1, None), outcome="info", worker="2.1-t1")
    old.append("a", at=(5, 6))
    old.read(at=(7, 8))
    assert not names(old.explained())


def test_a_read_of_the_last_ones_lacks_what_it_cuts_off(old):
    old.append("a")
    old.append("b")
    old.read("b", limit=1)
    assert not names(old.explained())


def test_a_key_may_be_older_than_the_trace(old):
    # Appended with this key before the trace, and cleared since: the retry stores nothing.
    old.read()
    old.append("a", key="k", position=0)
    old.read()
    assert not names(old.explained())


def test_a_key_that_was_given_a_new_position_is_new(old):
    old.append("a", position=7)
    old.append("b", key="k", position=8)
    old.read("a")
    assert names(old.explained()) == ["lost append"]


def test_an_end_that_cannot_be_known_excuses(tmp_path):
    header = TraceHeader(ttl_s=60.0, ttl_refreshed_by="nothing")
    late = Tape(tmp_path / "trace.jsonl", header)
    late.append("a")
    late.read()
    assert not names(late.explained())


def test_what_a_removed_file_may_have_told_excuses(tmp_path):
    """Two processes write; the first lines of one, which may have cleared, made room for others."""
    one = Tape(tmp_path / "1.jsonl", TraceHeader(pid=1, monotonic_ns=0))
    one.append("a", at=(10, 20))
    two = Tape(tmp_path / "2.jsonl", TraceHeader(pid=2, monotonic_ns=50, continued=True))
    two.read(worker="2.1-t1", at=(60, 70))
    for tape in (one, two):
        write_trace(tape.path, tape.header, tape.lines)
    assert not names(explain_trace(tmp_path))
    one.append("b", at=(55, 58))
    write_trace(one.path, one.header, one.lines)
    assert names(explain_trace(tmp_path)) == ["lost append"]


def test_a_change_that_could_not_be_written_down_excuses(old):
    old.append("a")
    old.read()
    write_trace(old.path, old.header, old.lines)
    lines = old.path.read_text().splitlines()
    lines.insert(2, format_line(DroppedLines(dropped=1, changes=1)))
    old.path.write_text("\n".join(lines) + "\n")
    found = explain_trace(old.path)
    assert isinstance(found.verdict, Undecided)
    assert "changes" in render_explanation(found)


# How much was judged


def test_the_number_of_operations_that_were_not_judged_is_told(old):
    for number in range(10):
        old.append(f"a{number}")
    old.append("k", key="may be older")
    old.read(*(f"a{number}" for number in range(10)), "k")
    found = old.explained()
    assert isinstance(found.verdict, Ok)
    assert found.verdict.scope.operations == 12
    assert found.unjudged == 1
    assert "1 of 12 operations was not judged" in render_explanation(found)


def test_where_most_was_not_judged_nothing_is_decided(old):
    for number in range(3):
        old.append(f"k{number}", key=f"{number}")
    old.read("k0", limit=1)
    found = old.explained()
    assert isinstance(found.verdict, Undecided)
    assert "of 4 operations were not judged" in render_explanation(found)


# Many stores


class Plain:
    """Right, and small: lists in a dict."""

    def __init__(self):
        self.sessions = {}

    def add_messages(self, session, messages):
        self.sessions.setdefault(session, []).extend(messages)

    def get_history(self, session):
        return list(self.sessions.get(session, ()))

    def clear(self, session):
        self.sessions.pop(session, None)

    def pop(self, session):
        held = self.sessions.get(session)
        return held.pop() if held else None


class ForgetsTheOldest(Plain):
    def get_history(self, session):
        return super().get_history(session)[-3:]


class LosesSome(Plain):
    def add_messages(self, session, messages):
        if messages[0]["content"] != "5":
            super().add_messages(session, messages)


class ClearsOthers(Plain):
    def clear(self, session):
        self.sessions.clear()


def talk_late(store_class, path, seed, *, rounds=60):
    """Talk to a store, and record it only from somewhere in the middle on."""
    rng = random.Random(seed)
    store = store_class()
    recorded = None
    for number in range(rounds):
        if number == rounds // 3:
            recorded = record(store, path)
        on = recorded if recorded is not None else store
        session = rng.choice("st")
        match rng.randrange(12):
            case 0:
                on.clear(session)
            case 1:
                on.pop(session)
            case 2 | 3 | 4:
                on.get_history(session)
            case _:
                on.add_messages(session, [{"role": "user", "content": str(rng.randrange(8))}])
    for session in "st":
        recorded.get_history(session)
    get_trace_writer(recorded).close()
    return explain_trace(path)


@pytest.mark.parametrize("seed", range(25))
def test_a_right_store_is_not_accused_by_a_trace_that_began_late(tmp_path, seed):
    found = talk_late(Plain, tmp_path / "t.jsonl", seed)
    assert not isinstance(found.verdict, Violated), render_explanation(found)


@pytest.mark.parametrize("broken", [ForgetsTheOldest, LosesSome, ClearsOthers])
def test_a_store_that_loses_is_accused_by_traces_that_began_late(tmp_path, broken):
    caught = 0
    for seed in range(10):
        found = talk_late(broken, tmp_path / f"{seed}.jsonl", seed)
        caught += "lost append" in found.names
    assert caught >= 8


@pytest.mark.parametrize("seed", range(8))
def test_a_store_of_indelible_is_not_accused_whenever_the_trace_began(tmp_path, seed):
    rng = random.Random(seed)
    store = indelible.open("memory:")
    keys = [f"k{n}" for n in range(6)]
    on = store
    for number in range(90):
        if number == 30:
            on = record(store, tmp_path / "t.jsonl")
        session = rng.choice("st")
        said = str(rng.randrange(5))
        match rng.randrange(9):
            case 0:
                on.clear(session)
            case 1:
                on.trim(session, keep_last=rng.randrange(3))
            case 2 if on.timeline(session).undo is not None:
                on.undo(session)
            case 3 | 4:
                # The same text for a key: an honest retry, sometimes of one before the trace.
                key = rng.choice(keys)
                with contextlib.suppress(indelible.ConflictError):
                    on.add_message(session, "user", f"keyed {key}", key=key)
            case 5 | 6:
                on.get_history(session)
            case _:
                on.add_message(session, "user", said)
    for session in "st":
        on.get_history(session)
    on.close()
    found = explain_trace(tmp_path / "t.jsonl")
    assert not isinstance(found.verdict, Violated), render_explanation(found)


# Legal histories with overlaps, as a trace that began late or lacks lines would tell them

KINDS = tuple(kind for kind in EVERYTHING if kind not in ("expire", "look"))


def late_lines(seed, **options):
    """A legal history from some moment on, with few different texts and sometimes lines missing."""
    rng = random.Random(seed)
    texts = rng.choice((2, 6, 1_000))
    text_of = {}

    def hashed(id_):
        return text_of.setdefault(id_, f"h{rng.randrange(texts)}")

    history = legal(seed, **options)
    done = [op for op in history if op.outcome != "info"]
    still = [0, *(t for t in range(60) if not any(o.invoke_ns < t <= o.complete_ns for o in done))]
    begin = rng.choice((0, rng.choice(still)))
    drops = rng.choice((0.0, 0.0, 0.2))
    lines, dropped = [], 0
    for op in history:
        # The trace begins when nobody calls; what may happen later was seen to be asked for.
        if op.outcome != "info" and op.complete_ns < begin:
            continue
        # What removes is written before it is done; any other line may be missing.
        if op.op in ("append", "read", "snapshot", "fork") and rng.random() < drops:
            dropped += 1
            continue
        value = op.value
        if isinstance(value, tuple) and op.op == "read":
            value = tuple(map(hashed, value))
        elif op.op == "pop" and isinstance(value, str):
            value = hashed(value)
        elif op.op != "rollback" or op.outcome != "fail":
            value = None
        fields = {each.name: getattr(op, each.name) for each in dataclasses.fields(op)}
        fields |= {"ids": tuple(map(hashed, op.ids)), "value": value}
        lines.append(TraceOperation(**fields))
    return lines, TraceMetadata(own_ids=False, fresh=False, dropped=dropped)


def accused(seeds, **options):
    found = []
    for seed in seeds:
        explained = judge_lines(*late_lines(seed, **options))
        if isinstance(explained.verdict, Violated):
            found.append(f"seed {seed}\n{render_explanation(explained)}")
    return found


@pytest.mark.parametrize("chunk", range(4))
def test_a_right_store_with_overlaps_is_never_accused_by_a_late_trace(chunk):
    assert accused(range(chunk * 300, (chunk + 1) * 300), kinds=KINDS) == []


@pytest.mark.parametrize("chunk", range(4))
def test_a_right_store_of_appends_and_reads_is_never_accused_by_a_late_trace(chunk):
    kinds = ("append", "append", "read", "limit")
    assert accused(range(chunk * 300, (chunk + 1) * 300), kinds=kinds, unknown=0.15) == []


def write_parts(seed, folder):
    """Write a legal history as recorders in several processes do; one file is cut off."""
    rng = random.Random(seed)
    history = legal(seed, kinds=KINDS, ops=30)
    parts = {}
    for op in history:
        fields = {each.name: getattr(op, each.name) for each in dataclasses.fields(op)}
        if op.op not in ("read", "pop") and (op.op, op.outcome) != ("rollback", "fail"):
            fields["value"] = None
        line, part = TraceOperation(**fields), parts.setdefault(op.worker, [])
        if op.op in REMOVERS:
            # Announced before it is made.
            announced = dataclasses.replace(line, complete_ns=None, outcome="info", value=None)
            part.append((op.invoke_ns, announced))
        if op.complete_ns is not None:
            part.append((op.complete_ns, line))
    torn = rng.choice(sorted(parts))
    # A process with a call that never came back does not end in order.
    hanging = {op.worker for op in history if op.complete_ns is None and op.op not in REMOVERS}
    for pid, (worker, part) in enumerate(parts.items()):
        path = folder / f"{worker}.jsonl"
        part.sort(key=lambda each: each[0])
        write_trace(path, TraceHeader(fresh=True, pid=pid), [line for _, line in part])
        whole = path.read_bytes()
        if worker == torn:
            end = rng.randrange(1, len(whole))
            path.write_bytes(whole[: end - (whole[end - 1] == ord("\n"))])
        elif worker in hanging:
            path.write_bytes(whole[: whole.rindex(b'{"closed')])


@pytest.mark.parametrize("chunk", range(2))
def test_a_right_store_is_not_accused_by_a_trace_of_which_a_file_is_cut_off(tmp_path, chunk):
    for seed in range(chunk * 100, (chunk + 1) * 100):
        folder = tmp_path / str(seed)
        folder.mkdir()
        write_parts(seed, folder)
        found = explain_trace(folder)
        said = f"seed {seed}\n{render_explanation(found)}"
        assert not isinstance(found.verdict, Violated), said


def test_most_losses_are_found_in_late_traces_of_appends_and_reads():
    caught = tried = 0
    for seed in range(150):
        lines, known = late_lines(seed, kinds=("append", "append", "read"), sessions=1, unknown=0.0)
        reads = [line for line in lines if line.op == "read" and line.outcome == "ok"]
        if not reads:
            continue
        last = max(reads, key=lambda line: line.invoke_ns)
        sure = [
            one
            for line in lines
            if line.op == "append" and line.outcome == "ok" and line.key is None
            if line.complete_ns < last.invoke_ns
            for one in line.ids
        ]
        if not sure:
            continue
        tried += 1
        kept = tuple(one for one in last.value if one != sure[-1])
        lines[lines.index(last)] = dataclasses.replace(last, value=kept)
        caught += isinstance(judge_lines(lines, known).verdict, Violated)
    assert tried > 100
    assert caught == tried


def test_a_session_that_was_seen_empty_is_judged_whole(old):
    old.read(limit=5)
    old.append("a")
    old.append("b")
    old.read("b", "a")
    assert names(old.explained()) == ["program-order violation"]


def test_entries_that_may_be_older_are_not_held_to_an_order(old):
    old.append("a")
    old.append("b")
    old.read("older", "b", "a")
    assert isinstance(old.explained().verdict, Ok)


def test_entries_that_were_looked_for_before_are_held_to_an_order(old):
    old.read("older")
    old.append("a")
    old.append("b")
    old.read("older", "b", "a")
    assert names(old.explained()) == ["program-order violation"]
