"""The fixture `snapshot_db`, in real runs of pytest."""

import json
import os
import sqlite3
from contextlib import closing

import pytest

from tests.support.golden_files import make

pytest_plugins = ["pytester"]

COPY = """
    def test_copy(snapshot_db):
        path = snapshot_db("base", build=build)
        add(path, "bread")
        snapshot_db.assert_matches("after", path)
"""


def bodies(path):
    with closing(sqlite3.connect(path)) as db:
        return [body for (body,) in db.execute("SELECT body FROM note ORDER BY id")]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_missing_golden_fails_with_the_command_that_makes_it(project):
    ran = project.tests(COPY).run()
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        [
            "E*There is no golden 'base' yet: __snapshot_dbs__/test_it/base.db",
            "E*pytest test_it.py::test_copy --snapshot-db-update-only=new",
        ]
    )
    assert not project.goldens.exists()


def test_the_update_flag_writes_what_is_missing_and_the_test_passes_at_once(project):
    ran = project.tests(COPY).run("--snapshot-db-update")
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(["new *test_it/base.db", "*by test_it.py::test_copy"])
    assert files(project.goldens) == ["after.db", "after.json", "base.db", "base.json"]
    assert bodies(project.golden("base")) == ["milk"]
    assert bodies(project.golden("after")) == ["milk", "bread"]
    before = {path: path.read_bytes() for path in project.goldens.iterdir()}
    for flags in ((), ("--snapshot-db-update",)):
        again = project.run(*flags)
        again.assert_outcomes(passed=1)
        assert "snapshot_db" not in again.stdout.str()
    assert {path: path.read_bytes() for path in project.goldens.iterdir()} == before


def test_the_update_flag_of_another_plugin_writes_nothing(project):
    project.pytester.makeconftest(
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--snapshot-update', action='store_true')\n"
    )
    ran = project.tests(COPY).run("--snapshot-update")
    ran.assert_outcomes(failed=1)
    assert not project.goldens.exists()
    project.run("--snapshot-db-update").assert_outcomes(passed=1)


def test_the_shared_update_flag_is_ours_where_no_other_plugin_has_it(project):
    project.tests(COPY).run("--snapshot-update").assert_outcomes(passed=1)
    assert bodies(project.golden("after")) == ["milk", "bread"]
    project.tests(COPY.replace("bread", "beer")).run_apart("-n", "1", "--snapshot-update")
    assert bodies(project.golden("after")) == ["milk", "beer"]


def test_the_manifest_says_what_is_in_the_golden(project):
    project.tests(COPY).run("--snapshot-db-update")
    said = json.loads((project.goldens / "base.json").read_text("utf-8"))
    assert said["tables"]["note"]["rows"] == 1
    assert said["built_by"] == "test_it:build"
    assert said["journal_mode"] == "delete"


def test_git_keeps_goldens_even_if_a_project_ignores_databases(project):
    project.tests(COPY).run("--snapshot-db-update")
    kept = (project.goldens.parent / ".gitignore").read_text("utf-8").splitlines()
    assert kept == ["!*.db", ".writing-*"]


def test_only_new_or_only_changed_goldens_are_written(project):
    project.tests(COPY)
    project.run("--snapshot-db-update-only=changed").assert_outcomes(failed=1)
    assert not project.goldens.exists()
    project.run("--snapshot-db-update-only=new").assert_outcomes(passed=1)
    project.tests(COPY.replace("bread", "beer"))
    project.run("--snapshot-db-update-only=new").assert_outcomes(failed=1)
    assert bodies(project.golden("after")) == ["milk", "bread"]
    ran = project.run("--snapshot-db-update-only=changed")
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(["changed *test_it/after.db (note: 1 changed)"])
    assert bodies(project.golden("after")) == ["milk", "beer"]


def test_a_mismatch_says_what_differs_and_keeps_what_was_obtained(project):
    project.tests(COPY).run("--snapshot-db-update")
    ran = project.tests(COPY.replace("bread", "beer")).run("--basetemp=base")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        [
            ">*assert_matches*",
            "E*The database does not match the golden 'after'.",
            "E*table note: 1 changed (2 rows expected, 2 obtained)",
            "E*~ id=2: body: 'bread' → 'beer'",
            "E*expected: __snapshot_dbs__/test_it/after.db",
            "E*obtained: base/*/after.obtained.db",
            "E*snapshot-db diff __snapshot_dbs__/test_it/after.db base/*/after.obtained.db",
            "E*pytest test_it.py::test_copy --snapshot-db-update",
            'E*ignore={"note.body"}',
        ]
    )
    shown = ran.stdout.str()
    assert "Traceback" not in shown
    assert "golden/fixture.py" not in shown
    (obtained,) = (project.path / "base").rglob("*.obtained.db")
    assert bodies(obtained) == ["milk", "beer"]
    assert files(project.goldens) == ["after.db", "after.json", "base.db", "base.json"]


def test_a_builder_that_is_not_deterministic_is_refused(project):
    ran = project.tests(
        """
        import itertools
        numbers = itertools.count()

        def counting(path):
            build(path)
            add(path, f"number {next(numbers)}")

        def test_copy(snapshot_db):
            snapshot_db("base", build=counting)
        """
    ).run("--snapshot-db-update")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        [
            "E*test_it:counting does not build the same file each time*",
            "E*table note: 1 changed*",
            "E*~ id=2: body: 'number 0' → 'number 1'",
        ]
    )
    assert not project.golden("base").exists()


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        ("def wrong(path): pass", "made no file"),
        ("def wrong(path): path.write_text('Dear diary ' * 99)", "not a SQLite database"),
    ],
)
def test_a_builder_that_builds_nothing_is_refused(project, builder, words):
    use = "def test_copy(snapshot_db):\n    snapshot_db('base', build=wrong)"
    ran = project.tests(f"{builder}\n\n{use}").run("--snapshot-db-update")
    ran.assert_outcomes(failed=1)
    assert words in ran.stdout.str()
    assert not project.golden("base").exists()


def test_a_changed_builder_is_warned_about_and_a_comment_is_no_change(project):
    project.tests(COPY).run("--snapshot-db-update")
    path = project.path / "test_it.py"
    source = path.read_text("utf-8")
    path.write_text(source.replace("    db.commit()\n", "    db.commit()  # all of it\n", 1))
    project.run().assert_outcomes(passed=1)
    # The text of SQL is code, with its spaces.
    path.write_text(source.replace("(1, 'milk')", "(1,'milk')"))
    ran = project.run("-W", "default")
    ran.assert_outcomes(passed=1, warnings=1)
    ran.stdout.fnmatch_lines(["*test_it:build has changed since it built*--snapshot-db-update"])
    again = project.run("--snapshot-db-update")
    again.assert_outcomes(passed=1)
    again.stdout.fnmatch_lines(["kept *base.db (its builder changed, and builds the same)"])
    project.run().assert_outcomes(passed=1)


TOUCH = """
    def test_before(snapshot_db):
        snapshot_db("base", build=build)

    def test_touches(request):
        add(request.path.parent / "__snapshot_dbs__/test_it/base.db", "oops")

    def test_after():
        pass
"""


def test_a_test_that_touches_a_golden_is_named_and_the_run_fails(project):
    project.tests(TOUCH).run("--snapshot-db-update", "-k", "before")
    ran = project.run()
    ran.assert_outcomes(passed=3)
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    ran.stdout.fnmatch_lines(
        [
            "TOUCHED *base.db: its bytes were changed",
            "*by test_it.py::test_touches",
            "*git checkout*",
        ]
    )
    # The next run meets a file that is not the golden any more.
    next_run = project.run("-k", "before")
    next_run.assert_outcomes(failed=1, deselected=2)
    next_run.stdout.fnmatch_lines(["E*is not the file that was written*"])
    assert "TOUCHED" not in next_run.stdout.str()
    mended = project.run("-k", "before", "--snapshot-db-update-only=changed")
    mended.assert_outcomes(passed=1, deselected=2)
    assert bodies(project.golden("base")) == ["milk"]


def test_a_touched_golden_is_named_as_seen_from_the_folder_of_the_run(project, monkeypatch):
    below = project.pytester.mkdir("below")
    project.tests(TOUCH, name="below/test_it").run("--snapshot-db-update", "-k", "before")
    monkeypatch.chdir(below)
    project.run().stdout.fnmatch_lines(
        [
            "TOUCHED __snapshot_dbs__/test_it/base.db: its bytes were changed",
            "*git checkout -- __snapshot_dbs__/test_it/base.db",
        ]
    )


def test_a_golden_that_a_test_deletes_is_reported(project):
    project.tests(COPY).run("--snapshot-db-update")
    project.tests(
        """
        def test_copy(snapshot_db, request):
            snapshot_db("base", build=build)
            (request.path.parent / "__snapshot_dbs__/test_it/base.db").unlink()
        """
    )
    ran = project.run()
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    ran.stdout.fnmatch_lines(["TOUCHED *base.db: it is gone", "*by test_it.py::test_copy"])


def test_copies_are_private_kept_after_a_failure_and_removed_after_a_pass(project):
    project.tests(
        """
        def test_passes(snapshot_db):
            one, two = snapshot_db("base", build=build), snapshot_db("base", build=build)
            assert one != two
            add(one, "bread")
            assert len(list(snapshot_db.connect(two).execute("SELECT * FROM note"))) == 1

        def test_fails(snapshot_db):
            add(snapshot_db("base", build=build), "bread")
            assert False
        """
    )
    ran = project.run("--snapshot-db-update", "--basetemp=base")
    ran.assert_outcomes(passed=1, failed=1)
    left = sorted((project.path / "base").rglob("*.db"))
    assert len(left) == 1
    assert bodies(left[0]) == ["milk", "bread"]


def test_the_plain_case_is_one_file_for_each_test(project):
    plain = """
        import os

        def test_plain(snapshot_db):
            db = snapshot_db.connect(isolation_level=None)
            db.execute("CREATE TABLE t (a)")
            db.execute("INSERT INTO t VALUES (1)")
            assert os.environ["INDELIBLE_SNAPSHOT_DB"] == str(snapshot_db.path)
            snapshot_db.assert_matches()
    """
    project.tests(plain).run("--snapshot-db-update").assert_outcomes(passed=1)
    assert files(project.goldens) == ["test_plain.db", "test_plain.json"]
    project.run().assert_outcomes(passed=1)
    assert "INDELIBLE_SNAPSHOT_DB" not in os.environ
    forgot = plain.replace("isolation_level=None", "")
    ran = project.tests(forgot).run()
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["E*- row 1: a=1", "E*note: *has not committed*"])


def test_a_copy_has_the_journal_mode_of_the_original(project):
    project.tests(
        """
        still_open = []

        def in_wal(path):
            db = sqlite3.connect(path)
            db.execute("PRAGMA journal_mode = wal")
            build(path)
            db.execute("INSERT INTO note VALUES (2, 'only in the log')")
            db.commit()
            still_open.append(db)

        def test_copy(snapshot_db):
            path = snapshot_db("base", build=in_wal)
            while still_open:
                still_open.pop().close()
            db = snapshot_db.connect()
            assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert len(list(db.execute("SELECT * FROM note"))) == 2
            db.execute("INSERT INTO note VALUES (3, 'in the log of the copy')")
            db.commit()
            snapshot_db.assert_matches("after", path)
        """
    )
    project.run("--snapshot-db-update").assert_outcomes(passed=1)
    project.run().assert_outcomes(passed=1)
    assert files(project.goldens) == ["after.db", "after.json", "base.db", "base.json"]
    assert len(bodies(project.golden("after"))) == 3


def test_rules_also_apply_to_an_update(project):
    rules = """
        import secrets

        def test_rules(snapshot_db):
            db = snapshot_db.connect(isolation_level=None)
            db.execute("CREATE TABLE s (id TEXT PRIMARY KEY, at)")
            for number in range(3):
                db.execute("INSERT INTO s VALUES (?, ?)", (number, secrets.token_hex()))
            snapshot_db.assert_matches("rules", ignore={"s.at"})
    """
    project.tests(rules).run("--snapshot-db-update").assert_outcomes(passed=1)
    before = project.golden("rules").read_bytes()
    project.run().assert_outcomes(passed=1)
    project.run("--snapshot-db-update").assert_outcomes(passed=1)
    assert project.golden("rules").read_bytes() == before
    ran = project.tests(rules.replace("range(3)", "range(2)")).run()
    ran.stdout.fnmatch_lines(["E*table s: 1 gone*", "E*- id='2': at=(ignored)"])


TWO_TESTS = """
    def test_one(snapshot_db):
        add(snapshot_db("base", build=build), "one")
        snapshot_db.assert_matches("same")

    def test_two(snapshot_db):
        add(snapshot_db("base", build=build), "two")
        snapshot_db.assert_matches("same")
"""


def test_two_tests_do_not_overwrite_one_anothers_golden_in_one_run(project):
    ran = project.tests(TWO_TESTS).run("--snapshot-db-update")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["E*test_it.py::test_one wrote another 'same' in this run*"])


def test_a_mismatch_names_the_test_that_wrote_the_golden_in_this_run(project):
    ran = project.tests(TWO_TESTS).run("--snapshot-db-update-only=new")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["E*note: test_it.py::test_one wrote this golden in this run"])


def test_what_a_test_obtained_stays_when_another_test_passes(project):
    project.tests(TWO_TESTS).run("--snapshot-db-update")
    ran = project.run("--basetemp=base", "test_it.py::test_two", "test_it.py::test_one")
    ran.assert_outcomes(passed=1, failed=1)
    (kept,) = (project.path / "base").rglob("*.obtained.db")
    assert bodies(kept) == ["milk", "two"]


def test_builders_with_the_same_code_are_told_apart(project):
    project.tests(
        """
        import pytest

        @pytest.mark.parametrize("body", ["one", "two"])
        def test_each(snapshot_db, body):
            def built(path):
                build(path)
                add(path, body)

            snapshot_db("base", build=built)
        """
    )
    ran = project.run("--snapshot-db-update")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["E*test_each[[]one] wrote another 'base' in this run*"])


def test_a_file_that_was_put_there_by_hand_is_refused_and_can_be_copied_by_a_builder(project):
    project.tests("def test_it(snapshot_db):\n    snapshot_db('incident')")
    project.run().stdout.fnmatch_lines(["E*Nothing says how to make it*"])
    project.goldens.mkdir(parents=True)
    make(
        project.golden("incident"), "CREATE TABLE note (id INTEGER PRIMARY KEY, body)", name="note"
    )
    before = project.golden("incident").read_bytes()
    for flags in ((), ("--snapshot-db-update",)):
        project.run(*flags).stdout.fnmatch_lines(["E*incident.db has no manifest*"])
        assert project.golden("incident").read_bytes() == before
    project.golden("incident").rename(project.path / "incident.db")
    project.tests(
        """
        import shutil
        from functools import partial

        def test_it(snapshot_db):
            add(snapshot_db("incident", build=partial(shutil.copyfile, "incident.db")), "more")
        """
    )
    project.run("--snapshot-db-update").assert_outcomes(passed=1)
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "x" * 200, "é" * 90])
def test_an_invalid_name_is_refused(project, name):
    ran = project.tests(f"def test_it(snapshot_db):\n    snapshot_db({name!r}, build=build)").run(
        "--snapshot-db-update"
    )
    ran.assert_outcomes(failed=1)
    assert "cannot be the name of a golden" in ran.stdout.str()


def test_a_pointer_of_git_lfs_is_recognised(project):
    project.tests(COPY).run("--snapshot-db-update")
    project.golden("base").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "git lfs pull" in project.run().stdout.str()


def test_a_golden_that_cannot_be_written_fails_the_test_in_a_sentence(project):
    (project.path / "__snapshot_dbs__").write_text("a file, where the folder would be")
    ran = project.tests(COPY).run("--snapshot-db-update")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["E*Failed: *test_it/base.db cannot be written: *"])
    assert "Traceback" not in ran.stdout.str()
    assert "mkdir" not in ran.stdout.str()


def test_a_manifest_that_cannot_be_written_fails_the_test_in_a_sentence(project):
    (project.goldens / "base.json").mkdir(parents=True)
    ran = project.tests(COPY).run("--snapshot-db-update")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["E*Failed: *test_it/base.db cannot be written: *"])
    assert files(project.goldens) == ["base.json"]


def test_children_find_the_file_in_their_environment(project):
    project.tests(
        """
        import subprocess, sys

        CODE = "import os, sqlite3; db = sqlite3.connect(os.environ['INDELIBLE_SNAPSHOT_DB']);" \\
            "print(db.execute('SELECT body FROM note').fetchall())"

        def test_child(snapshot_db):
            snapshot_db("base", build=build)
            ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
            assert ran.stdout.split() == ["[('milk',)]"]
        """
    )
    project.run("--snapshot-db-update").assert_outcomes(passed=1)


def test_nothing_is_left_in_the_temporary_folder(project, monkeypatch):
    place = project.pytester.mkdir("temporary")
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    project.tests(COPY).run("--snapshot-db-update")
    project.tests(COPY.replace("bread", "beer")).run()
    assert [path for path in place.iterdir() if path.name.startswith("snapshot-db")] == []


def test_goldens_of_classes_and_of_parameters_are_apart(project):
    project.tests(
        """
        import pytest

        BODIES = ["a", "a/b", "a_b", "long" * 50 + "1", "long" * 50 + "2"]

        class TestNotes:
            @pytest.mark.parametrize("body", BODIES, ids=BODIES)
            def test_each(self, snapshot_db, body):
                add(snapshot_db("base", build=build), body)
                snapshot_db.assert_matches()

        class TestMore:
            def test_each(self, snapshot_db):
                add(snapshot_db("base", build=build), "more")
                snapshot_db.assert_matches()
        """
    )
    project.run("--snapshot-db-update-only=new").assert_outcomes(passed=6)
    names = [name for name in files(project.goldens) if name.endswith(".db")]
    assert len(names) == 7
    assert {
        "base.db",
        "TestMore.test_each.db",
        "TestNotes.test_each[a].db",
        "TestNotes.test_each[a_b].db",
    } <= set(names)
    project.run().assert_outcomes(passed=6)


def test_a_database_in_which_nothing_was_written_is_not_made_a_golden(project):
    project.tests(
        """
        def test_nothing(snapshot_db):
            snapshot_db.connect()
            snapshot_db.assert_matches("nothing")
        """
    )
    ran = project.run("--snapshot-db-update")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["E*the database is empty: nothing was written to it*"])
    assert not project.golden("nothing").exists()


def test_a_damaged_file_is_not_made_a_golden(project):
    project.tests(
        """
        def test_damage(snapshot_db):
            path = snapshot_db.path
            db = sqlite3.connect(path)
            db.execute("CREATE TABLE t (a)")
            db.execute("CREATE INDEX i ON t (a)")
            db.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(2000)])
            db.commit()
            db.close()
            whole = path.read_bytes()
            path.write_bytes(whole[:-4096] + bytes(4096))
            snapshot_db.assert_matches("damaged")
        """
    )
    ran = project.run("--snapshot-db-update")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["E*a damaged file is not made a golden*"])
    assert not project.golden("damaged").exists()
