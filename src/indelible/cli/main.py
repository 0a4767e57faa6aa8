"""The `indelible` command."""

from __future__ import annotations

from typing import Annotated

import typer

import indelible

app = typer.Typer(
    name="indelible",
    help="A memory store for LLM agents that does not forget.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def main(
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """A memory store for LLM agents that does not forget."""
    if version:
        typer.echo(indelible.__version__)
        raise typer.Exit


def run() -> None:
    """Run the command line."""
    app()
