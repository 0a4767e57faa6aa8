"""The `indelible` command: its commands, and the handling of errors."""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

import indelible
from indelible.cli import (
    adapter_commands,
    change_commands,
    copy_command,
    doctor_command,
    inspect_command,
    maintenance_commands,
    memory_commands,
    read_commands,
    search_command,
    suggestions,
    timeline,
    transfer_commands,
)
from indelible.core.redaction import redact, redact_url
from indelible.errors import MemoryStoreError

HELP = "A memory store for LLM agents that does not forget."

LOOK = "Look"
CHANGE = "Change what a session shows; nothing is deleted"
MAINTAIN = "Look after a store"

# Names that people try because other tools have them.
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

# Commands of the packages beside this one.
_KIT = ("check", "cases", "goldfish", "proxy", "explain", "replay", "shrink")
MOVED = {**{name: f"memory-contract {name}" for name in _KIT}, "golden": "snapshot-db"}


@contextmanager
def _improve_usage_errors() -> Iterator[None]:
    """Remove passwords from usage errors, which repeat what was typed; explain ids like `-x`."""
    try:
        yield
    except Exception as error:
        # typer brings its own copy of click, whose errors have no public name.
        if hasattr(error, "format_message") and hasattr(error, "message"):
            error.message = redact(str(error.message))
            if re.fullmatch("-[^-].*", getattr(error, "option_name", None) or ""):
                error.message += " An id that begins with - comes after -- at the end."
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
        if args[0] in MOVED and not ctx.resilient_parsing:
            command = shlex.join([*MOVED[args[0]].split(), *map(redact_url, args[1:])])
            # Printed without a frame, so that it can be copied.
            typer.echo(f"This is a command of another package. Run: {command}", err=True)
            ctx.exit(2)
        if args[0] in MEANT and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {MEANT[args[0]]!r}?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="indelible",
    cls=CommandGroup,
    help=HELP,
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


def _add_command(
    command: Callable[..., None],
    panel: str,
    *examples: str,
) -> None:
    """Add a command. Each example is a paragraph, so that help formatters do not join them."""
    name = command.__name__.rstrip("_").replace("_", "-")
    epilog = "\n\n".join(f"Example: indelible {example}" for example in examples)
    app.command(name, rich_help_panel=panel, epilog=epilog)(command)


_add_command(
    read_commands.sessions,
    LOOK,
    "sessions --url agent.db --order -last_activity",
    "sessions --url agent.db --where metadata.team=support",
)
_add_command(timeline.show, LOOK, "show user-42 --url agent.db")
_add_command(read_commands.history, LOOK, "history user-42 --last 10 --url agent.db")
_add_command(read_commands.snapshots, LOOK, "snapshots user-42 --url agent.db")
_add_command(
    read_commands.diff,
    LOOK,
    "diff user-42 latest --url agent.db",
    "diff user-42 before-booking latest --url agent.db",
)
_add_command(
    search_command.search,
    LOOK,
    'search "where is my order" --url agent.db',
    'search "tea" --under ana --url agent.db',
)
_add_command(
    memory_commands.memories,
    LOOK,
    "memories ana/facts --url agent.db",
    "memories ana/facts drink --url agent.db",
)
_add_command(read_commands.claims, LOOK, "claims --url agent.db")
_add_command(
    inspect_command.inspect,
    LOOK,
    "inspect agent.db",
    "inspect agent.db --write --port 8123 --no-open",
)
_add_command(
    change_commands.append,
    CHANGE,
    'append user-42 user "Where is my order?" --url agent.db',
    "append user-42 user Thanks --key turn-7 --url agent.db",
    "append user-42 assistant - --url agent.db < answer.txt",
)
_add_command(
    memory_commands.remember,
    CHANGE,
    'remember ana/facts "Likes tea" --id drink --url agent.db',
)
_add_command(memory_commands.retract, CHANGE, "retract ana/facts drink --url agent.db")
_add_command(
    change_commands.snapshot, CHANGE, 'snapshot user-42 --label "before the refund" --url agent.db'
)
_add_command(
    change_commands.rollback,
    CHANGE,
    "rollback user-42 latest --dry-run --url agent.db",
    "rollback user-42 latest --url agent.db",
)
_add_command(change_commands.undo, CHANGE, "undo user-42 --url agent.db")
_add_command(change_commands.redo, CHANGE, "redo user-42 --url agent.db")
_add_command(
    change_commands.trim,
    CHANGE,
    "trim user-42 --keep-last 20 --url agent.db",
    "trim user-42 --max-tokens 4000 --dry-run --url agent.db",
)
_add_command(change_commands.clear, CHANGE, "clear user-42 --yes --url agent.db")
_add_command(change_commands.fork, CHANGE, "fork user-42 user-42-retry --at latest --url agent.db")
_add_command(
    doctor_command.doctor,
    MAINTAIN,
    "doctor agent.db",
    "doctor --url agent.db --json",
)
_add_command(maintenance_commands.verify, MAINTAIN, "verify --url agent.db")
_add_command(
    maintenance_commands.audit,
    LOOK,
    "audit log user-42 --url agent.db",
    "audit head user-42 --url agent.db",
)
_add_command(maintenance_commands.repair, MAINTAIN, "repair user-42 --dry-run --url agent.db")
_add_command(
    transfer_commands.export,
    MAINTAIN,
    "export backup.jsonl --url agent.db",
    "export - user-42 --url agent.db | gzip > user-42.jsonl.gz",
    "export bug.html user-42 --html --redact --url agent.db",
)
_add_command(transfer_commands.import_, MAINTAIN, "import backup.jsonl --url restored.db")
_add_command(
    copy_command.copy,
    MAINTAIN,
    "copy agent.db backup.db",
    "copy agent.db other.db --prefix user- --dry-run",
)
_add_command(
    maintenance_commands.vacuum, MAINTAIN, "vacuum --undo-days 30 --dry-run --url agent.db"
)
_add_command(maintenance_commands.reindex, MAINTAIN, "reindex --url agent.db")
_add_command(maintenance_commands.forget, MAINTAIN, "forget user-42 --url agent.db")
_add_command(
    adapter_commands.import_langchain,
    MAINTAIN,
    "import-langchain chats/ --url agent.db",
    "import-langchain redis://localhost --dry-run --url agent.db",
)
_add_command(
    adapter_commands.import_langgraph,
    MAINTAIN,
    "import-langgraph checkpoints.db --url agent.db",
    "import-langgraph checkpoints.db --dry-run --url agent.db",
)
_add_command(
    adapter_commands.mcp,
    MAINTAIN,
    "mcp agent.db --session user-42",
    "mcp redis://localhost --any-session",
)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning of the library without the place in its code."""
    from indelible.cli.phrases import escape_name  # noqa: PLC0415 (warnings are rare)

    sys.stderr.write(f"Warning: {escape_name(redact(str(message)))}\n")


def has_option(command: str, option: str) -> bool:
    """Return whether a command has an option."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return any(option in parameter.opts for parameter in group.commands[command].params)


def run() -> None:
    """Run the command line; errors are printed as a sentence, with an exit code."""
    warnings.showwarning = _show_warning
    try:
        app(prog_name="indelible")
    except MemoryStoreError as error:
        from indelible.cli import exit_codes  # noqa: PLC0415 (errors are rare)

        arguments = sys.argv[1:]
        takes_key = has_option(arguments[0], "--key")
        sys.exit(exit_codes.report_error(error, arguments, takes_key=takes_key))
    finally:
        if note := suggestions.get_password_note():
            sys.stderr.write(f"{note}\n")
