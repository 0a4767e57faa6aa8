"""The reference of the commands of all packages, written from the commands themselves.

python -m scripts.command_reference > docs/commands.md
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import typer.main

from indelible.cli.main import app
from indelible.cli.options import SHARED_PANEL
from memory_contract.cli.main import build_parser as build_kit_parser
from pytest_snapshot_db.cli import build_parser

OPENING = """\
# Commands

Commands of `indelible` (extra `cli`) name the store with `--url` or the environment variable
`INDELIBLE_URL`: a file name such as `agent.db`, or a server such as `redis://localhost`. `copy`
takes two stores as arguments. Put passwords into the environment: other users can read a command
line. `indelible COMMAND --help` prints what is on this page. `indelible --install-completion` makes
the shell complete commands and ids (only ids of letters, digits and `_ . : @ / + -`, which no shell
takes for code). [`memory-contract`](#memory-contract) is the command of the contract kit, for any
store: [Check your store](how-to/check-your-store.md). [`snapshot-db`](#snapshot-db) works on SQLite
files of any program: [Test with a golden SQLite file](how-to/golden-sqlite-files.md).

If the store does not exist, a command fails and creates nothing. Only `append`, `remember`,
`import`, `copy`, `import-langchain`, `import-langgraph` and `mcp` create a store. `append`,
`remember`, `retract`, `snapshot`, `reindex`, and an `export` to a new file do not ask. Every other
command that changes something says what it will do and asks first. `--yes` confirms; without it and
without a terminal, nothing is changed. Long operations show their progress on a terminal.

## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 1 | the data is wrong or in danger, an id does not exist, a contract is broken, or files differ |
| 2 | the command was wrong, or was not confirmed; nothing was changed |
| 3 | only `memory-contract`: nothing failed, but something could not be decided or did not run |
| 4 | the store or a file is missing or could not be reached, or the outcome is unknown |
| 130 | interrupted by Ctrl-C; at a question, nothing was changed |

Errors are a sentence or two on stderr. If a write may have succeeded, the error gives its key and
the command that completes it exactly once. Commands in messages repeat your `--url` and
`--namespace`, with `***` in place of a password.

## Options of every command on a store
"""


KIT = """
# memory-contract

The command of the contract kit. It works on stores that it creates, and does not touch existing
data. [Check your store](how-to/check-your-store.md) says how to name a target."""

GOLDENS = """
# snapshot-db

The command of pytest-snapshot-db, for the goldens of any project."""


def build_reference() -> str:
    """Build the whole document."""
    group: Any = typer.main.get_command(app)
    commands = group.commands
    shared = [each for each in commands["sessions"].params if _is_shared(each)]
    parts = [OPENING, *_format_options(shared)]
    for name, command in commands.items():
        parts += ["", *_format_command(name, command)]
    parts += [KIT, *_format_parser("memory-contract", build_kit_parser())]
    parts += [GOLDENS, *_format_parser("snapshot-db", build_parser())]
    return "\n".join(parts) + "\n"


def list_parser_commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """List the subcommands of a parser by name."""
    for action in parser._subparsers._group_actions:  # type: ignore[union-attr]  # noqa: SLF001
        assert isinstance(action.choices, dict)
        return action.choices
    raise AssertionError("it has no commands")


def _format_parser(program: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    for name, command in list_parser_commands(parser).items():
        yield f"\n## {program} {name}\n"
        yield f"{command.description}\n"
        yield "```console"
        for example in (command.epilog or "").splitlines():
            yield f"$ {example.removeprefix('Example: ')}"
        yield "```"
        yield "\n| argument or option | |\n|---|---|"
        for each in command._actions:  # noqa: SLF001 (argparse has no public list)
            if not isinstance(each, argparse._HelpAction):  # noqa: SLF001
                names = ", ".join(sorted(each.option_strings, key=len, reverse=True))
                value = str(each.metavar) if each.nargs != 0 else ""
                shown = " ".join(filter(None, (names, value)))
                yield f"| `{shown}` | {_format_cell(each.help)} |"


def _is_shared(parameter: Any) -> bool:
    return getattr(parameter, "rich_help_panel", None) == SHARED_PANEL


def _format_command(name: str, command: Any) -> Iterator[str]:
    own = [each for each in command.params if not _is_shared(each)]
    arguments = [each for each in own if each.param_type_name == "argument"]
    options = [each for each in own if each.param_type_name == "option"]
    yield f"## {name}\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    yield "```console"
    for example in (command.epilog or "").split("\n\n"):
        yield f"$ {example.removeprefix('Example: ')}"
    yield "```"
    if arguments:
        yield "\n| argument | |\n|---|---|"
        for each in arguments:
            shown = each.metavar if each.required else f"[{each.metavar}]"
            yield f"| `{shown}` | {_format_cell(each.help)} |"
    if options:
        yield ""
        yield from _format_options(options)


def _format_options(options: Iterable[Any]) -> Iterator[str]:
    yield "| option | |\n|---|---|"
    for each in options:
        names = ", ".join(sorted(each.opts, key=len, reverse=True))
        value = "" if each.is_flag else f" {each.metavar}"
        variable = f" Or set `{each.envvar}`." if each.envvar else ""
        has_default = isinstance(each.default, (int, float)) and not each.is_flag
        default = f" Default: {each.default:g}." if has_default else ""
        yield f"| `{names}{value}` | {_format_cell(each.help)}{variable}{default} |"


def _format_cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


if __name__ == "__main__":
    print(build_reference(), end="")
