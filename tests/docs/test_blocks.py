"""What the documents say is run: blocks, links, commands, errors and limits."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

import indelible
from indelible.core.verbs import VERBS
from tests.support.verbs import list_parameters

ROOT = Path(__file__).resolve().parents[2]
RUN = sorted(
    [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "packages" / "indelible" / "README.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("packages/indelible/src/indelible/backends/*/DESIGN.md"),
    ]
)
READ = sorted(
    [
        *RUN,
        ROOT / "CHANGELOG.md",
        ROOT / "SECURITY.md",
        ROOT / "packages" / "memory-contract" / "README.md",
        ROOT / "packages" / "pytest-snapshot-db" / "README.md",
        ROOT / "tests" / "README.md",
        ROOT / "examples" / "README.md",
    ]
)
# A fence names one of these. Whatever is fenced as python runs; there is no way around it.
FENCES = {"python", "console", "text"}

PROMISE = ["Holds for", "Assumes", "Tested by", "Not promised", "Ways to break it"]
GUARANTEES = ROOT / "docs" / "guarantees.md"
ERRORS = ROOT / "docs" / "errors.md"
SQLITE_DESIGN = (
    ROOT / "packages" / "indelible" / "src" / "indelible" / "backends" / "sqlite" / "DESIGN.md"
)
POSTGRES_DESIGN = (
    ROOT / "packages" / "indelible" / "src" / "indelible" / "backends" / "postgres" / "DESIGN.md"
)


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line that its text begins on."""

    language: str
    text: str
    line: int


def blocks(path: Path) -> Iterator[Block]:
    language, begins, lines = None, 0, []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if not line.lstrip().startswith("```"):
            lines.append(line)
        elif language is None:
            assert line.startswith("```"), f"{path}:{number}: an indented fence is not run"
            language, begins, lines = line[3:], number + 1, []
        else:
            yield Block(language, "\n".join(lines) + "\n", begins)
            language = None
    assert language is None, f"{path}:{begins - 1}: this fence is not closed"


def prose(path: Path) -> str:
    """A document without its fenced blocks."""
    return re.sub(r"(?ms)^```.*?^```$", "", path.read_text("utf-8"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", RUN, ids=name_of)
def test_every_python_block_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for block in blocks(path):
        if block.language == "python":
            # Blank lines in front, so that a traceback shows the document's own line numbers.
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, str(path), "exec"), namespace)


def test_the_readme_can_be_run_again_and_finds_what_it_stored(tmp_path):
    program = tmp_path / "readme.py"
    found = blocks(ROOT / "README.md")
    program.write_text("\n".join(each.text for each in found if each.language == "python"), "utf-8")
    for runs in (1, 2):
        done = subprocess.run(
            [sys.executable, program.name], cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        with indelible.open(tmp_path / "agent.db") as store:
            said = [message.content for message in store.get_history("ana")]
        assert said.count("My name is Ana.") == runs


@pytest.mark.parametrize("path", READ, ids=name_of)
def test_every_fence_names_a_known_language(path):
    for block in blocks(path):
        assert block.language in FENCES, f"{path}:{block.line - 1}: {block.language!r}"


def test_the_documents_that_teach_have_blocks_that_run():
    for path in (ROOT / "README.md", ERRORS, GUARANTEES):
        assert any(block.language == "python" for block in blocks(path)), path


@pytest.mark.parametrize("path", READ, ids=name_of)
def test_every_link_leads_to_something_that_is_there(path):
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{name_of(path)} links to {target}"
        if anchor:
            assert anchor in anchors(there), f"{name_of(path)} links to {target}"


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"(?m)^#+ (.+)$", prose(path))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", READ, ids=name_of)
def test_every_make_target_that_is_named_exists(path):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"(?m)^([a-z][a-z-]*):", makefile))
    code = re.findall(r"`([^`\n]+)`", prose(path))
    code += [block.text for block in blocks(path) if block.language == "console"]
    named = {name for text in code for name in re.findall(r"\bmake ([a-z][a-z-]*)", text)}
    assert named <= targets, f"{name_of(path)} names {sorted(named - targets)}"


def test_the_architecture_names_every_module_but_those_of_engines():
    package = ROOT / "packages" / "indelible" / "src" / "indelible"
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    modules = [path for path in package.rglob("*.py") if path.name != "__init__.py"]
    ours = {path.name for path in modules if "backends" not in path.parts}
    assert {name for name in ours if not re.search(rf"(?<!\w){re.escape(name)}", text)} == set()


def test_files_that_documents_for_contributors_name_exist():
    """A path with a folder in it, from the root or from the package that it is said of."""
    roots = [
        ROOT,
        ROOT / "packages" / "indelible" / "src" / "indelible",
        ROOT / "packages" / "indelible" / "src" / "indelible" / "backends",
        ROOT / "packages" / "indelible" / "src",
        ROOT / "packages" / "memory-contract" / "src",
        ROOT / "packages" / "indelible" / "src" / "indelible" / "core",
    ]
    for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/write-a-backend.md"):
        for path in re.findall(r"`([\w.-]+/[\w./-]+)`", prose(ROOT / name)):
            assert any((root / path).exists() for root in roots), f"{name} names {path}"


def errors() -> dict[str, type[indelible.MemoryStoreError]]:
    exported = {name: getattr(indelible, name) for name in indelible.__all__}
    return {
        name: thing
        for name, thing in exported.items()
        if isinstance(thing, type) and issubclass(thing, BaseException)
    }


def test_the_errors_page_names_every_error_and_no_other():
    assert set(re.findall(r"\b\w+Error\b", ERRORS.read_text("utf-8"))) == set(errors())


def test_the_errors_page_says_of_each_whether_it_landed_and_may_be_retried():
    row = r"(?m)^\| `(\w+)` \| (no|maybe) \| (no|yes) \|"
    said = {
        name: (landed, retryable == "yes")
        for name, landed, retryable in re.findall(row, prose(ERRORS))
    }
    assert said == {name: (kind.landed, kind.retryable) for name, kind in errors().items()}


def test_every_reason_of_a_conflict_is_on_the_errors_page_and_in_the_class():
    source = ROOT / "packages" / "indelible" / "src"
    texts = [path.read_text("utf-8") for path in source.rglob("*.py")]
    raised = {reason for text in texts for reason in re.findall(r'\breason="(\w+)"', text)}
    _, table = prose(ERRORS).split("| reason | what happened | what to do |")
    assert set(re.findall(r"(?m)^\| `(\w+)` \|", table.partition("\n\n")[0])) == raised
    assert set(re.findall(r'"(\w+)" \(', indelible.ConflictError.__doc__)) == raised


def test_the_errors_page_says_of_each_verb_without_a_key_what_to_do():
    _, table = prose(ERRORS).split("| verb | what to do |")
    rows = re.findall(r"(?m)^\| (`.+`) \|", table.partition("\n\n")[0])
    said = [verb for row in rows for verb in re.findall(r"`(\w+)`", row)]
    writes = [verb.name for verb in VERBS.values() if verb.writes]
    assert sorted(said) == sorted(verb for verb in writes if "key" not in list_parameters(verb))


def test_every_promise_says_where_it_holds_what_tests_it_and_how_to_break_it():
    sections = re.split(r"(?m)^## ", prose(GUARANTEES))[1:]
    promises = [section for section in sections if "**Holds for**" in section]
    assert len(promises) > 10
    for promise in promises:
        name = promise.partition("\n")[0]
        said = re.findall(r"(?m)^- \*\*([^*]+)\*\*: \S", promise)
        assert said == PROMISE, name
        assert re.search(r"\*\*Tested by\*\*: \[[^]]+\]\(\.\./(?:tests|packages)/", promise), name


def quoted(path: Path) -> dict[str, float]:
    """The constants that a document quotes as `NAME = value`."""
    found = re.findall(r"`([A-Z][A-Z_]+) = ([\d_.]+)`", prose(path))
    return {name: float(value) for name, value in found}


def constants(*modules: str) -> dict[str, float]:
    return {
        name: float(value)
        for module in modules
        for name, value in vars(import_module(module)).items()
        if name.isupper() and isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def test_the_limits_table_quotes_every_limit_as_it_is():
    limits = constants("indelible.core.limits", "indelible.view")
    assert quoted(GUARANTEES) == limits


def test_the_sqlite_design_quotes_its_constants_as_they_are():
    rooms = ("schema", "readers", "transaction", "connection", "text_index")
    there = constants(
        "indelible.core.embedded", *(f"indelible.backends.sqlite.{room}" for room in rooms)
    )
    said = quoted(SQLITE_DESIGN)
    assert said
    assert said == {name: there.get(name) for name in said}


def test_the_postgresql_design_quotes_its_constants_as_they_are():
    rooms = ("schema", "client", "connection_pool", "statements")
    there = constants(*(f"indelible.backends.postgres.{room}" for room in rooms))
    said = quoted(POSTGRES_DESIGN)
    assert said
    assert said == {name: there.get(name) for name in said}
