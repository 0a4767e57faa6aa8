"""Adapters without their framework, and indelible without any."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from indelible.core.extras import format_install_command

ROOT = Path(__file__).parents[4]

# The adapter, the module that it stands on, and what brings that.
ADAPTERS = [
    ("langchain", "langchain_core", "indelible[langchain]"),
    ("langgraph", "langgraph", "indelible[langgraph]"),
    ("openai_agents", "agents", "indelible[openai-agents]"),
    ("claude_agent", "claude_agent_sdk", "indelible[claude-agent]"),
    ("llama_index", "llama_index", "indelible[llama-index]"),
    ("pydantic_ai", "pydantic_ai", "indelible[pydantic-ai]"),
    ("mcp", "mcp", "indelible[mcp]"),
]


@pytest.mark.parametrize(("adapter", "framework", "extra"), ADAPTERS)
def test_an_adapter_without_its_framework_says_what_to_install(adapter, framework, extra):
    code = f"import sys; sys.modules[{framework!r}] = None; import indelible.adapters.{adapter}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert format_install_command(extra[len("indelible[") : -1]) in last


def test_the_command_without_mcp_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['mcp'] = None; sys.argv = ['indelible', 'mcp', 'agent.db'];"
        " from indelible.cli.main import run; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 2
    assert format_install_command("mcp") in done.stderr
    assert not (tmp_path / "agent.db").exists()


def test_importing_the_package_imports_no_framework():
    names = {framework for _, framework, _ in ADAPTERS}
    code = f"import sys, indelible, indelible.cli.main; print({names!r} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout == "set()\n"


def test_the_oldest_versions_that_are_tested_are_those_that_the_extras_allow():
    project = ROOT / "packages" / "indelible" / "pyproject.toml"
    extras = tomllib.loads(project.read_text("utf-8"))["project"]
    lowest = dict(
        requirement.split(">=")
        for name in (
            "langchain",
            "openai-agents",
            "claude-agent",
            "llama-index",
            "pydantic-ai",
            "mcp",
        )
        for requirement in extras["optional-dependencies"][name]
        if not requirement.startswith("indelible")
    )
    text = (ROOT / "requirements" / "oldest.in").read_text("utf-8")
    tested = dict(re.findall(r"(?m)^([\w-]+)==(\S+)$", text))
    assert {name: tested[name].startswith(version) for name, version in lowest.items()} == (
        dict.fromkeys(lowest, True)
    )
