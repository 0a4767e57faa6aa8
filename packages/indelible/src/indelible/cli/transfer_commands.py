"""The commands `export` and `import`."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, TextIO

import typer

import indelible
from indelible.cli import phrases
from indelible.cli.command import CommandContext, on_store
from indelible.cli.exit_codes import WRONG_DATA
from indelible.cli.inspect_command import build_missing_inspector_error
from indelible.cli.options import AnySession, DryRun, Yes
from indelible.cli.output import show_progress
from indelible.cli.prompts import confirm
from indelible.connect import format_target
from indelible.core.plans.transfer import open_output, read_lines
from indelible.errors import ConflictError, FormatError, UnavailableError, UsageError
from indelible.model import Status

STREAM = "-"

# The header of an export is far shorter; the first line of another file may have any length.
HEADER_CHARS_MAX = 10_000
SHOWN_CHARS_MAX = 60


@on_store()
def export(
    call: CommandContext,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to write; - is stdout.")],
    session: AnySession = None,
    *,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Only sessions whose id begins with this.")
    ] = "",
    html: Annotated[
        bool, typer.Option("--html", help="Write one session as a page that needs nothing else.")
    ] = False,
    redact: Annotated[
        bool, typer.Option("--redact", help="With --html: only the shape, no texts and no names.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Write sessions, with snapshots and all that is hidden, to a file that import reads.

    With --html, it is a page for people, such as for a bug report.
    """
    if (html and session is None) or (redact and not html):
        wrong = "--html takes one SESSION" if html else "--redact goes with --html"
        raise UsageError(f"{wrong}. Nothing was written")
    if file == STREAM and call.out.as_json:
        raise UsageError(
            "--json and a FILE of - both want stdout; name a file, or leave out --json"
        )
    if session is not None:
        call.require_session(session)
    if Path(file).is_file():
        confirm(f"The file {file} is there already and will be replaced.", yes=yes)
    if html and session is not None:
        _export_page(call, file, session, redact=redact)
        return
    with (
        _translate_file_errors(file),
        _open_target(file) as target,
        show_progress("Exporting") as tell,
    ):
        report = call.store.export(target, session, prefix=prefix, progress=tell)
    if not call.out.print_json(report):
        say = call.out.note if file == STREAM else call.out.say
        say(f"Exported {phrases.format_totals(report)}.")
    for finding in report.skipped:
        call.out.note(f"Session {finding.session_id!r} is damaged: {finding.what}")
    if report.skipped:
        raise typer.Exit(WRONG_DATA)


def _export_page(call: CommandContext, file: str, session: str, *, redact: bool) -> None:
    """Write a session as a page."""
    try:
        from indelible.inspector.export import SessionExport  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise build_missing_inspector_error(error) from error
    with (
        _translate_file_errors(file),
        _open_target(file) as target,
        open_output(target, call.place.owns) as write,
    ):
        page = SessionExport(write, redact=redact)
        timeline = call.store.timeline(session, on_page=page.add_page)
        page.finish()
    if not call.out.print_json({"session_id": session, "entries": timeline.info.logged}):
        say = call.out.note if file == STREAM else call.out.say
        say(f"Exported {phrases.format_entry_count(timeline.info.logged)}.")


@on_store(creates=True)
def import_(
    call: CommandContext,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What to read; - is stdin.")],
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Bring the sessions of an exported file into a store, which may be a new one."""
    with _translate_file_errors(file), _open_source(file) as source:
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
    if not call.out.print_json(report):
        verb = "Would import" if dry_run else "Imported"
        call.out.say(f"{verb} {phrases.format_totals(report)}.")


def _check_header(call: CommandContext, file: str, source: TextIO) -> None:
    """Raise if the file is not an export, before any prompt and before a store is created."""
    first = source.readline(HEADER_CHARS_MAX)
    name = "stdin" if file == STREAM else file
    kept = "Nothing was imported" + ("" if call.place.exists() else ", and no store was made")
    if not first:
        raise FormatError(f"{name} is empty. {kept}", file=name)
    kind = None
    with suppress(ValueError, AttributeError, RecursionError):
        kind = json.loads(first).get("indelible")
    if kind != "export":
        line = first.rstrip("\r\n")
        begins = line if len(line) <= SHOWN_CHARS_MAX else line[: SHOWN_CHARS_MAX - 1] + "…"
        raise FormatError(
            f"{name} is not an export of indelible: its first line is {begins!r}. {kept}", file=name
        )
    with indelible.open("memory:") as rehearsal:
        # A header alone is a valid export; importing it checks the format version.
        rehearsal.import_(io.StringIO(first))
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
            f"{phrases.format_count(len(there), 'session')} of the file exist in the store already:"
            f" {listed}. Nothing was imported. Import into another store, or forget them first",
            reason="exists",
        )


@contextmanager
def _open_target(file: str) -> Iterator[str | TextIO]:
    """Return the name of a file, which the export replaces atomically, or an open stream."""
    if file == STREAM:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
    elif Path(file).exists() and not Path(file).is_file():
        # Write to a pipe or a device; do not replace it.
        with Path(file).open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
    else:
        yield file


@contextmanager
def _open_source(file: str) -> Iterator[TextIO]:
    """Open the input so that it can be read twice: once for the ids, once to import."""
    if file != STREAM:
        with Path(file).open(encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as copy:
        shutil.copyfileobj(io.TextIOWrapper(sys.stdin.buffer, "utf-8", newline="\n"), copy)
        copy.seek(0)
        yield copy


@contextmanager
def _translate_file_errors(file: str) -> Iterator[None]:
    """Report errors of the file as errors of indelible."""
    try:
        yield
    except BrokenPipeError:
        # The reader closed the pipe; typer handles it.
        raise
    except OSError as error:
        raise UnavailableError(f"the file {file} cannot be used: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FormatError(
            f"the file {file} is not an export of indelible: it is not UTF-8 text"
        ) from error
