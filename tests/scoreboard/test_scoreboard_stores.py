"""The list of stores and the scripts: read, not run, since frameworks are not installed here."""

import ast
import sys
from pathlib import Path

import pytest

from memory_contract.targets import FRAMEWORKS
from scoreboard.cases import LEFT_OUT, list_cases
from scoreboard.stores import STORES

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "docs/scoreboard").glob("*.py"))
# Which modules the packages of a framework bring, by the first word of a script's name.
MODULES = {
    "agno": {"agno"},
    "langchain": {"langchain_community", "langchain_core"},
    "langgraph": {"langgraph", "langchain_core"},
    "strands": {"strands"},
}


def test_no_two_stores_share_an_id():
    assert len({store.id for store in STORES}) == len(STORES)


@pytest.mark.parametrize(
    "store", [s for s in STORES if s.environment and not s.not_run], ids=lambda store: store.id
)
def test_a_store_has_a_factory_an_environment_and_a_target_that_the_kit_knows(store):
    *framework, module, factory = store.target.split(":")
    assert not set(framework) - set(FRAMEWORKS)
    assert (ROOT / f"requirements/frameworks/{store.environment}.txt").exists()
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    made = {node.name: node for node in tree.body if isinstance(node, functions)}
    if not framework:
        # An adapter, which says more than its factory can.
        assert f"open_{factory}" in made
        return
    assert factory in made
    parameters = [each.arg for each in made[factory].args.args]
    assert ("server" in parameters) == (store.server is not None)


def test_a_command_brings_the_servers_that_its_store_needs():
    commands = {store.id: store.command("--seed 1") for store in STORES}
    assert commands["langchain/file"] == (
        ".venv-frameworks/langchain/bin/memory-contract check "
        "langchain:scoreboard.factories.langchain:file --seed 1"
    )
    assert commands["langchain/redis"].startswith(".venv/bin/python -m scoreboard.servers .venv-f")
    assert commands["indelible/redis"] == (
        ".venv/bin/python -m scoreboard.servers sh -c "
        "'.venv/bin/memory-contract check $SCOREBOARD_REDIS --seed 1'"
    )


def test_what_is_left_out_is_a_case_and_not_asked():
    names = {case.name for case in list_cases()}
    assert names
    assert not names & set(LEFT_OUT)


def test_there_are_five_scripts_or_more():
    assert len(SCRIPTS) >= 5


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_uses_its_framework_alone_and_says_how_it_is_run(path):
    tree = ast.parse(path.read_text("utf-8"))
    compile(tree, str(path), "exec")
    names = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    framework = path.stem.partition("_")[0]
    assert names - sys.stdlib_module_names <= MODULES[framework]
    assert names & MODULES[framework]
    said = ast.get_docstring(tree)
    assert f".venv-frameworks/{framework}/bin/python docs/scoreboard/{path.name}" in said
    assert "Printed:" in said
