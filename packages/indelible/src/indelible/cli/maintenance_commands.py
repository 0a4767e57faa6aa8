"""Commands for maintenance: verify, audit, repair, vacuum, reindex and forget."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from indelible.cli import phrases
from indelible.cli.command import CommandContext, on_store
from indelible.cli.exit_codes import WRONG_DATA
from indelible.cli.options import AnySession, DryRun, SessionId, Yes
from indelible.cli.output import show_progress, to_plain
from indelible.cli.prompts import confirm
from indelible.cli.suggestions import suggest_command
from indelible.core.limits import UNDO_WINDOW_S
from indelible.model import (
    AuditLine,
    Finding,
    ForgetReceipt,
    RepairAction,
    Severity,
    Status,
    VacuumReport,
    VerifyReport,
)

DAY_S = 24 * 3600
UNDO_DAYS = UNDO_WINDOW_S / DAY_S


@on_store()
def verify(
    call: CommandContext,
    session: AnySession = None,
    *,
    head: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="A hash that `audit head` printed of this session."),
    ] = None,
) -> None:
    """Read everything and check it; exits 1 if something is wrong."""
    # A session that was forgotten still has its audit.
    if session is not None and head is None:
        call.require_session(session)
    with show_progress("Verifying") as tell:
        report = call.store.verify(session, head=head, progress=tell)
    if not call.out.print_json({"ok": report.ok, **to_plain(report)}):
        for finding in report.findings:
            call.out.say(_format_finding(finding))
        call.out.say(_format_verdict(report))
    if not report.ok:
        repair = suggest_command("repair", *([session] if session else []), options=["--dry-run"])
        call.out.note(f"`{repair}` says what can be set right.")
        raise typer.Exit(WRONG_DATA)


class AuditPart(StrEnum):
    """What `audit` prints."""

    LOG = "log"
    HEAD = "head"


@on_store()
def audit(
    call: CommandContext,
    part: Annotated[
        AuditPart,
        typer.Argument(
            metavar="log|head",
            help="log: every line. head: the newest hash, to keep it elsewhere.",
        ),
    ],
    session: SessionId,
) -> None:
    """Say who changed a session, what and when; also of one that was forgotten."""
    lines = call.store.audit_log(session)
    if part is AuditPart.HEAD:
        lines = lines[-1:]
    if call.out.print_json(lines):
        return
    for line in lines:
        call.out.say(line.hash if part is AuditPart.HEAD else _format_audit_line(line))
    if not lines:
        call.out.note(f"Nothing of {phrases.escape_name(session)} was audited.")


def _format_audit_line(line: AuditLine) -> str:
    who = phrases.escape_name(line.actor) or "(nobody named)"
    count = f" {line.count}" if line.count else ""
    return f"{line.number}  {line.at:%Y-%m-%d %H:%M:%S}  {who}  {line.change}{count}"


def _format_verdict(report: VerifyReport) -> str:
    sessions = phrases.format_count(report.sessions, "session")
    read = f"{sessions}, {phrases.format_entry_count(report.entries)}"
    if not report.findings:
        return f"Read {read}: all well."
    errors = sum(finding.severity is Severity.ERROR for finding in report.findings)
    warnings = len(report.findings) - errors
    found = f"{phrases.format_count(errors, 'error')}, {phrases.format_count(warnings, 'warning')}"
    return f"Read {read}: {found}."


def _format_finding(finding: Finding) -> str:
    where = ""
    if finding.session_id is not None:
        position = "" if finding.position is None else f", position {finding.position}"
        where = f"{phrases.escape_name(finding.session_id)}{position}: "
    return f"{finding.severity}: {where}{phrases.format_line(finding.what)}"


@on_store()
def repair(
    call: CommandContext, session: AnySession = None, *, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Set right what verify finds: set aside what cannot be read, and keep its bytes."""
    if session is not None:
        call.require_session(session)
    report = call.store.repair(session, dry_run=dry_run or not yes)
    if report.actions and not dry_run and not yes:
        steps = "\n".join(f"  {_format_action(action)}" for action in report.actions)
        confirm(f"The repair does this:\n{steps}", yes=yes)
        report = call.store.repair(session)
    if call.out.print_json(report):
        return
    for action in report.actions:
        call.out.say(_format_action(action))
    if not report.actions:
        call.out.say("Nothing to repair.")
    else:
        call.out.say("Nothing was changed." if report.dry_run else "Repaired.")


def _format_action(action: RepairAction) -> str:
    positions = f" ({phrases.format_positions(action.positions)})" if action.positions else ""
    return (
        f"{phrases.escape_name(action.session_id)}: {phrases.format_line(action.what)}{positions}"
    )


@on_store()
def vacuum(
    call: CommandContext,
    *,
    undo_days: Annotated[
        float,
        typer.Option(min=0.0, metavar="DAYS", help="Keep entries that were hidden in these days."),
    ] = UNDO_DAYS,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete entries that nothing can bring back: no view, no snapshot, no undo."""
    window_s = undo_days * DAY_S
    if not dry_run and not yes:
        with show_progress("Counting") as tell:
            found = call.store.vacuum(undo_window=window_s, dry_run=True, progress=tell)
        confirm(
            f"This removes {_format_counts(found)}, for good: no view and no snapshot shows them,"
            f" and they were hidden more than {undo_days:g} days ago. Undo will not reach them.",
            yes=yes,
        )
    with show_progress("Vacuuming") as tell:
        report = call.store.vacuum(undo_window=window_s, dry_run=dry_run, progress=tell)
    if not call.out.print_json(report):
        verb = "Would remove" if report.dry_run else "Removed"
        call.out.say(f"{verb} {_format_counts(report)}.")


def _format_counts(report: VacuumReport) -> str:
    what = f"{phrases.format_entry_count(report.entries)} ({report.bytes} bytes)"
    lines = phrases.format_count(report.journal_lines, "undo step")
    return f"{what} and {lines} in {phrases.format_count(report.sessions, 'session')}"


@on_store()
def reindex(
    call: CommandContext,
    *,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Begin with an empty index, as after damage.")
    ] = False,
) -> None:
    """Complete the index of words, after an upgrade or after writes without it."""
    with show_progress("Indexing") as tell:
        report = call.store.reindex(rebuild=rebuild, progress=tell)
    if not call.out.print_json(report):
        call.out.say(f"Indexed {phrases.format_entry_count(report.entries)}.")
        if report.damaged:
            damaged = phrases.format_entry_count(report.damaged)
            call.out.say(f"{damaged} cannot be read: {suggest_command('verify')}")


@on_store()
def forget(call: CommandContext, session: SessionId, *, yes: Yes = False) -> None:
    """Erase a session: entries, snapshots, keys and undo steps. This cannot be taken back."""
    info = call.store.session(session)
    # A session that is gone may be forgotten again, to clear bytes that were still pending.
    if info.status is not Status.NEW:
        erased = _format_erased(info.logged, info.snapshots)
        confirm(
            f"This erases session {session!r} ({info.status}) for good: {erased}."
            " It cannot be undone.",
            yes=yes,
        )
    receipt = call.store.forget(session)
    if not call.out.print_json(receipt):
        for line in _format_receipt(receipt):
            call.out.say(line)


def _format_erased(entries: int, snapshots: int) -> str:
    return (
        f"{phrases.format_entry_count(entries)} and {phrases.format_count(snapshots, 'snapshot')}"
    )


def _format_receipt(receipt: ForgetReceipt) -> list[str]:
    erased = _format_erased(receipt.entries, receipt.snapshots)
    name = repr(receipt.session_id)
    if receipt.entries or receipt.snapshots:
        lines = [f"Erased {erased} of session {name}."]
    elif receipt.forks:
        # Its forks are known, so it existed: the id is right.
        lines = [f"There is no session {name} left: nothing was erased."]
    else:
        lines = [f"There is no session {name}: nothing was erased. Check the id."]
    if receipt.forks:
        names = ", ".join(repr(fork) for fork in receipt.forks)
        lines.append(f"Copies that were forked from it are still there: {names}")
    lines += [f"Bytes of it may still be in: {each}" for each in receipt.left]
    if receipt.pending:
        again = suggest_command("forget", receipt.session_id)
        lines.append(f"When no other process has the store open, this clears them: {again}")
    return lines
