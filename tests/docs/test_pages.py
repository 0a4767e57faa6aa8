"""The tutorial and the how-to pages are run from top to bottom: Python, and the shell's commands.

A ```console block holds commands after "$ " and, below each, what it prints; "..." alone on a line
stands for output that is left out. Ids, dates and times differ from run to run. An id that a page
shows stands for the id that was really printed there, also in later commands of the page.

Python blocks of the tutorial are run by `test_blocks`. Those of a how-to run here, in one folder
with the page's commands, so that a command may look at what Python wrote.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from memory_contract.faults.servers.valkey import ValkeyServer
from tests.docs import test_blocks
from tests.docs.test_blocks import ROOT, Block, blocks, name_of, prose
from tests.support import postgres_server

DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
TUTORIAL = DOCS / "tutorial.md"
HOW_TO = sorted(DOCS.glob("how-to/*.md"))

# It sets what a process can set only once, and what tests of telemetry set, too.
IN_ITS_OWN_PROCESS = DOCS / "how-to" / "opentelemetry.md"
# Set in that process.
ALONE = "INDELIBLE_PAGE_ALONE"

# A bound on what hangs, not on what is slow.
COMMAND_S_MAX = 300
ID = re.compile(r"\b[0-9a-f]{16}\b")
VARIES = ((ID, "<id>"), (r"\b\d{4}-\d\d-\d\d\b", "<date>"), (r"\b\d\d:\d\d(:\d\d)?\b", "<time>"))
LEFT_OUT = "..."


class Command(NamedTuple):
    """One command of a console block, and the lines that it is said to print."""

    line: int
    text: str
    prints: list[str]


def commands(block: Block) -> Iterator[Command]:
    found: list[Command] = []
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        if line.startswith("$ "):
            found.append(Command(number, line[2:], []))
        else:
            assert found, f"line {number} is printed by no command: {line!r}"
            found[-1].prints.append(line)
    yield from found


def repeatable(text: str) -> str:
    """Text without what differs from run to run."""
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


class Shell:
    """Runs a page's commands in one folder, and knows which id is meant by which."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.real_ids: dict[str, str] = {}
        kept = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        # Unbuffered, so that stdout and stderr keep the order that a terminal shows.
        fixed = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
        # Readers do not have the plugins of our own tests, which take longer to load than a page.
        fixed |= {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "memory_contract.pytest_plugin,pytest_snapshot_db.pytest_plugin",
        }
        self.environment = {**kept, **fixed, "LC_ALL": "C.UTF-8", "PATH": path}

    def check(self, command: Command) -> None:
        """Run one command, and compare what it prints with what the page says."""
        if exported := re.fullmatch(r"export (\w+)=(\S+)", command.text):
            self.environment[exported[1]] = exported[2]
            assert command.prints == []
            return
        text = ID.sub(lambda shown: self.real_ids.get(shown[0], shown[0]), command.text)
        code, printed = self._run(text)
        said = "\n".join(command.prints)
        if LEFT_OUT in command.prints:
            pattern = re.escape(repeatable(said)).replace(re.escape(LEFT_OUT), r"(?s:.*)")
            assert re.fullmatch(pattern, repeatable(printed)), f"{command} printed {printed}"
            assert code == 0, f"{command} ended with {code}, and printed {printed}"
            return
        assert repeatable(printed) == repeatable(said), f"line {command.line}: {command.text}"
        for shown, real in zip(ID.findall(said), ID.findall(printed), strict=True):
            assert self.real_ids.setdefault(shown, real) == real, f"line {command.line}: {shown}"

    def _run(self, text: str) -> tuple[int, str]:
        done = subprocess.run(
            ["/bin/sh", "-c", text],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_S_MAX,
            check=False,
        )
        return done.returncode, done.stdout.decode()


def run_python(path: Path, block: Block, following: Block, namespace: dict[str, object]) -> None:
    """Run a block; what it prints stands in the text block behind it."""
    printed = io.StringIO()
    # Blank lines in front, so that a traceback shows the page's own line numbers.
    source = "\n" * (block.line - 1) + block.text
    with redirect_stdout(printed):
        exec(compile(source, str(path), "exec"), namespace)
    if printed.getvalue():
        assert following.language == "text", f"{path}:{block.line}: prints, and no page says what"
        assert repeatable(printed.getvalue()) == repeatable(following.text)


@contextmanager
def valkey(folder: Path) -> Iterator[str]:
    server = ValkeyServer(folder / "valkey")
    server.start()
    try:
        yield server.url
    finally:
        server.kill()


@contextmanager
def postgres(_: Path) -> Iterator[str]:
    yield postgres_server.fresh_database()


# A page names a server as its readers would; here it is one of our own, where it really listens.
SERVERS = {"redis://localhost:6379": valkey, "postgresql://localhost/agents": postgres}


def on_real_servers(path: Path, folder: Path, running: ExitStack) -> Iterator[Block]:
    """The blocks of a page, with the servers that it names."""
    text = path.read_text("utf-8")
    real = {
        named: running.enter_context(start(folder))
        for named, start in SERVERS.items()
        if named in text
    }
    for block in blocks(path):
        for named, url in real.items():
            block = block._replace(text=block.text.replace(named, url))  # noqa: PLW2901
        yield block


@pytest.mark.parametrize("path", [TUTORIAL, *HOW_TO], ids=name_of)
def test_a_page_does_what_it_says(path, tmp_path, tmp_path_factory, monkeypatch, request):
    if path == IN_ITS_OWN_PROCESS and ALONE not in os.environ:
        command = [sys.executable, "-m", "pytest", "-q", f"{__file__}::{request.node.name}"]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, ALONE: "1"}, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout.decode()
        return
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    with ExitStack() as running:
        found = list(on_real_servers(path, tmp_path_factory.mktemp("servers"), running))
        run_page(path, found, shell, namespace)


def run_page(path: Path, found: list[Block], shell: Shell, namespace: dict[str, object]) -> None:
    for block, following in pairwise([*found, Block("", "", 0)]):
        if block.language == "console":
            for command in commands(block):
                shell.check(command)
        elif block.language == "python" and path != TUTORIAL:
            run_python(path, block, following, namespace)


@pytest.mark.parametrize("path", HOW_TO, ids=name_of)
def test_a_how_to_can_fail(path):
    assert any("assert " in block.text for block in blocks(path) if block.language == "python")


@pytest.mark.parametrize("path", HOW_TO, ids=name_of)
def test_a_how_to_is_held_to_what_every_document_is(path):
    test_blocks.test_every_fence_names_a_known_language(path)
    test_blocks.test_every_link_leads_to_something_that_is_there(path)
    test_blocks.test_every_make_target_that_is_named_exists(path)


def test_the_index_leads_to_every_page():
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", prose(INDEX))}
    assert set(DOCS.rglob("*.md")) - {INDEX} <= linked
