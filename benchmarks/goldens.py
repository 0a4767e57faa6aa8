"""200 tests over one golden of 50 MB, with two workers: what they take beside bare copies."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.measure import Result, format_seconds

TESTS = 200
WORKERS = 2
GOLDEN_BYTES = 50_000_000
ROW_BYTES = 1_000
RUN_S_MAX = 1200

# Each test adds a row to a copy of its own, and writes down what all copies take at that moment.
PROJECT = """
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "__snapshot_dbs__" / "test_big" / "big.db"


def build(path):
    shutil.copyfile("big.db", path)


def work(path, base):
    db = sqlite3.connect(path)
    db.execute("INSERT INTO t (body) VALUES ('x')")
    db.commit()
    db.close()
    there = 0
    for file in Path(base).rglob("*.db"):
        try:
            there += file.stat().st_size
        except FileNotFoundError:
            pass
    with open(os.environ["BENCH_LOG"], "a") as log:
        log.write(f"{there}\\n")


@pytest.mark.parametrize("number", range(TESTS))
def test_golden(snapshot_db, tmp_path_factory, number):
    work(snapshot_db("big", build=build), tmp_path_factory.getbasetemp().parent)


@pytest.mark.parametrize("number", range(TESTS))
def test_bare(tmp_path, tmp_path_factory, number):
    path = tmp_path / "big.db"
    shutil.copyfile(GOLDEN, path)
    work(path, tmp_path_factory.getbasetemp().parent)
    path.unlink()
"""


def all_results(folder: Path) -> Iterator[Result]:
    """Time beside bare copies of the same file, and the most that copies took on disk."""
    project = folder / "goldens"
    source = project / "big.db"
    project.mkdir(parents=True)
    (project / "test_big.py").write_text(PROJECT.replace("TESTS", str(TESTS)), "utf-8")
    with closing(sqlite3.connect(source)) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body)")
        rows = ((os.urandom(ROW_BYTES // 2).hex(),) for _ in range(GOLDEN_BYTES // ROW_BYTES))
        db.executemany("INSERT INTO t (body) VALUES (?)", rows)
        db.commit()
    _run(project, "made", "--snapshot-db-update-only=new", "test_big.py::test_golden[0]")
    bare, _ = _run(project, "bare", "-k", "test_bare")
    mine, most = _run(project, "golden", "-k", "test_golden")
    name = f"{TESTS} tests, each with its copy of a {GOLDEN_BYTES / 1e6:.0f} MB golden"
    yield Result(
        name=f"{name}, {WORKERS} workers",
        subject=format_seconds(mine),
        baseline=f"bare copies {format_seconds(bare)}",
        figure=mine / bare,
        target=2,
        bound="at most",
    )
    yield Result(
        name=f"{name}: the most on disk at once",
        subject=f"{most / 1e6:.0f} MB",
        baseline=f"{WORKERS} copies",
        figure=most / source.stat().st_size,
        target=WORKERS + 0.5,
        bound="at most",
        unit=" copies",
    )


def _run(project: Path, name: str, *arguments: str) -> tuple[float, int]:
    """Seconds of one run of pytest, and the most bytes that its copies took."""
    log = project / f"{name}.log"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment = {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "BENCH_LOG": str(log)}
    base = project / f"base-{len(list(project.glob('base-*')))}"
    plugins = ("-p", "snapshot_db", "-p", "xdist", f"-n{WORKERS}", f"--basetemp={base}")
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *arguments],
        cwd=project,
        env=environment,
        check=True,
        capture_output=True,
        timeout=RUN_S_MAX,
    )
    return time.perf_counter() - started, max(map(int, log.read_text().split()))
