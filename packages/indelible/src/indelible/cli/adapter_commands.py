"""Commands for frameworks: an MCP server, and imports of what LangChain and LangGraph stored."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from indelible.cli import phrases
from indelible.cli.command import CommandContext, on_store
from indelible.cli.exit_codes import WRONG_DATA
from indelible.cli.options import DryRun, StoreUrl, Yes
from indelible.cli.output import confirm, show_progress, to_plain
from indelible.connect import format_target
from indelible.errors import UnsupportedError, UsageError
from indelible.printable import escape_unseen

if TYPE_CHECKING:
    from indelible.adapters.langchain_import import SourceReport

# LangChain's own names, as its histories use them by default.
TABLE = "message_store"
KEY_PREFIX = "message_store:"
DEFAULT_SESSION = "default"


@on_store("mcp agent.db --session user-42", "mcp redis://localhost --any-session", creates=True)
def mcp(
    call: CommandContext,
    *,
    store_url: StoreUrl = None,  # noqa: ARG001 (`on_store` takes it)
    session: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The one session that the tools work on. Without it: default."
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

    The tools are remember, recall and retract for facts; add_message, history, read and search for
    the conversation; and snapshot, snapshots, rollback and undo.
    """
    if session is not None and (any_session or not session):
        wrong = "both --session and --any-session" if any_session else "an empty --session"
        raise UsageError(f"mcp does not take {wrong}. Nothing was started")
    try:
        from indelible.adapters import mcp, store_variants  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise UnsupportedError(str(error)) from error
    store = store_variants.to_async(call.store)
    # The SDK waits for a line of stdin in a thread, which an exception does not end. A store
    # survives the end of its process at any point.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(mcp.serve(store, session=session or DEFAULT_SESSION, any_session=any_session))


@on_store(
    "import-langchain chats/ --url agent.db",
    "import-langchain redis://localhost --dry-run --url agent.db",
    creates=True,
)
def import_langchain(
    call: CommandContext,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A JSON file or a folder of them, a SQLite file, or a server's URL.",
        ),
    ],
    *,
    table: Annotated[
        str, typer.Option(metavar="NAME", help="The table of an SQL database.")
    ] = TABLE,
    key_prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="What the keys on Redis begin with.")
    ] = KEY_PREFIX,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Import what LangChain's File-, SQL- and RedisChatMessageHistory wrote.

    Each history becomes the session of its id. None is overwritten, the source is only read, and
    an interrupted import is completed by running it again.
    """
    from indelible.adapters import langchain_import  # noqa: PLC0415 (seldom used)

    found = langchain_import.histories(source, table=table, key_prefix=key_prefix)
    if not dry_run:
        confirm(f"This imports histories into {format_target(call.place.url)}.", yes=yes)
    with (
        call.place.open(creates=True, rehearses=dry_run) as store,
        show_progress("Importing") as tell,
    ):
        report = langchain_import.import_histories(store, found, dry_run=dry_run, progress=tell)
    parts = phrases.format_count(report.messages, "message")
    why = "it is there already, and differs"
    _print_report(call, report, (report.sessions, "session"), parts, why)


@on_store(
    "import-langgraph checkpoints.db --url agent.db",
    "import-langgraph checkpoints.db --dry-run --url agent.db",
    creates=True,
)
def import_langgraph(
    call: CommandContext,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The file of a SqliteSaver, or the URL of the database of a PostgresSaver.",
        ),
    ],
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Import the threads of LangGraph's SqliteSaver or PostgresSaver, for IndelibleSaver.

    Every checkpoint is read again and compared. No thread is overwritten, the source is only read,
    and an interrupted import is completed by running it again.
    """
    try:
        from indelible.adapters import langgraph_import  # noqa: PLC0415 (an extra)
        from indelible.adapters.langgraph_saver import IndelibleSaver  # noqa: PLC0415
    except ImportError as error:
        raise UnsupportedError(str(error)) from error
    if not dry_run:
        confirm(f"This imports threads into {format_target(call.place.url)}.", yes=yes)
    with (
        langgraph_import.open_source(source) as found,
        call.place.open(creates=True, rehearses=dry_run) as store,
        show_progress("Importing") as tell,
    ):
        report = langgraph_import.import_threads(
            IndelibleSaver(store), found, dry_run=dry_run, progress=tell
        )
    parts = phrases.format_count(report.checkpoints, "checkpoint")
    why = "it has other checkpoints already"
    _print_report(call, report, (report.threads, "thread"), parts, why)


def _print_report(
    call: CommandContext,
    report: SourceReport,
    imported: tuple[int, str],
    parts: str,
    why_differ: str,
) -> None:
    """Print what an import has done, and exit 1 if something of the source was left out."""
    verb = "Would import" if report.dry_run else "Imported"
    lines = [
        *(
            f"error: {escape_unseen(name)}: {why_differ}; it was left as it is"
            for name in report.differ
        ),
        f"{verb} {phrases.format_count(*imported)} with {parts}.",
    ]
    if report.equal:
        lines += [f"{phrases.format_count(report.equal, imported[1])} already there, and equal."]
    call.out.print_result({"ok": report.ok, **to_plain(report)}, lines)
    if not report.ok:
        raise typer.Exit(WRONG_DATA)
