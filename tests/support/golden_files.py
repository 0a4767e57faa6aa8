"""Small database files for the tests of goldens."""

import sqlite3
from contextlib import closing
from pathlib import Path

from pytest_snapshot_db.compare import compare_files
from pytest_snapshot_db.copy_live import copy_database
from pytest_snapshot_db.rules import parse_rules


def make(path, script, *rows, name="t"):
    """A file made by a script, with rows in one of its tables."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(script)
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            db.execute("BEGIN")
            db.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
            db.execute("COMMIT")
    return path


def difference(one, two, *, ignore=(), limit=20):
    """How two files differ, taken as a test's file would be."""
    folder = Path(one).parent
    copies = folder / "one.taken", folder / "two.taken"
    for path, copy in zip((one, two), copies, strict=True):
        copy_database(Path(path), copy)
    return compare_files(*copies, parse_rules(ignore), limit=limit)


def describe(*files, **options):
    """The same in words."""
    return "\n".join(difference(*files, **options).lines)
