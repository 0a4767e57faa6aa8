"""What a person sees at the end, and meanwhile."""

import io
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from memory_contract import Report, check
from memory_contract.report.terminal import (
    NAMED_MAX,
    PROOFS_MAX,
    ProgressDisplay,
    format_result,
    print_interrupted,
    print_summary,
    summary_text,
)
from tests.support.report_samples import (
    HOSTILE,
    every_verdict,
    explored,
    hostile,
    killed,
    lossy,
    result,
    whole,
)

TARGET = "tests.support.report_samples:adapter"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def after(text, start):
    """The lines of a text from one that begins so."""
    lines = text.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith(start))
    return lines[at:]


def test_an_interrupted_run_shows_proofs_and_counts_and_no_verdict(capsys):
    report = lossy()
    print_interrupted(report)
    out = capsys.readouterr().out
    assert out.startswith("FAILED concurrency/append_storm[tasks]   LOST APPEND")
    counts = Counter(each.verdict for each in report.results)
    assert f" had ended, {counts['PASS']} PASS, {counts['FAIL']} FAIL" in out
    (row,) = re.findall("^concurrency .*", out, re.MULTILINE)
    assert re.search("^gate  .*PASS", out, re.MULTILINE)
    assert not re.search("PASS|FAIL|NOT RUN", row), "no verdict of a gate of which cases are left"
    print_interrupted(replace(report, results=()))
    assert capsys.readouterr().out == "No case had ended: no verdict.\n"


def test_a_proof_comes_first_and_ends_with_commands(tmp_path):
    page = tmp_path / "report.html"
    report = lossy()
    failed = next(each for each in report.results if each.verdict == "FAIL")
    seed, session = failed.seed, failed.failures[0].session
    lines = summary_text(report, page=page).splitlines()
    assert lines[0] == (
        "FAILED concurrency/append_storm[tasks]   LOST APPEND   "
        f"session {session}   seed {seed}   proved"
    )
    assert "was acknowledged to" in lines[1]
    proof = lines[: lines.index("")]
    assert len([line for line in proof if re.match(r" {4}\w+ (append|read)", line)]) <= 5
    assert "  No clear, pop, trim, rollback or expiry could have removed it in between." in proof
    assert any(line.startswith("  Likely: ") for line in proof)
    assert any(" ops shown · " in line for line in proof)
    again = f"memory-contract check {TARGET} --case append_storm --seed {seed}"
    assert proof[-2:] == [
        f"  Reproduce with:  {again}",
        f"  Timeline:        {page}#case-concurrency-append_storm-tasks",
    ]


def test_a_proof_says_what_struck_meanwhile_and_what_does_that():
    text = summary_text(killed())
    assert "  Meanwhile: kill -9 at 0.019 s, kill -9 at 0.029 s.\n" in text
    assert "  Likely: it was acknowledged before it was written, and died with its process." in text


def test_an_explored_schedule_is_told_and_brought_back():
    report = Report(target="m:x", seed=1, gates=("concurrency",), results=(explored(),))
    text = summary_text(report)
    assert "  seed 7, 1 switch: w1#7>w0\n    w1 stops in read\n  exact: the seed" in text
    assert "memory-contract check m:x --case append_storm --seed 7 --explore 1\n" in text


def test_no_timeline_is_named_where_none_was_written():
    assert "Timeline" not in summary_text(lossy())


def test_the_gates_are_counted():
    lines = after(summary_text(every_verdict()), "gate ")
    heads = re.split(r"\s{2,}", lines[0].strip())
    assert heads == [
        "gate", "PASS", "FAIL", "UNKNOWN", "VACUOUS", "NOT RUN", "NOT CLAIMED", "DEVIATION",
    ]  # fmt: skip
    assert [re.split(r"\s{2,}", line.strip()) for line in lines[1:4]] == [
        ["sequential", "UNKNOWN", "1", "·", "1", "·", "·", "·", "1"],
        ["lifecycle", "PASS", "1", "·", "·", "·", "·", "3", "·"],
        ["concurrency", "FAIL", "·", "3", "·", "1", "1", "·", "·"],
    ]


def test_what_shares_a_reason_shares_a_line():
    text = summary_text(every_verdict())
    assert text.count("the store does not claim ttl") == 1
    assert "NOT CLAIMED (3)  the store does not claim ttl" in text
    assert "UNKNOWN (1)  the search gave up after 9 steps\n  random_programs[blocking]" in text
    assert "DEVIATION (1)  it folds repeats: see its manual" in text


def test_of_many_cases_with_one_reason_some_are_named():
    results = tuple(result("edges", f"case_{n}", "NOT RUN", "no time") for n in range(9))
    report = Report(target="m:x", seed=1, gates=("edges",), results=results)
    line = after(summary_text(report), "NOT RUN (9)  no time")[1]
    assert line.count("case_") == NAMED_MAX
    assert line.endswith(" and 5 more")


def test_the_end_says_what_was_run():
    lines = after(summary_text(every_verdict()), "note: simulated: this is no real server")
    assert lines[1:] == [
        "note: it expired early in its window",
        "FAIL   postgresql://user:***@db/memory   contract 1.1   seed 7   12 cases   12.3 s",
        "memory contract 1.1: failing",
    ]


def test_a_gate_of_which_nothing_ran_says_so():
    unclaimed = result("lifecycle", "fork_is_independent", "NOT CLAIMED", "no fork")
    report = Report(target="m:x", seed=1, gates=("lifecycle",), results=(unclaimed,))
    assert "NOT RUN  no case of the gate lifecycle ran" in summary_text(report)


def test_a_failure_without_operations_has_its_words_and_command():
    lines = after(summary_text(every_verdict()), "FAILED concurrency/lock_is_bounded")
    again = (
        "memory-contract check 'postgresql://user:***@db/memory' --case lock_is_bounded --seed 7"
    )
    assert lines[:3] == [
        "FAILED concurrency/lock_is_bounded[threads]   HANGS   seed 7   seen by the case",
        "  lock_is_bounded did not end within 240 s.",
        f"  Reproduce with:  {again}",
    ]


def test_what_fails_everywhere_is_told_in_a_line_each():
    text = summary_text(whole(sequential="FAIL", edges="FAIL"))
    assert text.count("Reproduce with:") == PROOFS_MAX
    failed = sum(each.verdict == "FAIL" for each in whole(sequential="FAIL", edges="FAIL").results)
    assert f"FAILED too, {failed - PROOFS_MAX} cases:" in text


@pytest.mark.parametrize("columns", [30, 46, 80, 200])
def test_no_line_is_wider_than_the_terminal_but_for_what_is_copied(columns):
    for line in summary_text(every_verdict(), columns=columns).splitlines():
        assert len(line) <= columns or line.startswith("  Reproduce with:  ")


def test_what_is_copied_is_never_cut():
    text = summary_text(lossy(), page=Path("a" * 90) / "report.html", columns=40)
    assert re.search(r"(?m)^  Reproduce with:  .* --seed \d+$", text)
    assert f"{'a' * 90}/report.html#case-concurrency-append_storm-tasks\n" in text


def test_colours_are_there_for_who_can_see_them(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    print_summary(every_verdict(), stream=stream)
    assert "\x1b[" in stream.getvalue()
    assert "\x1b[" not in summary_text(every_verdict())


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_who_wants_no_colours_gets_plain_text(monkeypatch, name, value):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    stream = Terminal()
    print_summary(every_verdict(), stream=stream)
    assert stream.getvalue() == summary_text(
        every_verdict(), columns=shutil.get_terminal_size().columns
    )
    if name == "TERM":
        with ProgressDisplay(stream=stream) as progress:
            progress(None, result("edges", "unicode_survives", "PASS", ""))
        assert "PASS         edges/unicode_survives[blocking]" in stream.getvalue()


def test_the_first_proof_is_shown_as_soon_as_there_is_one():
    stream = io.StringIO()
    report = lossy()
    with ProgressDisplay(stream=stream, target=TARGET) as progress:
        for _ in range(2):
            for each in report.results:
                progress(None, each)
    shown = stream.getvalue()
    assert shown.count(" ops shown · ") == shown.count("Reproduce with:") == 1
    assert f"Reproduce with:  memory-contract check {TARGET} --case append_storm" in shown


def test_hostile_names_do_not_reach_the_terminal():
    text = summary_text(hostile())
    text.encode("utf-8")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", text)
    assert HOSTILE not in text


def test_progress_is_a_line_for_each_result_where_nobody_watches():
    stream = io.StringIO()
    with ProgressDisplay(stream=stream) as progress:
        report = check("memory:", cases=["append_then_read"], seed=1, progress=progress)
    lines = stream.getvalue().splitlines()
    assert lines == [format_result(each) for each in report.results]
    assert re.fullmatch(
        r"PASS         sequential/append_then_read\[blocking\]  \d\.\d\d s", lines[0]
    )


def test_progress_is_a_bar_that_goes_away_for_who_watches(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    with ProgressDisplay(stream=stream) as progress:
        check("memory:", cases=["append_then_read"], seed=1, progress=progress)
        last = result("edges", "unicode_survives", "FAIL", f"lost {HOSTILE}")
        progress(None, last)
    drawn = stream.getvalue()
    assert "unicode_survives" in drawn
    assert "\x1b[2J" not in drawn
    assert drawn.endswith("\x1b[2K")
