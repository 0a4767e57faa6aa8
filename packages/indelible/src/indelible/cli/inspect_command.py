"""The command `inspect`."""

from __future__ import annotations

import asyncio
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

import indelible
from indelible.cli.command import CommandContext, on_store
from indelible.cli.options import StoreUrl
from indelible.connect import format_target
from indelible.core.extras import format_install_command
from indelible.errors import UnsupportedError


@on_store("inspect agent.db", "inspect agent.db --write --port 8123 --no-open")
def inspect(
    call: CommandContext,
    *,
    store_url: StoreUrl = None,  # noqa: ARG001 (`on_store` takes it)
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Allow changes: rollback, undo, snapshot, fork, retract, forget; each is previewed"
            " and confirmed.",
        ),
    ] = False,
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A report.json of memory-contract, shown under Health."),
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A trace of memory-contract, shown under Health."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 is any that is free.")
    ] = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address only, and open no browser.")
    ] = False,
) -> None:
    """Show the store in a browser: sessions, timelines, what changed when, memories, health.

    It listens on this machine alone. The address has a token: whoever has it can read the store.
    """
    try:
        from indelible.inspector import app, artifacts, security, server  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise build_missing_inspector_error(error) from error

    reports = [artifacts.read_report(path) for path in report or ()]
    traces = [artifacts.read_trace(path) for path in trace or ()]

    async def serve() -> None:
        listener = server.bind(port)
        access = security.Access(listener.getsockname()[1])
        async with indelible.open_async(call.place.url, **call.place.options) as store:
            inspector = app.build_app(
                store,
                access,
                target=format_target(call.place.url),
                write=write,
                reports=reports,
                traces=traces,
            )
            where = f"Inspector on {access.url} Ctrl-C ends it."
            call.out.print_result({"url": access.url}, [where])
            sys.stdout.flush()
            if not no_open:
                webbrowser.open(access.url)
            await server.build_server(inspector).serve(sockets=[listener])

    # The server has closed its connections when Ctrl-C arrives here.
    with suppress(KeyboardInterrupt):
        asyncio.run(serve())


def build_missing_inspector_error(error: ImportError) -> UnsupportedError:
    """Build the error for what the extra `inspector` would bring."""
    return UnsupportedError(
        f"this needs the extra `inspector`: {format_install_command('inspector')} ({error})"
    )
