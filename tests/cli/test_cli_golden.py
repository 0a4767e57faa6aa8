"""`snapshot-db`: compare files of any program."""

import apsw
import pytest

PROGRAM = "snapshot-db"


def make(path, *statements):
    path.parent.mkdir(parents=True, exist_ok=True)
    with apsw.Connection(str(path)) as db:
        for statement in statements:
            db.execute(statement)
    db.close()


@pytest.fixture
def notes(command):
    """Two files of another program."""
    table = "CREATE TABLE note (id INTEGER PRIMARY KEY, body, at)"
    rows = "INSERT INTO note VALUES (1, 'milk', 10), (2, 'bread', 11)"
    make(command.folder / "a.db", table, rows)
    make(command.folder / "b.db", table, rows, "UPDATE note SET body = 'beer' WHERE id = 2")
    make(command.folder / "b.db", "INSERT INTO note VALUES (3, 'eggs', 12)")
    return command


def test_files_are_compared(notes, golden):
    notes("diff", "a.db", "a.db")
    notes("diff", "a.db", "b.db", code=1)
    notes("diff", "a.db", "b.db", "--ignore", "note.*")
    notes("diff", "b.db", "a.db", "--ignore", "note.body", code=1)
    golden()
    assert sorted(p.name for p in notes.folder.glob("?.db*")) == ["a.db", "b.db"]


def test_json_is_compared_without_some_paths(command, golden):
    for name, time in (("a", 10), ("b", 11)):
        row = f"""INSERT INTO note VALUES (1, '{{"text": "milk", "meta": {{"ts": {time}}}}}')"""
        table = "CREATE TABLE note (id INTEGER PRIMARY KEY, body)"
        make(command.folder / f"{name}.db", table, row)
    command("diff", "a.db", "b.db", code=1)
    command("diff", "a.db", "b.db", "--ignore", "note.body=$.meta.ts")
    command("diff", "a.db", "b.db", "--ignore", "note.body=$.text", code=1)
    both = ("--ignore", "note.body=$.text", "--ignore", "note.body=$.meta")
    command("diff", "a.db", "b.db", *both)
    command("diff", "a.db", "b.db", "--ignore", "note.body=meta.ts", code=2)
    command("diff", "a.db", "b.db", "--ignore", "note.id=$.ts", code=2)
    golden()


def test_what_cannot_be_compared_is_refused(notes, golden):
    (notes.folder / "diary.txt").write_text("Dear diary,\n" * 500)
    notes("diff", "a.db", "missing.db", code=4)
    notes("diff", "a.db", "diary.txt", code=2)
    notes("diff", "a.db", "b.db", "--ignore", "note.color", code=2)
    golden()
