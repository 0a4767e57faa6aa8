"""The `memory-contract` command: what it offers, and how it ends when something went wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from memory_contract.cli import checking, incidents, proxying
from memory_contract.errors import KitError
from memory_contract.redaction import redact
from memory_contract.report.wording import visible
from memory_contract.version import __version__

PROVE = "Hold any store to the contract"
LEARN = "Learn from what went wrong"


@contextmanager
def _redacted_usage_errors() -> Iterator[None]:
    """Usage errors repeat the words of the command line; a URL among them keeps its password."""
    try:
        yield
    except Exception as error:
        # typer brings its own copy of click, whose errors have no public name.
        if hasattr(error, "format_message") and hasattr(error, "message"):
            error.message = redact(str(error.message))
        raise


class Commands(TyperGroup):
    """Hides passwords in usage errors."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse what stands before the command."""
        with _redacted_usage_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Parse the rest, and run the command."""
        with _redacted_usage_errors():
            return super().invoke(ctx)


app = typer.Typer(
    name="memory-contract",
    cls=Commands,
    help="Check any store of an agent's memory: what it loses, when, and the proof.",
    epilog="Example: memory-contract check mystore:Store",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    # A traceback tells a person nothing about their store, and its locals may tell too much.
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"memory-contract {__version__}")
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
    """Check any store of an agent's memory: what it loses, when, and the proof."""


def _offer(command: Callable[..., None], panel: str, *examples: str) -> None:
    """Add a command. Each example is a paragraph, so that no help formatter joins two of them."""
    epilog = "\n\n".join(f"Example: memory-contract {example}" for example in examples)
    app.command(command.__name__, rich_help_panel=panel, epilog=epilog)(command)


_offer(
    checking.check,
    PROVE,
    "check mystore:Store",
    "check mystore.contract:adapter --gate concurrency --budget 2m --report out",
)
_offer(checking.cases, PROVE, "cases --gate concurrency")
_offer(checking.goldfish, PROVE, "goldfish --seed 7")
_offer(checking.faults, PROVE, "faults")
_offer(
    proxying.proxy,
    PROVE,
    "proxy redis://localhost:6379 --cut-after EVALSHA:3",
    "proxy postgresql://localhost/agent --answer COMMIT:1=40001 --listen 127.0.0.1:6432",
)
_offer(
    incidents.explain,
    LEARN,
    "explain trace.jsonl",
    "explain /var/log/agent/trace --session user-42 --report timeline.html",
)
_offer(
    incidents.replay,
    LEARN,
    "replay trace.jsonl --store mystore.contract:adapter --times 20",
    "replay trace.jsonl --store agent.db --write-test tests/incidents/test_2026_05_amnesia.py",
)
_offer(incidents.shrink, LEARN, "shrink trace.jsonl --store mystore.contract:adapter")


def run() -> None:
    """Run the command line, and end with a sentence and a code instead of a traceback."""
    try:
        app(prog_name="memory-contract")
    except KitError as error:
        text = redact(str(error))
        ended = "" if text.endswith((".", "!", "?")) else "."
        first = text.partition(" ")[0]
        named = any(mark in first.rstrip(".:,;") for mark in "./\\:")
        lines = text if named else text[:1].upper() + text[1:]
        shown = "\n".join(visible(line) for line in lines.split("\n"))
        sys.stderr.write(f"Error: {shown}{ended}\n")
        sys.exit(error.exit_code)
