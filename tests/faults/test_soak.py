"""A soak: its record outlives a killed writer, its judge sees what is lost, its page adds up."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from soak import page
from soak.record import Record, parse_record
from soak.verdict import count_results

ROOT = Path(__file__).parents[2]


@pytest.fixture
def record(tmp_path):
    return Record(tmp_path / "record")


def judged(tmp_path):
    return count_results(list(parse_record(tmp_path / "record")), tmp_path / "evidence")


def append(record, *ids, outcome="ok", key=None, worker="w"):
    call = record.begin(worker, "s", "append", ids=ids, key=key or f"k{ids[0]}")
    if outcome is not None:
        record.end(call, outcome)


def read(record, *ids):
    record.end(record.begin("final", "s", "read"), "ok", ids)


def test_what_was_acknowledged_and_is_there_is_counted(record, tmp_path):
    append(record, "a")
    append(record, "b", "c")
    read(record, "a", "b", "c")
    record.close()
    found = judged(tmp_path)
    assert (found["acknowledged"], found["entries"], found["operations"]) == (2, 3, 3)
    assert not any(found[kind] for kind in page.WRONG)


def test_what_was_acknowledged_and_is_not_there_is_lost_and_kept_as_evidence(record, tmp_path):
    append(record, "a")
    append(record, "b")
    read(record, "b")
    record.close()
    assert judged(tmp_path)["lost"] == 1
    assert "LOST APPEND" in (tmp_path / "evidence.txt").read_text("utf-8")
    assert (tmp_path / "evidence.jsonl").exists()


def test_what_is_there_twice_is_doubled(record, tmp_path):
    append(record, "a", outcome="info")
    append(record, "a")
    read(record, "a", "a")
    record.close()
    found = judged(tmp_path)
    assert found["doubled"] == 1
    assert (found["unknown"], found["unknown, landed"]) == (1, 1)


def test_of_a_killed_writer_every_call_was_announced(record, tmp_path):
    append(record, "a")
    # The answer of this one is not written yet when the process is killed.
    append(record, "b")
    append(record, "c", outcome=None)
    with (tmp_path / "record").open("a") as file:
        file.write("?9\t12")
    found = list(parse_record(tmp_path / "record"))
    assert [(op.ids, op.outcome) for op in found] == [
        (("a",), "ok"),
        (("b",), "ok"),
        (("c",), "info"),
    ]
    assert found[-1].complete_ns is None


def test_the_page_adds_up_all_runs(tmp_path):
    where = tmp_path / "soak.md"
    for acknowledged in (1_200_000, 34):
        total = Counter(acknowledged=acknowledged, entries=2 * acknowledged, operations=99)
        total["fault: kill -9 of a writer"] = 3
        row = page.Row.build(total, seed=7, chunks=(0, 4), minutes=10.2)
        page.add_row(where, row)
    text = where.read_text("utf-8")
    assert "**1 200 034 appends acknowledged** (2 400 068 entries)" in text
    assert "0 lost, 0 doubled, 0 otherwise broken" in text
    assert text.count("3 x kill -9 of a writer") == 2


def test_a_short_soak_runs_from_start_to_page(tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "soak", "--seed", "5", "--minutes", "0.01", "--writing-s", "2"),
            *("--engines", "memory,sqlite", "--record", str(tmp_path / "soak.md")),
        ],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
        timeout=300,
    )
    said = done.stdout.decode()
    assert done.returncode == 0, said + done.stderr.decode()
    assert "nothing lost or doubled" in said
    assert "Go on with: make soak SEED=5 CHUNK=1" in said
    assert "5, chunks 0 to 0" in (tmp_path / "soak.md").read_text("utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["soak.md"]
