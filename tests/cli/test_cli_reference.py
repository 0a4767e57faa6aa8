"""What the command line says about itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from indelible.cli.reference import every_command, reference
from transcripts import GOLDEN
from typer.testing import CliRunner

import indelible
from indelible.cli.main import app

COMMANDS = dict(every_command(typer.main.get_command(app)))
DOCUMENT = Path(__file__).parents[2] / "docs" / "commands.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_helps_with_an_example_that_parses(name):
    helped = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"})
    assert helped.exit_code == 0
    examples = re.findall(r"Example: (indelible (?:golden )?\S+)", helped.output)
    assert examples
    assert set(examples) == {f"indelible {name}"}
    assert COMMANDS[name].help


def test_the_document_is_what_the_code_says_now():
    renew = f"{sys.executable} -m indelible.cli.reference > docs/commands.md"
    assert DOCUMENT.read_text("utf-8") == reference(), f"renew it: {renew}"


def test_the_command_says_its_version_and_what_it_offers(command):
    assert command("--version").out == f"indelible {indelible.__version__}\n"
    offered = command("--help").out
    first_words = {name.split()[0] for name in COMMANDS}
    assert all(re.search(rf"^\W+{name} ", offered, re.MULTILINE) for name in first_words)
    assert "--install-completion" in offered


def test_the_shell_completes_ids_of_the_store_on_the_line(command):
    def completed(line, count):
        words = {"_INDELIBLE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": count}
        return command(env=words).out.split()

    assert completed("indelible show a", "2") == ["ada"]
    assert completed("indelible rollback ada be", "3") == ["before-refund"]
    assert completed("indelible show --url missing.db a", "4") == []
    assert not (command.folder / "missing.db").exists()


def test_help_waits_for_no_engine_and_no_story():
    # Whoever asks for help must not wait for what only a command needs.
    code = (
        "import sys; from indelible.cli import main;"
        " print([name for name in ('apsw', 'rich', 'examples.demo') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


STORY = """
import sys, types
story = types.ModuleType("examples.demo.story")
story.run_demo = lambda console: console.print("Once upon a time.") or 3
sys.modules["examples.demo.story"] = story
from indelible.cli.main import run
run()
"""


def test_demo_tells_the_story_and_ends_as_it_ends(command):
    assert command("demo", python=("-c", STORY), code=3).out == "Once upon a time.\n"


def test_every_kept_output_belongs_to_a_test():
    sources = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    kept = {path.stem for path in GOLDEN.glob("*.txt")}
    assert kept <= set(re.findall(r"def test_(\w+)\(.*golden", sources))
