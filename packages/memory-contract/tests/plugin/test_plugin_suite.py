"""`class TestMine(MemoryContract)`: the contract as tests of a class."""

import pytest

from memory_contract.cases.catalogue import all_cases
from memory_contract.plugin.suite import MemoryContract
from tests.support.kit import plugin_projects
from tests.support.kit.plugin_projects import outcomes, run

pytest_plugins = ["pytester"]

MINE = """
from memory_contract import MemoryContract

class TestMine(MemoryContract):
    adapter = "stores:{store}"
{more}
"""
FEW = ("-k", "append_then_read or append_storm or pop_race or nothing_is_overridden")


@pytest.fixture
def project(pytester, monkeypatch):
    plugin_projects.make(pytester, monkeypatch)

    def written(store="Steady", more=""):
        pytester.makepyfile(test_mine=MINE.format(store=store, more=more))
        return pytester

    return written


def test_there_is_a_test_for_every_case():
    tests = [name for name in vars(MemoryContract) if name.startswith("test_")]
    cases = [f"test_{each.gate}_{each.name}" for each in all_cases()]
    assert tests == ["test_nothing_is_overridden", *cases]
    for each in all_cases():
        test = vars(MemoryContract)[f"test_{each.gate}_{each.name}"]
        assert test.__doc__ == each.does
        assert test.__name__ == f"test_{each.gate}_{each.name}"


def test_each_case_is_a_test_in_each_mode_of_the_store(project):
    ran = run(project(), "test_mine.py", "-v", *FEW)
    assert outcomes(ran) == {"passed": 3, "skipped": 3}
    ran.stdout.fnmatch_lines(
        [
            "test_mine.py::TestMine::test_nothing_is_overridden PASSED*",
            "test_mine.py::TestMine::test_sequential_append_then_read[[]blocking] PASSED*",
            "test_mine.py::TestMine::test_concurrency_append_storm[[]threads] PASSED*",
            "test_mine.py::TestMine::test_concurrency_append_storm[[]processes] SKIPPED*",
        ]
    )


def test_it_fails_with_the_proof_and_runs_in_workers(project):
    ran = run(project("Lossy"), "test_mine.py", "-n", "2", "--contract-seed=7", *FEW)
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(ran)["failed"] == 1
    assert "LOST APPEND" in ran.stdout.str()
    assert "Traceback" not in ran.stdout.str()
    assert "memory-contract check stores:Lossy --case append_storm --seed" in ran.stdout.str()
    again = run(project("Lossy"), "test_mine.py", "--lf", "-q", *FEW)
    assert outcomes(again) == {"failed": 1}


def test_it_works_without_the_options_too(project):
    ran = project("Lossy").runpytest_subprocess("test_mine.py", "-k", "append_then_read")
    assert outcomes(ran) == {"passed": 1}


@pytest.mark.parametrize(
    "more",
    [
        "    def test_concurrency_append_storm(self): pass",
        "    test_concurrency_append_storm = None",
    ],
    ids=["replaced", "removed"],
)
def test_a_case_that_is_talked_out_of_is_noticed(project, more):
    ran = run(project(more=more), "test_mine.py", "-k", "append_storm or nothing_is_overridden")
    assert outcomes(ran)["failed"] == 1
    assert "these belong to the contract: test_concurrency_append_storm" in ran.stdout.str()


def test_the_guard_cannot_be_replaced():
    with pytest.raises(TypeError, match="holds it to the contract"):

        class Unguarded(MemoryContract):
            def test_nothing_is_overridden(self): ...


@pytest.mark.parametrize(
    ("adapter", "words"),
    [
        ("None", "say what the `adapter` is"),
        (
            "'stores:Closed'",
            "the store cannot be opened and read: ConnectionError: nobody is there",
        ),
        ("'stores:Nothing'", "cannot import 'stores:Nothing'"),
    ],
)
def test_a_store_that_is_not_there_is_an_error(project, adapter, words):
    ran = run(project(more=f"    adapter = {adapter}"), "test_mine.py")
    assert ran.ret == pytest.ExitCode.INTERRUPTED
    assert words in ran.stdout.str()
    assert "Traceback" not in ran.stdout.str()


def test_an_adapter_of_ones_own_and_a_class_will_do(project):
    more = """
    from stores import Steady as adapter

class TestAnother(MemoryContract):
    from memory_contract import Adapter
    from memory_contract.goldfish import RIGHT
    adapter = next(iter(RIGHT.values()))
"""
    ran = run(project(more=more), "test_mine.py", "-k", "append_then_read")
    assert outcomes(ran)["passed"] >= 2
    assert "failed" not in outcomes(ran)
