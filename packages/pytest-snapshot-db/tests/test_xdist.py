"""Goldens and workers of xdist: each golden written once and whole, and touched ones found."""

pytest_plugins = ["pytester"]

MANY = """
    import pytest

    @pytest.mark.parametrize("number", range(12))
    def test_many(snapshot_db, number):
        path = snapshot_db("base", build=build)
        add(path, "bread")
        snapshot_db.assert_matches("after", path)
        snapshot_db.assert_matches(f"after {number % 3}", path)
"""


def test_workers_write_each_golden_once(project):
    ran = project.tests(MANY).run_apart("-n", "2", "--snapshot-db-update")
    ran.assert_outcomes(passed=12)
    shown = ran.stdout.str()
    assert shown.count("\nnew ") == 5
    assert "changed" not in shown
    assert "TOUCHED" not in shown
    assert sorted(path.name for path in project.goldens.iterdir() if path.suffix == ".db") == [
        "after 0.db",
        "after 1.db",
        "after 2.db",
        "after.db",
        "base.db",
    ]


def test_workers_report_as_one_process_does(project):
    touching = """
        def test_touches(snapshot_db, request):
            path = snapshot_db("base", build=build)
            add(request.path.parent / "__snapshot_dbs__/test_it/base.db", "oops")
            add(path, "beer")
            snapshot_db.assert_matches("after", path)
    """
    project.tests(MANY).run("--snapshot-db-update").assert_outcomes(passed=12)
    ran = project.tests(touching).run_apart("-n", "1")
    ran.assert_outcomes(failed=1)
    shown = ran.stdout.str()
    assert "  ~ id=2: body: 'bread' → 'beer'" in shown
    assert "TOUCHED __snapshot_dbs__/test_it/base.db: its bytes were changed" in shown
    assert "  by test_it.py::test_touches" in shown
