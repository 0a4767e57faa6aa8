"""The command that carries sessions from one store into another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Annotated

import typer

import indelible
from indelible.cli import completion, phrases, suggestions
from indelible.cli.command import CommandContext
from indelible.cli.exit_codes import WRONG_DATA
from indelible.cli.location import Location
from indelible.cli.options import AsJson, BusyTimeout, DryRun, Namespace, Timeout, Yes
from indelible.cli.output import Output, show_progress, to_plain
from indelible.cli.prompts import confirm
from indelible.connect import format_target
from indelible.core.limits import BUSY_TIMEOUT_S, TIMEOUT_S
from indelible.errors import UnavailableError, UsageError
from indelible.model import CopyReport

Source = Annotated[
    str, typer.Argument(metavar="SRC", help="The store to copy from: a file name, or a URL.")
]
Target = Annotated[
    str, typer.Argument(metavar="DST", help="The store to copy to; it may be a new one.")
]
Sessions = Annotated[
    list[str] | None,
    typer.Option(
        "--session",
        metavar="ID",
        help="Only this session; may be given several times.",
        autocompletion=completion.complete_session_ids,
    ),
]
Prefix = Annotated[
    str, typer.Option(metavar="TEXT", help="Only sessions whose id begins with this.")
]
ToNamespace = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The namespace to copy to, if it is another one than --namespace.",
        rich_help_panel="Store and output",
    ),
]


def copy(
    source: Source,
    target: Target,
    *,
    session: Sessions = None,
    prefix: Prefix = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    namespace: Namespace = "",
    to_namespace: ToNamespace = None,
    busy_timeout: BusyTimeout = BUSY_TIMEOUT_S,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Copy sessions, with all they are made of, into another store. Run it again to go on."""
    out = Output(as_json=as_json)
    theirs = namespace if to_namespace is None else to_namespace
    waits = {"busy_timeout_s": busy_timeout, "timeout_s": timeout}
    origin = Location(url=source, namespace=namespace, **waits)
    goal = Location(url=target, namespace=theirs, **waits)
    _check_locations(origin, goal)
    if session and prefix:
        raise UsageError("--session and --prefix both say what to copy; give one of them")
    with ExitStack() as stack:
        suggestions.remember_location(origin.url, origin.namespace)
        call = stack.enter_context(closing(CommandContext(origin, out, creates=False)))
        for name in session or ():
            call.require_session(name)
        page = call.store.list_sessions(prefix=prefix, limit=1)
        idle = dry_run or not (page or page.cursor)
        if not idle:
            confirm(_describe_copy(origin, goal), yes=yes)
        suggestions.remember_location(goal.url, goal.namespace)
        copied = stack.enter_context(_open_goal(goal, idle=idle))
        tell = stack.enter_context(show_progress("Comparing" if dry_run else "Copying"))
        stack.enter_context(_translate_os_errors())
        report = indelible.copy_sessions(
            call.store, copied, session or None, prefix=prefix, dry_run=dry_run, progress=tell
        )
    if not out.print_json({"ok": report.ok, **to_plain(report)}):
        for line in _format_report(report):
            out.say(line)
    for name in report.differ[:1]:
        out.note(
            f"`{suggestions.suggest_command('forget', name)}` erases it there, for a new copy."
        )
    if not report.ok:
        raise typer.Exit(WRONG_DATA)


def _check_locations(origin: Location, goal: Location) -> None:
    """Raise if the copy cannot work, before a store is opened or a file created."""
    for name, place in (("SRC", origin), ("DST", goal)):
        if not place.url:
            raise UsageError(f"{name} names no store: give a file name, or a URL")
        place.check(creates=True)
    if origin.is_same_as(goal):
        raise UsageError("SRC and DST are the same store: there is nothing to copy")
    if not origin.exists():
        raise UnavailableError(f"{origin.describe_missing()}. Check SRC")


def _describe_copy(origin: Location, goal: Location) -> str:
    return (
        f"This copies sessions from {format_target(origin.url)} into {format_target(goal.url)}."
        " Those that are there already are compared, and stay as they are."
    )


def _open_goal(goal: Location, *, idle: bool) -> indelible.MemoryStore:
    """Open the store to copy to; an empty one in memory if it must not be created."""
    if idle and not goal.exists():
        return indelible.open("memory:")
    return goal.open(creates=True)


@contextmanager
def _translate_os_errors() -> Iterator[None]:
    """Report a temporary file that cannot be written as `UnavailableError`."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"a temporary file cannot be written: {error.strerror}. What was copied stays: run it"
            " again to go on, with TMPDIR set to a folder that has room for the largest session"
        ) from error


def _format_report(report: CopyReport) -> Iterator[str]:
    """Format the report: problems by session, then the totals."""
    for name in map(phrases.escape_name, report.differ):
        yield f"error: {name}: it is there already, and differs; it was left as it is"
    for name in map(phrases.escape_name, report.changed):
        yield f"error: {name}: it changed in the source after it was copied"
    for finding in report.findings:
        name = phrases.escape_name(finding.session_id or "")
        yield f"{finding.severity}: {name}: {phrases.format_line(finding.what)}"
    yield _format_summary(report)
    if report.equal:
        there = "1 session was" if report.equal == 1 else f"{report.equal} sessions were"
        yield f"{there} there already, and equal."
    if report.expired:
        over = "1 expired session was" if report.expired == 1 else f"{report.expired} expired were"
        yield f"{over} left out."


def _format_summary(report: CopyReport) -> str:
    verb = "Would copy" if report.dry_run else "Copied"
    if not report.sessions:
        return f"{verb} nothing."
    return f"{verb} {phrases.format_totals(report)}" + (
        "." if report.dry_run else ", and read them back."
    )
