"""Commands that carry sessions out of a store and into one."""

import json
import subprocess
import sys

import pytest

import indelible
from tests.support.transcripts import environment


def test_what_was_exported_can_be_imported(command, golden, store):
    command("export", "all.jsonl")
    command("export", "all.jsonl", code=2)
    command("import", "all.jsonl", "--dry-run", "--url", "copy.db")
    command("import", "all.jsonl", "--url", "copy.db", code=2)
    assert not (command.folder / "copy.db").exists()
    command("import", "all.jsonl", "--url", "copy.db", "--yes")
    command("import", "all.jsonl", "--yes", code=1)
    golden()
    with indelible.open(command.folder / "copy.db") as copy:
        assert copy.timeline("ada") == store.timeline("ada")


def test_an_export_goes_through_a_pipe(command):
    exported = command("export", "-", "bob")
    assert "Exported 1 session" in exported.err
    header, *lines = map(json.loads, exported.out.splitlines())
    assert header["indelible"] == "export"
    assert [next(iter(line)) for line in lines] == ["session", "entry", "entry", "end"]
    done = command("import", "-", "--yes", "--json", "--url", "copy.db", stdin=exported.out)
    assert json.loads(done.out) == {
        "sessions": 1,
        "entries": 2,
        "snapshots": 0,
        "damaged": 0,
        "skipped": [],
    }


@pytest.mark.usefixtures("corrupt")
def test_entries_that_cannot_be_read_are_counted_by_an_export_and_an_import(command):
    exported = command("export", "all.jsonl", "--json")
    imported = command("import", "all.jsonl", "--yes", "--json", "--url", "copy.db")
    for done in (exported, imported):
        assert json.loads(done.out)["damaged"] == 1
        assert done.err == "1 entry cannot be read; a copy has the same bytes.\n"
    assert "cannot be read" not in command("export", "bob.jsonl", "bob").err


def test_an_export_to_stdout_does_not_ask_about_a_file_of_that_name(command):
    (command.folder / "-").write_text("mine", "utf-8")
    assert "Exported 1 session" in command("export", "-", "bob").err
    assert (command.folder / "-").read_text("utf-8") == "mine"


def test_an_import_reads_a_file_that_can_be_read_only_once(command):
    command("export", "all.jsonl")
    line = f"cat all.jsonl | {sys.executable} -m indelible import /dev/stdin --yes --url copy.db"
    done = subprocess.run(
        line, shell=True, cwd=command.folder, env=environment(), capture_output=True, check=False
    )
    assert done.stdout == b"Imported 2 sessions, 11 entries and 1 snapshot.\n", done.stderr


def test_an_import_from_stdin_that_is_not_confirmed_changes_nothing(command):
    exported = command("export", "-", "bob").out
    done = command("import", "-", "--url", "copy.db", stdin=exported, code=2)
    assert "no terminal to ask on" in done.err
    assert not (command.folder / "copy.db").exists()


def test_an_empty_name_of_a_file_is_refused(command):
    for line in (["export", ""], ["import", ""], ["import-langchain", "", "--yes"]):
        assert "is empty: name a file. Nothing was changed." in command(*line, code=2).err


def test_a_bad_export_is_refused_with_what_came_in_before_it(command, golden):
    command("export", "all.jsonl", "--prefix", "a", "--json")
    whole = (command.folder / "all.jsonl").read_text("utf-8").splitlines(keepends=True)
    (command.folder / "cut.jsonl").write_text("".join(whole[:-2]), "utf-8")
    (command.folder / "other.jsonl").write_text("name,age\n", "utf-8")
    (command.folder / "noise.jsonl").write_bytes(b"\xff\xfe")
    (command.folder / "mixed.jsonl").write_text("".join([*whole, "noise\n"]), "utf-8")
    command("import", "cut.jsonl", "--url", "copy.db", "--yes", code=1)
    command("import", "other.jsonl", "--url", "copy.db", "--yes", code=1)
    command("import", "noise.jsonl", "--url", "copy.db", "--yes", code=1)
    command("import", "missing.jsonl", "--url", "copy.db", "--yes", code=4)
    command("export", "no/such/folder.jsonl", code=4)
    command("export", "-", "--json", code=2)
    command("export", "x.jsonl", "nobody", code=1)
    golden()
    assert not (command.folder / "x.jsonl").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "bad cannot be imported: this is not an export of indelible: it is empty."),
        ("name,age\r\n", "this is not an export of indelible: it begins with 'name,age'."),
        ("[" * 9999, f"it begins with '{'[' * 60}'."),
        ('{"indelible": "export", "format": 99}\n', "has format 99"),
    ],
)
def test_what_is_no_export_is_refused_before_a_question_and_a_file(command, text, told):
    (command.folder / "bad").write_text(text, "utf-8", newline="")
    for more in ((), ("--dry-run",), ("--yes",)):
        done = command("import", "bad", "--url", "copy.db", *more, code=1)
        assert told in done.err
        assert "Nothing was imported" in done.err
        assert "This imports" not in done.err
        assert not (command.folder / "copy.db").exists()
    assert "no store was made" not in command("import", "bad", code=1).err
