"""Commands that move sessions out of a store, or into it."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, TextIO

import typer

import indelible
from indelible.adapters import langchain_import
from indelible.cli import WRONG_DATA, phrases, suggestions
from indelible.cli.command import CommandContext, import_extra, on_store
from indelible.cli.options import AnySession, DryRun, Prefix, Sessions, Yes
from indelible.cli.output import confirm, show_progress, to_plain
from indelible.connect import format_target
from indelible.core.plans.transfer import check_header, open_output, read_lines
from indelible.errors import ConflictError, FormatError, UnavailableError, UsageError
from indelible.model import CopyReport, Status, TransferReport
from indelible.printable import escape_unseen

STREAM = "-"

# The header of an export is far shorter; the first line of another file may have any length.
HEADER_CHARS_MAX = 10_000
TEMPORARY_FILE_ADVICE = (
    ". What was copied stays: run it again to go on, with TMPDIR set to a folder that has room for"
    " the largest session"
)


@on_store(
    "export backup.jsonl --url agent.db",
    "export - user-42 --url agent.db | gzip > user-42.jsonl.gz",
    "export bug.html user-42 --html --redact --url agent.db",
)
def export(
    call: CommandContext,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to write; - is stdout.")],
    session: AnySession = None,
    *,
    prefix: Prefix = "",
    html: Annotated[
        bool, typer.Option("--html", help="Write one session as a self-contained HTML page.")
    ] = False,
    redact: Annotated[
        bool, typer.Option("--redact", help="With --html: leave out all texts and names.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Write sessions, with snapshots and hidden entries, to a file that import reads.

    With --html, write a page to read, for example for a bug report.
    """
    if (html and session is None) or (redact and not html):
        wrong = "--html takes one SESSION" if html else "--redact goes with --html"
        raise UsageError(f"{wrong}. Nothing was written")
    _require_name(file, "FILE")
    if file == STREAM and call.out.as_json:
        raise UsageError(
            "--json and a FILE of - both want stdout; name a file, or leave out --json"
        )
    if session is not None:
        call.require_session(session)
    with _translate_file_errors(f"the file {file}"):
        exists = file != STREAM and Path(file).is_file()
    if exists:
        confirm(f"The file {file} is there already and will be replaced.", yes=yes)
    if html and session is not None:
        _export_page(call, file, session, redact=redact)
        return
    with _open_target(file) as target, show_progress("Exporting") as tell:
        report = call.store.export(target, session, prefix=prefix, progress=tell)
    _print_exported(call, file, report, phrases.format_totals(report))
    _note_damaged(call, report)
    for finding in report.skipped:
        call.out.note(f"Session {finding.session_id!r}: {finding.what}")
    if report.skipped:
        raise typer.Exit(WRONG_DATA)


def _export_page(call: CommandContext, file: str, session: str, *, redact: bool) -> None:
    """Write a session as a page."""
    with import_extra():
        from indelible.inspector.export import SessionExport  # noqa: PLC0415
    with _open_target(file) as target, open_output(target) as write:
        page = SessionExport(write, redact=redact)
        timeline = call.store.timeline(session, on_page=page.add_page)
        page.finish()
    entries = timeline.info.logged
    report = {"session_id": session, "entries": entries}
    _print_exported(call, file, report, phrases.format_count(entries, "entry"))


def _print_exported(call: CommandContext, file: str, report: object, what: str) -> None:
    if file == STREAM:
        # Raises if the end of the export cannot be written.
        sys.stdout.flush()
        call.out.note(f"Exported {what}.")
    else:
        call.out.print_result(report, [f"Exported {what}."])


@on_store("import backup.jsonl --url restored.db", creates=True)
def import_(
    call: CommandContext,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What to read; - is stdin.")],
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Import the sessions of an exported file into a store, which may be new."""
    _require_name(file, "FILE")
    name = "stdin" if file == STREAM else f"the file {file}"
    with _translate_file_errors(name), _open_source(file) as source:
        _check_header(call, file, source)
        if dry_run:
            with indelible.open("memory:") as rehearsal:
                report = rehearsal.import_(source)
            source.seek(0)
        names = _read_session_ids(source)
        _refuse_existing(call, names)
        if not dry_run:
            many = phrases.format_count(len(names), "session")
            confirm(f"This imports {many} into {format_target(call.place.url)}.", yes=yes)
            source.seek(0)
            with show_progress("Importing") as tell:
                report = call.store.import_(source, progress=tell)
    verb = "Would import" if dry_run else "Imported"
    call.out.print_result(report, [f"{verb} {phrases.format_totals(report)}."])
    _note_damaged(call, report)


def _note_damaged(call: CommandContext, report: TransferReport) -> None:
    if report.damaged:
        damaged = phrases.format_count(report.damaged, "entry")
        call.out.note(f"{damaged} cannot be read; a copy has the same bytes.")


def _require_name(file: str, what: str) -> None:
    """Refuse an empty name, as of an unset variable: to `Path` it is the current folder."""
    if not file:
        raise UsageError(f"{what} is empty: name a file")


def _check_header(call: CommandContext, file: str, source: TextIO) -> None:
    """Raise if the file is not an export, before any question and before a store is created."""
    name = "stdin" if file == STREAM else file
    try:
        check_header(source.readline(HEADER_CHARS_MAX))
    except FormatError as error:
        made = "" if call.place.exists() else " No store was made."
        raise FormatError(f"{name} cannot be imported: {error.message}{made}", file=name) from None
    source.seek(0)


def _read_session_ids(source: TextIO) -> list[str]:
    """Read the ids of the sessions in an export. The import itself validates the lines."""
    found = []
    for line in read_lines(source):
        if line.startswith('{"session":'):
            with suppress(ValueError, LookupError, TypeError, RecursionError):
                found.append(str(json.loads(line)["session"]["id"]))
    return found


def _refuse_existing(call: CommandContext, names: list[str]) -> None:
    """Raise if a session exists, before any is imported: a second try would find those."""
    if not call.place.exists():
        return
    there = [name for name in names if call.store.session(name).status is Status.ACTIVE]
    if there:
        listed = ", ".join(map(repr, there[:5])) + (", …" if len(there) > 5 else "")
        raise ConflictError(
            f"the store already has {phrases.format_count(len(there), 'session')} of the file:"
            f" {listed}. Nothing was imported. Import into another store, or forget them first",
            reason="exists",
        )


@contextmanager
def _open_target(file: str) -> Iterator[str | TextIO]:
    """Return the name of a file, which the export replaces atomically, or an open stream."""
    if file == STREAM:
        # `run` opens this in place of a stream that the caller closed.
        if getattr(sys.stdout, "name", None) == os.devnull:
            raise UsageError("stdout is closed. Nothing was exported")
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        # `run` reports errors of stdout.
        yield sys.stdout
        return
    with _translate_file_errors(f"the file {file}"):
        if Path(file).exists() and not Path(file).is_file():
            # Write to a pipe or a device; do not replace it.
            with Path(file).open("w", encoding="utf-8", newline="\n") as stream:
                yield stream
        else:
            yield file


@contextmanager
def _open_source(file: str) -> Iterator[TextIO]:
    """Open the input so that it can be read twice: once for the ids, once to import."""
    with ExitStack() as stack:
        source: IO[bytes] = sys.stdin.buffer
        if file != STREAM:
            source = stack.enter_context(Path(file).open("rb"))
        if file == STREAM or not source.seekable():
            copy = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(source, copy)
            copy.seek(0)
            source = copy
        yield stack.enter_context(io.TextIOWrapper(source, "utf-8", newline="\n"))


@contextmanager
def _translate_file_errors(name: str, advice: str = "") -> Iterator[None]:
    """Report errors of a file as errors of indelible."""
    try:
        yield
    except BrokenPipeError:
        # The reader closed the pipe; typer handles it.
        raise
    except OSError as error:
        reason = error.strerror or error
        raise UnavailableError(f"{name} cannot be used: {reason}{advice}") from error
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{name} is not an export of indelible: it is not UTF-8 text. Nothing was imported"
        ) from error


Source = Annotated[
    str, typer.Argument(metavar="SRC", help="The store to copy from: a file name, or a URL.")
]
Target = Annotated[
    str, typer.Argument(metavar="DST", help="The store to copy to, which may be new.")
]
ToNamespace = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The namespace to copy to. Default: that of --namespace."),
]


@on_store("copy agent.db backup.db", "copy agent.db other.db --prefix user- --dry-run")
def copy(
    call: CommandContext,
    *,
    store_url: Source,  # noqa: ARG001 (`on_store` takes it)
    target: Target,
    session: Sessions = None,
    prefix: Prefix = "",
    to_namespace: ToNamespace = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Copy sessions completely into another store. Run it again to continue."""
    origin = call.place
    theirs = origin.namespace if to_namespace is None else to_namespace
    goal = replace(origin, url=target, namespace=theirs, argument="DST")
    goal.check(creates=True)
    # Two spellings of one name are refused by the copy itself.
    if origin == goal:
        raise UsageError("SRC and DST are the same store: there is nothing to copy")
    if session and prefix:
        raise UsageError("--session and --prefix both say what to copy; give one of them")
    for name in session or ():
        call.require_session(name)
    page = call.store.list_sessions(prefix=prefix, limit=1)
    idle = dry_run or not (page or page.cursor)
    if not idle:
        confirm(
            f"This copies sessions from {format_target(origin.url)} into"
            f" {format_target(goal.url)}. Those that are there already are compared, and stay as"
            " they are.",
            yes=yes,
        )
    suggestions.remember_location(goal.url, goal.namespace)
    with (
        goal.open(creates=True, rehearses=idle) as copied,
        show_progress("Comparing" if dry_run else "Copying") as tell,
        _translate_file_errors("a temporary file", TEMPORARY_FILE_ADVICE),
    ):
        report = indelible.copy_sessions(
            call.store, copied, session or None, prefix=prefix, dry_run=dry_run, progress=tell
        )
    call.out.print_result({"ok": report.ok, **to_plain(report)}, _format_report(report))
    for name in report.differ[:1]:
        call.out.note(
            f"`{suggestions.suggest_command('forget', name)}` erases it there, for a new copy."
        )
    if not report.ok:
        raise typer.Exit(WRONG_DATA)


def _format_report(report: CopyReport) -> Iterator[str]:
    """Format the report: problems by session, then the totals."""
    for name in map(escape_unseen, report.differ):
        yield f"error: {name}: it is there already, and differs; it was left as it is"
    for name in map(escape_unseen, report.changed):
        yield f"error: {name}: it changed in the source after it was copied"
    for finding in report.findings:
        name = escape_unseen(finding.session_id or "")
        yield f"{finding.severity}: {name}: {phrases.format_line(finding.what)}"
    verb = "Would copy" if report.dry_run else "Copied"
    read_back = "" if report.dry_run else ", and read them back"
    yield f"{verb} {phrases.format_totals(report) + read_back if report.sessions else 'nothing'}."
    if report.equal:
        there = "1 session was" if report.equal == 1 else f"{report.equal} sessions were"
        yield f"{there} there already, and equal."
    if report.expired:
        over = "1 expired session was" if report.expired == 1 else f"{report.expired} expired were"
        yield f"{over} left out."


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
        str, typer.Option(metavar="NAME", help="The table in an SQL database.")
    ] = langchain_import.TABLE,
    key_prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="The prefix of the keys on Redis.")
    ] = langchain_import.KEY_PREFIX,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Import what LangChain's File-, SQL- and RedisChatMessageHistory wrote.

    Each history becomes a session with the same id. Existing sessions are not overwritten, the
    source is only read, and an interrupted import is completed by running it again.
    """
    _require_name(source, "SOURCE")
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

    Every checkpoint is read back and compared. Existing threads are not overwritten, the source is
    only read, and an interrupted import is completed by running it again.
    """
    _require_name(source, "SOURCE")
    with import_extra():
        from indelible.adapters import langgraph_import  # noqa: PLC0415
        from indelible.adapters.langgraph_saver import IndelibleSaver  # noqa: PLC0415
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
    report: langchain_import.SourceReport,
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
