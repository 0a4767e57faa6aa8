"""Small projects that use the plugin, run by pytest inside this process unless they need more."""

import os

import pytest

from pytest_snapshot_db import pytest_plugin

# Kept loaded: each run inside this process forgets the modules that it was the first to import.

TESTS = """
import sqlite3


def build(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, body)")
    db.execute("INSERT INTO note VALUES (1, 'milk')")
    db.commit()
    db.close()


def add(path, body):
    db = sqlite3.connect(path)
    db.execute("INSERT INTO note (body) VALUES (?)", (body,))
    db.commit()
    db.close()
"""


class Project:
    """A project with one test module, `test_it.py`."""

    def __init__(self, pytester):
        self.pytester = pytester
        self.path = pytester.path
        self.goldens = self.path / "__snapshot_dbs__" / "test_it"

    def tests(self, source, *, name="test_it"):
        lines = source.strip("\n").splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        body = "\n".join(line[indent:] for line in lines)
        (self.path / f"{name}.py").write_text(f"{TESTS}\n\n{body}\n", "utf-8")
        return self

    def run(self, *arguments):
        """Inside this process."""
        return self.pytester.runpytest_inprocess(*arguments, plugins=[pytest_plugin])

    def run_apart(self, *arguments):
        """In processes of its own."""
        xdist = ["-p", "xdist"] if "-n" in arguments else []
        return self.pytester.runpytest_subprocess("-p", "snapshot_db", *xdist, *arguments)

    def golden(self, name):
        return self.goldens / f"{name}.db"


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    assert "INDELIBLE_SNAPSHOT_DB" not in os.environ
    return Project(pytester)
