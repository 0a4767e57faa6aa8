"""Which goldens are used is known from runs of pytest; what is not known stays."""

import pytest

from pytest_snapshot_db.session_end import find_usage, list_goldens

pytest_plugins = ["pytester"]

TWO = """
    import pytest

    def test_one(snapshot_db):
        snapshot_db("one", build=build)

    def test_two(snapshot_db):
        snapshot_db("two", build=build)
"""
ONE = "def test_one(snapshot_db):\n    snapshot_db('one', build=build)"


@pytest.fixture
def states(project):
    def look():
        usage, root = find_usage(project.path)
        return {each.golden.name: each.state for each in list_goldens(project.path, usage, root)}

    return look


def test_a_golden_that_no_test_asks_for_any_more_is_unused(project, states):
    project.tests(TWO).run("--snapshot-db-update")
    assert states() == {"one": "used", "two": "used"}
    project.tests(ONE)
    # The record is of the module as it was.
    assert states() == {"one": "used", "two": "used"}
    project.run()
    assert states() == {"one": "used", "two": "unused"}


@pytest.mark.parametrize(
    "arguments", [["-k", "one"], ["test_it.py::test_one"], ["--deselect", "test_it.py::test_two"]]
)
def test_a_run_of_some_tests_says_nothing_of_the_others(project, states, arguments):
    project.tests(TWO).run("--snapshot-db-update", "-p", "no:cacheprovider")
    project.run(*arguments)
    assert states() == {"one": "used", "two": "unknown"}
    project.run()
    assert states() == {"one": "used", "two": "used"}


@pytest.mark.parametrize("line", ["assert False", "pytest.skip('not today')"])
def test_a_test_that_did_not_come_to_its_end_may_have_wanted_more(project, states, line):
    project.tests(TWO).run("--snapshot-db-update", "-p", "no:cacheprovider")
    project.tests(TWO.replace('snapshot_db("two", build=build)', f"{line}"))
    project.run()
    assert states() == {"one": "used", "two": "unknown"}


def test_goldens_of_a_module_that_is_gone_are_unused(project, states):
    project.tests(TWO).run("--snapshot-db-update")
    (project.path / "test_it.py").unlink()
    assert states() == {"one": "unused", "two": "unused"}


def test_without_a_record_nothing_is_known(project, states):
    project.tests(TWO).run("--snapshot-db-update", "-p", "no:cacheprovider")
    assert states() == {"one": "unknown", "two": "unknown"}
