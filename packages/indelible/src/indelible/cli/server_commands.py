"""Commands that serve a store until they are stopped: `inspect` for a browser, `mcp` for models."""

from __future__ import annotations

import asyncio
import signal
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

import indelible
from indelible.cli.command import CommandContext, import_extra, on_store
from indelible.cli.options import StoreUrl
from indelible.connect import format_target
from indelible.errors import UsageError

# The session of `mcp`, if none is named.
DEFAULT_SESSION = "default"


@on_store("inspect agent.db", "inspect agent.db --write --port 8123 --no-open")
def inspect(
    call: CommandContext,
    *,
    store_url: StoreUrl = None,  # noqa: ARG001 (`on_store` takes it)
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Allow changes: rollback, undo, redo, snapshot, fork, retract, forget; each is"
            " previewed and confirmed.",
        ),
    ] = False,
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Show a report.json of memory-contract under Health."),
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Show a trace of memory-contract under Health."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 is any free port.")
    ] = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Only print the address; do not open a browser.")
    ] = False,
) -> None:
    """Show the store in a browser: sessions, timelines, what changed when, memories, health.

    It listens on this machine only. The address contains a token; anyone who has it can read the
    store.
    """
    with import_extra():
        from indelible.inspector import app, artifacts, security, server  # noqa: PLC0415
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


@on_store("mcp agent.db --session user-42", "mcp redis://localhost --any-session", creates=True)
def mcp(
    call: CommandContext,
    *,
    store_url: StoreUrl = None,  # noqa: ARG001 (`on_store` takes it)
    session: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The only session that the tools work on. Default: default."
        ),
    ] = None,
    any_session: Annotated[
        bool,
        typer.Option(
            "--any-session", help="Let the model name any session of the store in its calls."
        ),
    ] = False,
) -> None:
    """Serve memory as MCP tools over stdio, for a program that starts this command.

    A file that does not exist is created. The tools are remember, recall and retract for facts;
    add_message, history, read and search for the conversation; and snapshot, snapshots, rollback
    and undo.
    """
    if session is not None and (any_session or not session):
        wrong = "both --session and --any-session" if any_session else "an empty --session"
        raise UsageError(f"mcp does not take {wrong}. Nothing was started")
    with import_extra():
        from indelible.adapters import mcp, store_variants  # noqa: PLC0415
    store = store_variants.to_async(call.store)
    # The SDK waits for a line of stdin in a thread, which an exception does not end. A store
    # survives the end of its process at any point.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(mcp.serve(store, session=session or DEFAULT_SESSION, any_session=any_session))
