"""Beside the other plugins for snapshots, on several versions of pytest, each in its environment.

`make test` takes the newest and `make test-exhaustive` the oldest, with each plugin on one of them
and syrupy on both; `make test-matrix` takes all of them everywhere, with and without xdist.
"""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ALL = "INDELIBLE_PYTESTS" in os.environ
# For each version of pytest, the other plugin and what is passed to pytest.
WAYS = {
    "8.0": [("", []), ("syrupy", ["-n1"]), ("snapshot", [])],
    "newest": [("", ["-n1"]), ("syrupy", []), ("snapshottest", ["-n1"])],
}
VERSIONS = os.environ.get("INDELIBLE_PYTESTS", " ".join(WAYS)).split()
INSTALL = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python"]

# The other plugins, each by the name that pytest knows it by, and a test that uses it.
OTHERS = {
    "": "",
    "syrupy": "def test_theirs(snapshot):\n    assert {'a': 1} == snapshot\n",
    "snapshot": "def test_theirs(snapshot):\n"
    "    snapshot.snapshot_dir = 'theirs'\n"
    "    snapshot.assert_match('hello', 'hello.txt')\n",
    "snapshottest": "def test_theirs(snapshot):\n    snapshot.assert_match({'a': 1})\n",
}

OURS = """
import sqlite3


def build(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, body)")
    db.commit()
    db.close()


def roll_forward(path):
    db = sqlite3.connect(path)
    db.execute("INSERT INTO note (body) VALUES ('milk')")
    db.commit()
    db.close()


def test_ours(snapshot_db):
    path = snapshot_db("base", build=build)
    roll_forward(path)
    snapshot_db.assert_matches("after", path, ignore={"note.id"})
"""

# The fixtures of indelible, on the same versions of pytest.
OTHERS[""] = """
pytest_plugins = ["indelible.testing"]


def test_theirs(memory_store, snapshot_db, run_in_process):
    memory_store.add_message("ana", "user", "hello")
    path = snapshot_db("base", build=build)
    run_in_process(roll_forward, path)
    snapshot_db.assert_matches("after", path, ignore={"note.id"})
"""


def environment(version, folder):
    """An environment with that pytest, the other plugins, and this package as it is built."""
    made = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    locked = ROOT / "requirements" / "matrix" / f"pytest-{version}.txt"
    options = ["install", "--no-deps", "--no-compile"]
    install = [*INSTALL, str(made), *options]
    subprocess.run([*install, "--require-hashes", "--requirement", str(locked)], check=True)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    for package in (ROOT / "packages").iterdir():
        subprocess.run(build, cwd=package, check=True, capture_output=True)
    subprocess.run([*install, *map(str, folder.glob("*.whl"))], check=True)
    return made / "bin" / "python"


def run(python, folder, other, *arguments):
    """Run pytest there with one of the other plugins, or none."""
    blocked = [f"-pno:{name}" for name in OTHERS if name not in ("", other)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    return subprocess.run(
        [python, "-m", "pytest", "-q", *blocked, *arguments],
        cwd=folder,
        env=kept,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# All ways on one version are many runs of pytest; each has a bound of its own.
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "version",
    [
        pytest.param(each, marks=[] if ALL or each == "newest" else pytest.mark.exhaustive)
        for each in VERSIONS
    ],
)
def test_it_lives_beside_other_plugins(version, tmp_path):
    python = environment(version, tmp_path)
    ways = product(OTHERS, ([], ["-n2"])) if ALL else WAYS[version]
    for other, workers in ways:
        folder = tmp_path / f"{other or 'alone'}{''.join(workers)}"
        folder.mkdir()
        (folder / "test_it.py").write_text(OURS + "\n\n" + OTHERS[other])
        (try_beside if other else try_alone)(python, folder, other, workers)
        before = read_goldens(folder)
        assert sorted(before) == ["after.db", "after.json", "base.db", "base.json"]
        if ALL or not other:
            again = run(python, folder, other, *workers)
            assert again.returncode == 0, again
            assert read_goldens(folder) == before


def read_goldens(folder):
    goldens = folder / "__snapshot_dbs__" / "test_it"
    return {path.name: path.read_bytes() for path in goldens.iterdir()}


def try_alone(python, folder, other, workers):
    """Where no other plugin is, their flag is ours, too."""
    made = run(python, folder, other, *workers, "--snapshot-update")
    assert "2 passed" in made.stdout, made
    assert made.returncode == 0, made


def try_beside(python, folder, other, workers):
    """Each flag writes the snapshots of its own plugin alone."""
    theirs = run(python, folder, other, *workers, "--snapshot-update")
    assert "1 passed" in theirs.stdout, theirs
    assert theirs.returncode == 1, theirs
    assert "--snapshot-db-update-only=new" in theirs.stdout, theirs
    assert not (folder / "__snapshot_dbs__").exists()
    made = run(python, folder, other, *workers, "--snapshot-db-update")
    assert "2 passed" in made.stdout, made
    assert made.returncode == 0, made
    assert (folder / "__snapshots__").exists() is (other == "syrupy")
