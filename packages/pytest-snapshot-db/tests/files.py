"""Small database files for the tests of goldens."""

import sqlite3
from contextlib import closing
from pathlib import Path

from pytest_snapshot_db.comparing import compare
from pytest_snapshot_db.keeping import taken
from pytest_snapshot_db.reading import Database
from pytest_snapshot_db.rules import rules_of
from pytest_snapshot_db.telling import lines_of, text_of


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


def difference(one, two, *, ignore=(), replace=None, limit=20):
    """How two files differ, taken as a test's file would be."""
    folder = Path(one).parent
    copies = folder / "one.taken", folder / "two.taken"
    for path, copy in zip((one, two), copies, strict=True):
        taken(Path(path), copy)
    with Database(copies[0]) as before, Database(copies[1]) as after:
        return compare(before, after, rules_of(ignore, replace), limit=limit)


def told(*files, **options):
    """The same in words."""
    return text_of(lines_of(difference(*files, **options)))
