"""The `indelible` command: its commands, and errors of usage and of stdout."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from pydantic_core import PydanticSerializationError
from typer.core import TyperGroup

import indelible
from indelible.cli import (
    INTERRUPTED,
    NO_ENGINE,
    WRONG_DATA,
    WRONG_USAGE,
    change_commands,
    maintenance_commands,
    memory_commands,
    read_commands,
    server_commands,
    timeline,
    transfer_commands,
)
from indelible.core.redaction import redact, redact_url
from indelible.printable import escape_unseen

# Command names of other tools.
MEANT = {
    "list": "sessions",
    "ls": "sessions",
    "delete": "forget",
    "rm": "forget",
    "remove": "forget",
    "add": "append",
    "log": "history",
    "restore": "rollback",
    "cp": "copy",
    "migrate": "copy",
}

# Commands of other packages and of the repository.
_KIT = ("check", "cases", "goldfish", "proxy", "explain", "replay", "shrink")
ELSEWHERE = {
    **{name: f"memory-contract {name}" for name in _KIT},
    "golden": "snapshot-db",
    "demo": "python -m examples.demo",
}


@contextmanager
def _improve_usage_errors() -> Iterator[None]:
    """Remove passwords from usage errors, which repeat what was typed; explain ids like `-x`."""
    try:
        yield
    except Exception as error:
        # typer brings its own copy of click, whose errors have no public name.
        if hasattr(error, "format_message") and hasattr(error, "message"):
            # typer's converters are pydantic's, which begin their own words like this.
            error.message = redact(str(error.message)).replace("Value error, ", "")
            option = getattr(error, "option_name", None) or ""
            if re.fullmatch("-[^-].*", option):
                error.message += " An id that begins with - comes after -- at the end."
            if "unexpected extra argument" in error.message:
                error.message += " A store is named by --url."
        raise


class CommandGroup(TyperGroup):
    """Suggests the right name for some wrong ones, and hides passwords in errors."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse the options before the command."""
        with _improve_usage_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Parse the command's options and run it."""
        with _improve_usage_errors():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, or suggest another one."""
        if args[0] in ELSEWHERE and not ctx.resilient_parsing:
            command = shlex.join([*ELSEWHERE[args[0]].split(), *map(redact_url, args[1:])])
            where = "in a clone of the repository" if args[0] == "demo" else "of another package"
            # Printed without a frame, so that it can be copied.
            typer.echo(f"This is a command {where}. Run: {command}", err=True)
            ctx.exit(WRONG_USAGE)
        if args[0] in MEANT and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {MEANT[args[0]]!r}?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="indelible",
    cls=CommandGroup,
    epilog="Example: indelible sessions --url agent.db",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    # A traceback says nothing about the data, and its locals may contain secrets.
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"indelible {indelible.__version__}")
        raise typer.Exit


@app.callback()
def main(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """A memory store for LLM agents that does not forget."""


# The commands, as the help lists them.
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Look": (
        read_commands.sessions,
        timeline.show,
        read_commands.history,
        read_commands.snapshots,
        read_commands.diff,
        read_commands.search,
        memory_commands.memories,
        read_commands.claims,
        server_commands.inspect,
        maintenance_commands.audit,
    ),
    "Change what a session shows; nothing is deleted": (
        change_commands.append,
        memory_commands.remember,
        memory_commands.retract,
        change_commands.snapshot,
        change_commands.rollback,
        change_commands.undo,
        change_commands.redo,
        change_commands.trim,
        change_commands.clear,
        change_commands.fork,
    ),
    "Look after a store": (
        maintenance_commands.doctor,
        maintenance_commands.verify,
        maintenance_commands.repair,
        transfer_commands.export,
        transfer_commands.import_,
        transfer_commands.copy,
        maintenance_commands.vacuum,
        maintenance_commands.reindex,
        maintenance_commands.forget,
        transfer_commands.import_langchain,
        transfer_commands.import_langgraph,
        server_commands.mcp,
    ),
}

for _panel, _commands in COMMANDS.items():
    for _command in _commands:
        _name = _command.__name__.rstrip("_").replace("_", "-")
        # Each example is a paragraph, so that help formatters do not join them.
        _epilog = "\n\n".join(f"Example: indelible {each}" for each in vars(_command)["examples"])
        # Each paragraph is a line, so that a terminal wraps it once.
        _paragraphs = inspect.cleandoc(_command.__doc__ or "").split("\n\n")
        _help = "\n\n".join(each.replace("\n", " ") for each in _paragraphs)
        app.command(_name, rich_help_panel=_panel, help=_help, epilog=_epilog)(_command)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning of the library without the place in its code."""
    sys.stderr.write(f"Warning: {escape_unseen(redact(str(message)))}\n")


def run() -> None:
    """Run the command line. Commands report errors of the store themselves."""
    warnings.showwarning = _show_warning
    try:
        try:
            app(prog_name="indelible")
        finally:
            sys.stdout.flush()
    except PydanticSerializationError as error:
        # pydantic wraps the exception of a Ctrl-C while it writes JSON.
        if "KeyboardInterrupt" not in str(error):
            raise
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.filename is not None:
            sys.stderr.write(f"Error: {escape_unseen(str(error))}.\n")
            sys.exit(NO_ENGINE)
        # Stores and named files raise errors of indelible; this one is of stdout. What is left in
        # its buffer must not fail again at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(WRONG_DATA)
        sys.stderr.write(
            f"Error: stdout cannot be written: {error.strerror}."
            " What was changed before that stays changed.\n"
        )
        sys.exit(NO_ENGINE)
