"""The kit as it is installed: alone, in a fresh environment, on the store of its README."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
INSTALL = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python"]
LIST = "from importlib.metadata import distributions as d; print(sorted(x.name for x in d()))"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The Python of an environment in which the kit was installed from its wheel."""
    folder = tmp_path_factory.mktemp("installed")
    made = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=PACKAGE, check=True, capture_output=True)
    subprocess.run([*INSTALL, str(made), "install", *map(str, folder.glob("*.whl"))], check=True)
    return made / "bin" / "python"


def run(python, folder, *arguments):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    return subprocess.run(
        [python, *arguments], cwd=folder, env=kept, capture_output=True, text=True, check=False
    )


def test_it_brings_wrapt_and_nothing_else(installed, tmp_path):
    assert run(installed, tmp_path, "-c", LIST).stdout == "['memory-contract', 'wrapt']\n"


def test_the_store_of_the_readme_gets_its_verdict(installed, tmp_path):
    readme = (PACKAGE / "README.md").read_text("utf-8")
    (source,) = re.findall(r"```python\n(# mystore\.py\n.*?)```", readme, re.DOTALL)
    (tmp_path / "mystore.py").write_text(source, "utf-8")
    some = [f"--case={name}" for name in ("append_then_read", "append_storm", "kill9_under_load")]
    done = run(installed, tmp_path, "-m", "memory_contract", "check", "mystore:make_store", *some)
    assert done.returncode == 0, done
    assert "concurrency  PASS" in done.stdout
    assert "Next: memory-contract init mystore:make_store" in done.stdout


def test_commands_that_need_no_extra_work_without_any(installed, tmp_path):
    for command in (["--help"], ["cases"], ["faults"], ["init"]):
        done = run(installed, tmp_path, "-m", "memory_contract", *command)
        assert done.returncode == 0, done
        assert "Traceback" not in done.stderr


def test_it_runs_with_versions_of_wrapt_whose_proxies_are_not_generic():
    # So they are up to 2.1.2, at runtime.
    program = """
import wrapt

class NotGeneric(wrapt.BaseObjectProxy):
    __class_getitem__ = None

wrapt.BaseObjectProxy = NotGeneric
from memory_contract.cli.main import main
main(["cases", "--gate", "recall"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
