"""The command that installs an extra."""

import json
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from indelible.core import extras
from indelible.core.extras import format_install_command


class Installed:
    def __init__(self, origin):
        self.origin = origin

    def read_text(self, _name):
        return self.origin


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "not json",
        json.dumps({"url": "file:///somewhere/indelible", "dir_info": {}}),
        json.dumps({"url": "https://example.com/indelible.whl", "archive_info": {}}),
    ],
)
def test_an_installed_package_is_installed_again_by_its_name(monkeypatch, origin):
    monkeypatch.setattr(extras, "distribution", lambda _: Installed(origin))
    assert format_install_command("redis") == "pip install 'indelible[redis]'"


def test_a_clone_is_named_by_its_folder(monkeypatch):
    origin = json.dumps({"url": "file:///a%20b/indelible", "dir_info": {"editable": True}})
    monkeypatch.setattr(extras, "distribution", lambda _: Installed(origin))
    assert format_install_command("redis") == "pip install -e '/a b/indelible[redis]'"


def test_a_folder_that_a_plain_install_came_from_is_named_while_it_is_there(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").touch()
    origin = json.dumps({"url": tmp_path.as_uri(), "dir_info": {}})
    monkeypatch.setattr(extras, "distribution", lambda _: Installed(origin))
    assert format_install_command("redis") == f"pip install '{tmp_path}[redis]'"


def test_the_command_for_this_clone_works():
    assert "editable" in (distribution("indelible").read_text("direct_url.json") or "")
    *_, folder = format_install_command("mcp").split()
    assert (Path(folder.strip("'").partition("[")[0]) / "pyproject.toml").exists()


def test_both_kinds_of_store_say_where_they_are():
    code = (
        "import asyncio, indelible;"
        "print(indelible.open('memory:'));"
        "print(asyncio.run(indelible.open_async('memory:')._open()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<MemoryStore on memory:>", "<AsyncMemoryStore on memory:>"]
