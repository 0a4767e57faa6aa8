"""The sentences of a proof: odd names in quotes, verbs that agree, and who saw or wrote what."""

import pytest

from memory_contract import Operation, Violated, explain, judge
from memory_contract.checker.verdict import is_, quote_name, was


def op(kind, at, *, worker="w0", session="s", **more):
    lo, hi = at if isinstance(at, tuple) else (at, at + 1)
    return Operation(
        worker=worker,
        session=session,
        op=kind,
        invoke_ns=lo,
        complete_ns=hi,
        outcome="ok",
        **more,
    )


def append(ids, at, **more):
    return op("append", at, ids=tuple(ids.split()), **more)


def read(ids, at, **more):
    return op("read", at, value=tuple(ids.split()), **more)


def proof_of(name, history):
    """The proof of the anomaly of that name."""
    verdict = judge(history)
    assert isinstance(verdict, Violated)
    return next(found.proof for found in verdict.anomalies if found.name == name)


@pytest.mark.parametrize(
    ("session", "shown"),
    [
        ("c-1", "c-1"),
        ("user_7", "user_7"),
        ("", "''"),
        (":", "':'"),
        ("a b", "'a b'"),
        ("a\nb", "'a\\nb'"),
        ("x" * 1024, f"'{'x' * 35}...'"),
    ],
)
def test_a_session_that_is_called_oddly_stands_in_quotes(session, shown):
    assert quote_name(session) == shown


def test_a_leak_from_a_session_without_a_name_can_be_read():
    history = [append("a", 0, session=""), read("a", 5, session=":")]
    proof = proof_of("cross-session leak", history)
    assert proof.startswith("a was appended to session '' and seen in ':'; ")
    assert "session ':'   proved" in explain(judge(history))


def test_verbs_agree_with_how_many_there_are():
    assert (was(["a"]), is_(["a"])) == ("was", "is")
    assert (was(["a", "b"]), is_(["a", "b"])) == ("were", "are")


def test_several_entries_that_were_not_seen():
    history = [
        append("a b", 0),
        read("", 5, worker="w1"),
        read("a b", 10, worker="w2"),
    ]
    proof = proof_of("stale read", history)
    assert proof.startswith("a b were acknowledged before w1 read, and were not seen; ")
    assert proof.endswith("could have removed them in between.")
    history = [append("a b", 0), read("", 5), read("a b", 10)]
    assert proof_of("read-your-writes", history).startswith("a b were acknowledged")


def test_several_entries_of_a_torn_batch():
    proof = proof_of("torn batch", [append("a b c", 0), read("a", 5)])
    assert proof.startswith("b c are missing from what w0 saw")


def test_several_strangers_in_a_batch():
    history = [
        append("a b", (0, 9), worker="w1"),
        append("x y", (0, 9), worker="w2"),
        read("a x y b", 10),
    ]
    proof = proof_of("interleaved batch", history)
    assert proof.startswith("x y stand between the entries of one batch")


def test_a_batch_that_is_turned_around_is_held_against_what_was_written():
    proof = proof_of("reordered", [append("a b", 0), read("b a", 5)])
    assert proof == (
        "b stands before a in what w0 saw, and after it in the batch that w0 wrote; "
        "no order of appends allows both."
    )


def test_of_many_entries_a_few_are_named():
    ids = " ".join(f"e{number}" for number in range(50))
    proof = proof_of("lost append", [append(ids, 0), read("", 5)])
    assert proof.startswith("e0 e1 e2 … e49 (50 entries) were acknowledged to w0")
