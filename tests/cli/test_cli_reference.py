"""What the command line says about itself."""

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import indelible
from indelible.cli.main import app
from indelible.core.extras import format_install_command
from memory_contract.cli.main import build_parser, main
from scripts.command_reference import build_reference, list_parser_commands
from tests.support.transcripts import GOLDEN

COMMANDS = typer.main.get_command(app).commands
KIT_COMMANDS = list_parser_commands(build_parser())
DOCUMENT = Path(__file__).parents[2] / "docs" / "commands.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_helps_with_an_example_that_parses(name):
    helped = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert helped.exit_code == 0
    examples = re.findall(r"Example: (indelible \S+)", helped.output)
    assert examples
    assert set(examples) == {f"indelible {name}"}
    assert COMMANDS[name].help


def test_a_paragraph_of_a_help_is_wrapped_once():
    helped = CliRunner().invoke(app, ["trim", "--help"], env={"COLUMNS": "80"})
    lines = [line.strip() for line in helped.output.splitlines()]
    first = next(place for place, line in enumerate(lines) if line.startswith("Pinned and"))
    paragraph = lines[first : lines.index("", first)]
    # A line ends where the next word has no room.
    for line, following in pairwise(paragraph):
        assert len(f"{line} {following.split()[0]}") > 78


@pytest.mark.parametrize("name", KIT_COMMANDS)
def test_every_command_of_the_kit_helps_with_an_example_that_parses(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    examples = re.findall(r"Example: memory-contract (.+)", capsys.readouterr().out)
    assert examples
    for example in examples:
        assert build_parser().parse_args(shlex.split(example)).run.__name__ == name
    assert KIT_COMMANDS[name].description


def test_the_kit_without_a_command_says_what_there_is(capsys):
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^ +{name} ", shown, re.MULTILINE) for name in KIT_COMMANDS)


def test_the_document_is_what_the_code_says_now():
    renew = f"{sys.executable} -m scripts.command_reference > docs/commands.md"
    assert DOCUMENT.read_text("utf-8") == build_reference(), f"renew it: {renew}"


def test_the_command_says_its_version_and_what_it_offers(command):
    assert command("--version").out == f"indelible {indelible.__version__}\n"
    offered = command("--help").out
    assert all(re.search(rf"^\W+{name} ", offered, re.MULTILINE) for name in COMMANDS)
    assert "--install-completion" in offered


def test_the_shell_completes_ids_of_the_store_on_the_line(command):
    def completed(line, count):
        words = {"_INDELIBLE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": count}
        return command(env=words).out.split()

    assert completed("indelible show a", "2") == ["ada"]
    assert completed("indelible rollback ada be", "3") == ["before-refund"]
    assert completed("indelible show --url missing.db a", "4") == []
    assert not (command.folder / "missing.db").exists()


def test_help_waits_for_no_engine():
    # Whoever asks for help must not wait for what only a command needs.
    code = (
        "import sys; from indelible.cli import main;"
        " print([name for name in ('apsw', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize(
    ("line", "command_there"),
    [
        (["check", "mystore:Store", "--seed", "7"], "memory-contract check mystore:Store --seed 7"),
        (["explain", "a trace"], "memory-contract explain 'a trace'"),
        (["golden", "diff", "a.db", "b.db"], "snapshot-db diff a.db b.db"),
    ],
)
def test_a_command_of_another_package_is_named(command, line, command_there):
    assert command_there in command(*line, code=2).err


def test_the_command_says_which_extra_it_needs():
    code = (
        "import sys; sys.modules['typer'] = None; sys.modules['rich'] = None\n"
        "from indelible.cli import run; run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 2
    assert format_install_command("cli").encode() in done.stderr


def test_every_kept_output_belongs_to_a_test():
    sources = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    kept = {path.stem for path in GOLDEN.glob("*.txt")}
    assert kept <= set(re.findall(r"def test_(\w+)\(.*golden", sources))
