"""Traces that were damaged or made up: refused in our words, or judged as an honest file is.

A trace is data. Whatever stands in one, nothing is imported or connected to because of it, no count
in it decides how much memory is taken, and no error but ours is raised.
"""

import ast
import io
import json
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from memory_contract import explain_trace, write_test
from memory_contract.cli.main import run
from memory_contract.history import HistoryError
from memory_contract.targets import resolve
from memory_contract.traces import replay
from memory_contract.traces.diagnosis.render import render_explanation
from memory_contract.traces.format import (
    OtherCall,
    TraceEnd,
    TraceHeader,
    TraceOperation,
    format_line,
)
from memory_contract.traces.replay import TEXT_CHARS_MAX, load_trace, replay_trace
from memory_contract.traces.replay.plan import build_plan

# The same examples in every run: a failure here is a failure everywhere.
fuzz = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=150,
    suppress_health_check=list(HealthCheck),
)


def line(op, at, **fields):
    base = {"session": "s", "worker": "1.1-t1", "invoke_ns": at, "complete_ns": at + 1}
    return TraceOperation(**{**base, "outcome": "ok", "op": op, **fields})


def append(at, *ids, **fields):
    sizes, roles = (5,) * len(ids), ("user",) * len(ids)
    return line("append", at, ids=ids, sizes=sizes, roles=roles, **fields)


HONEST = [
    format_line(each)
    for each in (
        TraceHeader(fresh=True, pid=1, boot="b", ttl_s=60.0),
        append(10, "a", position=0),
        append(20, "b+11112222", "c", worker="1.1-t2", key="k", position=1),
        line("read", 30, value=("a", "b+11112222", "c")),
        line("snapshot", 40, snapshot="p"),
        line("fork", 50, target="t"),
        append(60, "x", session="t", ttl_s=30.0),
        line("read", 70, session="t", value=("a", "b+11112222", "c", "x"), limit=9),
        line("pop", 80, value="c"),
        line("trim", 90, keep=1, unsure=True),
        line("rollback", 100, snapshot="p"),
        OtherCall(
            session="s",
            worker="1.1-t1",
            verb="session",
            invoke_ns=110,
            complete_ns=111,
            outcome="ok",
        ),
        line("clear", 120, session="", every=True),
        append(130, "lost", session="u"),
        line("read", 140, session="u", value=()),
        TraceEnd(closed=14),
    )
]

NASTY = st.sampled_from(
    [
        *(None, True, False, 0, -1, 1, 2**31, 2**62, 2**63, 2**200, -(2**70), 10**15),
        *(0.5, -0.0, 1e308, float("nan"), float("inf"), -float("inf")),
        *(
            "",
            "s",
            "\0",
            "\ud800",
            "../../x",
            "/etc/passwd",
            "a" * 5000,
            "postgresql://h/d",
            "os:system",
        ),
        *([], {}, [None], [[]], ["a", "a"], [1], {"a": 1}, [{}], [2**70], [-1], {"session": "s"}),
        *(
            "ok",
            "fail",
            "info",
            "append",
            "read",
            "expire",
            "call",
            "clear",
            "fork",
            "not found",
            "!a",
        ),
    ]
)
FIELDS = st.sampled_from(
    sorted({name for each in HONEST for name in json.loads(each)} | {"dropped", "changes", "error"})
)


@st.composite
def mutated_fields(draw):
    """An honest trace of which some fields hold something else."""
    lines = [json.loads(each) for each in HONEST]
    for _ in range(draw(st.integers(1, 4))):
        chosen = draw(st.sampled_from(lines))
        name = draw(FIELDS)
        if draw(st.booleans()) and name in chosen:
            del chosen[name]
        else:
            chosen[name] = draw(NASTY)
    return "".join(json.dumps(each) + "\n" for each in lines).encode()


@st.composite
def mutated_bytes(draw):
    """An honest trace with bytes changed, taken out or put in."""
    data = bytearray("\n".join(HONEST).encode() + b"\n")
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                data[at] = draw(st.integers(0, 255))
            case 1:
                del data[at : at + draw(st.integers(1, 40))]
            case 2:
                data[at:at] = draw(st.binary(max_size=12))
            case 3:
                data[at:at] = b"[" * draw(st.sampled_from([1, 30, 100_000]))
        if not data:
            break
    return bytes(data)


@st.composite
def mutated_lines(draw):
    """An honest trace with lines in another order, missing, or there twice."""
    lines = draw(st.lists(st.sampled_from(HONEST), max_size=24))
    return "".join(each + "\n" for each in lines).encode()


ANY_TRACE = st.one_of(mutated_fields(), mutated_bytes(), mutated_lines(), st.binary(max_size=200))


@contextmanager
def written(data):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        path.write_bytes(data)
        yield path


# What a file must not bring about, seen from below: hooks of the interpreter cannot be removed.
_watching = []
_seen = []


def _watch(event, arguments):
    if _watching and event in (
        "socket.connect",
        "socket.getaddrinfo",
        "subprocess.Popen",
        "os.exec",
    ):
        _seen.append((event, arguments))
    elif _watching and event == "import" and not _is_ours(arguments[0]):
        _seen.append((event, arguments[0]))


def _is_ours(module):
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names - {"this", "antigravity"} or top in sys.modules


sys.addaudithook(_watch)


@contextmanager
def nothing_is_reached():
    _seen.clear()
    _watching.append(True)
    try:
        yield
    finally:
        _watching.clear()
    assert _seen == []


# Explain


@fuzz
@given(ANY_TRACE)
def test_any_file_is_refused_in_our_words_or_explained(data):
    with written(data) as path, nothing_is_reached():
        try:
            found = explain_trace(path)
        except HistoryError:
            return
        assert render_explanation(found)
        assert 0 <= found.unjudged <= max(found.unjudged, found.verdict.scope.operations)


@settings(fuzz, max_examples=40)
@given(ANY_TRACE)
def test_the_command_ends_with_one_of_its_codes(data):
    with written(data) as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["indelible", "explain", str(path)])
        out, said = redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO())
        with out, said as words, pytest.raises(SystemExit) as ended:
            run()
        assert ended.value.code in (0, 1, 2, 3)
        assert "Traceback" not in words.getvalue()
        assert ended.value.code != 2 or "Nothing was run" in words.getvalue()


@st.composite
def spelled_otherwise(draw):
    """An honest trace in another spelling of the same JSON."""
    text = ""
    for each in HONEST:
        fields = json.loads(each)
        names = draw(st.permutations(list(fields)))
        if "indelible_trace" in fields:
            fields["added_later"] = draw(st.sampled_from([1, "x", None]))
            names = [*names, "added_later"]
        spelled = json.dumps(
            {name: fields[name] for name in names},
            separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")])),
        )
        if draw(st.booleans()):
            # Any character of a string may be escaped, of a name too.
            spelled = spelled.replace('"session"', '"sess\\u0069on"').replace(
                '"fork"', '"f\\u006frk"'
            )
        text += spelled + draw(st.sampled_from(["\n", "\n\n", " \n"]))
    return text.encode()


@fuzz
@given(spelled_otherwise())
def test_another_spelling_says_the_same(data):
    with written("".join(each + "\n" for each in HONEST).encode()) as path:
        honest = explain_trace(path)
    with written(data) as path:
        found = explain_trace(path)
    assert found.counts == honest.counts == {"early expiry": 1}
    assert found.verdict.scope == honest.verdict.scope


@pytest.mark.parametrize(
    "twice",
    [
        '{"session":"s","session":"t","worker":"w","op":"clear","invoke_ns":1,"complete_ns":2,"outcome":"ok"}'
    ],
)
def test_a_field_that_stands_there_twice_is_refused(twice):
    with (
        written(f"{HONEST[0]}\n{twice}\n".encode()) as path,
        pytest.raises(HistoryError, match="twice"),
    ):
        explain_trace(path)


# Replay


@fuzz
@given(ANY_TRACE)
def test_what_is_to_be_done_again_is_bounded(data):
    adapter = resolve("memory:")
    with written(data) as path, nothing_is_reached():
        try:
            trace = load_trace(path)
        except HistoryError:
            return
        plan = build_plan(trace.lines, trace.metadata, adapter, seed=1)
    appends = [step.call.messages for step in plan.steps if step.call.op == "append"]
    made = sum(len(str(message.get("content"))) for batch in appends for message in batch)
    assert made <= TEXT_CHARS_MAX + 100 * len(data)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sizes": [10**15]}, "characters of text"),
        ({"sizes": [2**70]}, "'sizes'"),
        ({"position": -1}, "'position'"),
        ({"ttl_s": 1e300}, "'ttl_s'"),
        ({"invoke_ns": -(2**80)}, "'invoke_ns'"),
    ],
)
def test_numbers_that_no_recorder_writes_are_refused(fields, words):
    changed = {**json.loads(HONEST[1]), **fields}
    with (
        written(f"{HONEST[0]}\n{json.dumps(changed)}\n".encode()) as path,
        pytest.raises(HistoryError, match=words),
    ):
        load_trace(path)


def test_an_entry_without_a_size_asks_for_text_too(monkeypatch):
    monkeypatch.setattr(replay, "TEXT_CHARS_MAX", 1_000)
    changed = {**json.loads(HONEST[1]), "ids": [f"{n:012x}" for n in range(100)], "sizes": []}
    with (
        written(f"{HONEST[0]}\n{json.dumps(changed)}\n".encode()) as path,
        pytest.raises(HistoryError, match="characters of text"),
    ):
        load_trace(path)


def test_a_file_does_not_decide_how_many_processes_or_threads_are_started():
    many = [format_line(append(1, f"a{n}", worker=f"{n}.1-t1")) for n in range(2_000)]
    with (
        written("\n".join([HONEST[0], *many, ""]).encode()) as path,
        pytest.raises(HistoryError, match="a replay makes at most"),
    ):
        load_trace(path)


@settings(fuzz, max_examples=25)
@given(mutated_fields())
def test_a_replay_of_any_file_ends_with_a_verdict(data):
    # A trace of sessions that expire is waited for, as long as it says: others are enough here.
    lines = [json.loads(each) for each in data.splitlines()]
    kept = [{name: value for name, value in each.items() if name != "ttl_s"} for each in lines]
    with written("".join(json.dumps(each) + "\n" for each in kept).encode()) as path:
        try:
            found = replay_trace(path, "memory:", level="sequential")
        except HistoryError:
            return
    assert found.verdict in ("FIXED", "FAILED", "CHANGED", "UNKNOWN", "ERROR")
    assert "kit itself failed" not in found.reason


# The test that a trace becomes


@fuzz
@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=30))
def test_names_in_a_trace_are_text_in_the_test_that_it_becomes(session, worker, token):
    assume(token and not token.startswith("!"))
    lines = [
        format_line(append(10, token, session=session, worker=worker)),
        format_line(line("read", 20, session=session, worker=worker, value=())),
    ]
    with written("\n".join([HONEST[0], *lines, ""]).encode()) as path:
        trace = load_trace(path)
        made = write_test(path.parent / "test_it.py", trace, store="memory:")
        module = ast.parse(made.test.read_text("utf-8"))
    assert [type(each).__name__ for each in module.body] == [
        *("Expr", "ImportFrom", "ImportFrom", "Assign", "Assign", "FunctionDef")
    ]
    assert isinstance(module.body[0].value.value, str)
