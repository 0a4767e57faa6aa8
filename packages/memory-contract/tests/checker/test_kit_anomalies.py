"""One history for each anomaly, as small as it can be: the exact name, the ids and the witness."""

import pytest

from memory_contract import (
    CORRUPTED,
    NOT_FOUND,
    Ok,
    Operation,
    Undecided,
    Violated,
    explain,
    judge,
    minimal,
)


def op(kind, at, *, worker="w1", session="s", outcome="ok", **more):
    """An operation that takes from `at` to `at + 1`, unless it says otherwise."""
    lo, hi = at if isinstance(at, tuple) else (at, at + 1)
    return Operation(
        worker=worker,
        session=session,
        op=kind,
        invoke_ns=lo,
        complete_ns=hi,
        outcome=outcome,
        **more,
    )


def append(ids, at, **more):
    return op("append", at, ids=tuple(ids.split()), **more)


def read(ids, at, *, worker="w9", **more):
    return op("read", at, value=tuple(ids.split()), worker=worker, **more)


# name -> (ids that it is about, history, the witness as places in the history)
CASES = {
    "garbage read": ("x", [read("x", 0)], (0,)),
    "cross-session leak": ("a", [append("a", 0, session="t"), read("a", 5)], (0, 1)),
    "aborted read": ("a", [append("a", 0, outcome="fail"), read("a", 5)], (0, 1)),
    "future read": ("a", [read("a", 0), append("a", 5)], (0, 1)),
    "duplicate": ("a", [append("a", 0), read("a a", 5)], (0, 1)),
    "duplicate after retry": (
        "a",
        [append("a", 0, key="k", outcome="info"), append("a", 3, key="k"), read("a a", 6)],
        (0, 1, 2),
    ),
    "corrupted entry": ("a", [append("a", 0), read(CORRUPTED + "a", 5)], (0, 1)),
    "reordered": (
        "a b",
        [
            append("a", (0, 9), worker="w1"),
            append("b", (0, 9), worker="w2"),
            read("a b", 10, worker="w3"),
            read("b a", 20, worker="w4"),
        ],
        (2, 3),
    ),
    "real-time reorder": (
        "b a",
        [append("a", 0, worker="w1"), append("b", 5, worker="w2"), read("b a", 10)],
        (0, 1, 2),
    ),
    "program-order violation": (
        "b a",
        [append("a", 0), append("b", 5), read("b a", 10)],
        (0, 1, 2),
    ),
    "torn batch": ("b", [append("a b", 0), read("a", 5)], (0, 1)),
    "interleaved batch": (
        "a b x",
        [append("a b", (0, 9), worker="w1"), append("x", (0, 9), worker="w2"), read("a x b", 10)],
        (0, 1, 2),
    ),
    "lost append": ("a", [append("a", 0), read("", 5)], (0, 1)),
    "stale read": (
        "a",
        [append("a", 0), read("", 5, worker="w2"), read("a", 10, worker="w3")],
        (0, 1, 2),
    ),
    "read-your-writes": (
        "a",
        [append("a", 0), read("", 5, worker="w1"), read("a", 10, worker="w3")],
        (0, 1, 2),
    ),
    "non-monotonic read": (
        "a",
        [
            append("a", (0, 1)),
            read("a", 3, worker="w2"),
            read("", 5, worker="w2"),
            read("a", 10, worker="w2"),
        ],
        (0, 1, 2),
    ),
    "resurrected entry": ("a", [append("a", 0), op("clear", 3), read("a", 6)], (0, 1, 2)),
    "double pop": (
        "a",
        [append("a", 0), op("pop", 3, value="a"), op("pop", 6, value="a", worker="w2")],
        (0, 1, 2),
    ),
    "wrong pop": ("a b", [append("a", 0), append("b", 3), op("pop", 6, value="a")], (0, 1, 2)),
    "false empty": ("a", [append("a", 0), op("pop", 3)], (0, 1)),
    "lost snapshot": (
        "",
        [
            op("snapshot", 0, snapshot="one"),
            op("rollback", 3, snapshot="one", outcome="fail", value=NOT_FOUND),
        ],
        (0, 1),
    ),
    "lossy snapshot": (
        "a",
        [append("a", 0), op("snapshot", 3, snapshot="one"), read("", 6, snapshot="one")],
        (0, 1, 2),
    ),
    "leaking snapshot": (
        "a",
        [op("snapshot", 0, snapshot="one"), append("a", 3), read("a", 6, snapshot="one")],
        (1, 0, 2),
    ),
    "unstable snapshot": (
        "a",
        [
            append("a", (0, 9), worker="w1"),
            op("snapshot", (0, 9), snapshot="one", worker="w2"),
            read("a", 10, snapshot="one"),
            read("", 20, snapshot="one"),
        ],
        (1, 2, 3),
    ),
    "torn snapshot": (
        "b",
        [
            append("a b", (0, 9), worker="w1"),
            op("snapshot", (0, 9), snapshot="one", worker="w2"),
            read("a", 10, snapshot="one"),
        ],
        (0, 2),
    ),
    "rollback mismatch": (
        "a",
        [
            append("a", 0),
            op("snapshot", 3, snapshot="one"),
            op("clear", 6),
            op("rollback", 9, snapshot="one"),
            read("", 12),
        ],
        (1, 3, 4),
    ),
    "flickering entry": (
        "a",
        [append("a", (0, None), outcome="info"), read("a", 3, worker="w2"), read("", 6)],
        (0, 1, 2),
    ),
    "early expiry": ("a", [append("a", 0), read("", 5), op("expire", (20, 30))], (0, 1, 2)),
    "zombie entry": ("a", [append("a", 0), op("expire", (20, 30)), read("a", 40)], (0, 1, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_smallest_history_of_each_anomaly_is_named_and_shown(name):
    ids, history, places = CASES[name]
    verdict = judge(history, flicker=name == "flickering entry")
    assert isinstance(verdict, Violated), verdict
    (anomaly,) = verdict.anomalies
    assert anomaly.name == name
    assert anomaly.ids == tuple(ids.split())
    assert anomaly.witness == tuple(history[place] for place in places)
    assert anomaly.proof.endswith(".")


@pytest.mark.parametrize("name", CASES)
def test_each_anomaly_is_explained_on_one_screen(name):
    text = explain(judge(CASES[name][1], flicker=name == "flickering entry"))
    assert name.upper() in text
    assert len(text.splitlines()) <= 12


@pytest.mark.parametrize("name", CASES)
def test_the_smallest_history_cannot_be_made_smaller_and_noise_is_removed(name):
    history = CASES[name][1]
    verdict = judge(history, flicker=name == "flickering entry")
    noise = [append(f"n{n}", 1000 + 5 * n, session="other") for n in range(20)]
    noise += [read("", 0, session="quiet", worker=f"q{n}") for n in range(20)]
    small = minimal([*noise, *history], verdict.anomalies[0])
    assert set(map(repr, small)) <= set(map(repr, history))
    again = judge(small, flicker=name == "flickering entry")
    assert name in {anomaly.name for anomaly in again.anomalies}


def test_a_flickering_entry_is_no_anomaly_unless_asked_for():
    assert isinstance(judge(CASES["flickering entry"][1]), Ok)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([], id="nothing at all"),
        pytest.param([append("a", (0, 5)), read("", (5, 6))], id="equal times overlap"),
        pytest.param([append("a", (0, None), outcome="info"), read("", 9)], id="unknown, never"),
        pytest.param(
            [append("a", (0, 1), outcome="info"), read("", 5), read("a", 9)], id="unknown, late"
        ),
        pytest.param([append("a b", 0), read("b", 5, limit=1)], id="a limit cuts a batch"),
        pytest.param(
            [append("a b", 0), op("pop", 3, value="b"), read("a", 6)], id="a pop cuts a batch"
        ),
        pytest.param(
            [append("a", 0, key="k"), append("a", 3, key="k"), read("a", 6)], id="one key, once"
        ),
        pytest.param(
            [append("a", 0), op("fork", 3, target="t"), read("a", 6, session="t")], id="forked"
        ),
        pytest.param(
            [append("a", 0), op("clear", 3), op("undo", 6), read("a", 9)], id="undo brings back"
        ),
        pytest.param(
            [
                append("a", 0),
                op("snapshot", 3, snapshot="one"),
                op("rollback", 6, snapshot="one", outcome="fail"),
            ],
            id="a failure that may pass proves nothing about the snapshot",
        ),
    ],
)
def test_what_a_right_store_may_do_is_no_anomaly(history):
    assert isinstance(judge(history), Ok)


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([append("a", 0), append("a", 5)], "twice without a common key"),
        ([append("a", (0, 5)), append("b", (3, 9))], "two operations open at once"),
        ([append("a", 0, key="k"), append("b", 5, key="k")], "two different batches"),
        ([append("a a", 0)], "one id twice"),
        ([op("read", 0)], "must say what it saw"),
    ],
)
def test_a_record_that_contradicts_itself_is_not_judged(history, reason):
    verdict = judge(history)
    assert isinstance(verdict, Undecided)
    assert reason in verdict.reason


def test_an_entry_that_a_fork_left_behind_is_lost():
    history = [append("a", 0), op("fork", 3, target="t"), read("", 6, session="t")]
    (anomaly,) = judge(history).anomalies
    assert (anomaly.name, anomaly.session, anomaly.ids) == ("lost append", "t", ("a",))
    assert anomaly.witness == tuple(history)


def test_a_search_finds_what_no_single_rule_names():
    # The clear may have removed either entry, but not the later one alone.
    history = [
        op("clear", (0, 20), worker="w3"),
        append("a", 1, worker="w1"),
        append("b", 5, worker="w1"),
        read("a", 30),
    ]
    verdict = judge(history)
    assert isinstance(verdict, Violated)
    assert "no order of the session's operations" in verdict.anomalies[0].proof


def test_a_search_that_runs_out_of_steps_is_no_pass():
    history = [op("clear", (0, 90), worker="c")]
    history += [append(f"e{n}", (0, 80), worker=f"w{n}") for n in range(12)]
    history += [read("e3 e1 e4", 100)]
    verdict = judge(history, search_steps=50)
    assert isinstance(verdict, Undecided)
    assert "gave up" in verdict.reason


def test_a_key_that_an_expiry_may_have_forgotten_is_left_undecided():
    history = [
        append("a", 0, key="k"),
        op("expire", (10, 20)),
        append("a", 30, key="k"),
        read("a", 40),
    ]
    verdict = judge(history)
    assert isinstance(verdict, Undecided)
    assert "across an expiry" in verdict.reason


def test_a_lost_append_reads_like_this():
    second = 1_000_000_000
    history = [
        append("e1 e2", (0, second), worker="w2"),
        append("e3", (0, 2 * second), worker="w1"),
        read("e3", (9 * second, 10 * second), worker="w0"),
    ]
    assert explain(judge(history)) == (
        "VIOLATED   LOST APPEND   session s   proved\n"
        "  e1 e2 were acknowledged to w2 and are missing from the final read.\n"
        "    w2 append [e1 e2]   0.000 → 1.000 s    ok\n"
        "    w1 append [e3]      0.000 → 2.000 s    ok   overlaps\n"
        "    w0 read             9.000 → 10.000 s   ok   [e3]   (no e1, e2)\n"
        "  No clear, pop, trim, rollback or expiry could have removed them in between.\n"
        "  Likely: w1 wrote back a list that it had read before (read-modify-write).\n"
        "  3 of 3 ops shown\n"
    )


WRONG_ROLLBACK = [
    append("a b", 0),
    op("snapshot", 3, snapshot="one"),
    op("trim", 6, keep=1),
    op("rollback", 9, snapshot="one"),
    read("b", 12),
]
# With each of these the search does not run.
UNSEARCHED = {
    "long": [append(f"c{at}", at) for at in range(20, 820, 4)],
    "undone": [op("undo", 20), read("b", 23)],
    "forked": [op("fork", 20, target="t")],
}


@pytest.mark.parametrize("then", UNSEARCHED.values(), ids=UNSEARCHED.keys())
def test_a_wrong_rollback_is_proved_without_a_search(then):
    verdict = judge([*WRONG_ROLLBACK, *then])
    assert isinstance(verdict, Violated)
    assert {(each.name, each.ids) for each in verdict.anomalies} == {("rollback mismatch", ("a",))}
    assert isinstance(judge(WRONG_ROLLBACK, search_steps=0), Violated)


def test_a_search_names_only_entries_that_a_read_was_asked_for():
    history = [
        append("a b c d", 0),
        op("snapshot", 3, snapshot="one"),
        op("trim", 6, keep=1),
        op("rollback", 9, snapshot="one"),
        read("d", 12, limit=2),
    ]
    verdict = judge(history)
    assert isinstance(verdict, Violated)
    assert [(each.name, each.ids) for each in verdict.anomalies] == [("stale read", ("c",))]
