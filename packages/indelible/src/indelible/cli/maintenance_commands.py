"""Commands for maintenance: doctor, verify, audit, repair, vacuum, reindex and forget."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from enum import StrEnum
from operator import attrgetter
from typing import Annotated

import typer

from indelible.cli import WRONG_DATA, phrases
from indelible.cli.command import CommandContext, on_store
from indelible.cli.options import AnySession, DryRun, SessionId, StoreUrl, Yes
from indelible.cli.output import confirm, show_progress, to_plain
from indelible.cli.suggestions import suggest_command
from indelible.core.audit import KEY_VARIABLE
from indelible.core.limits import TTL_S_MAX, UNDO_WINDOW_S
from indelible.errors import FormatError, UsageError
from indelible.model import (
    AuditLine,
    Claims,
    Finding,
    ForgetReceipt,
    Gravity,
    RepairAction,
    Risk,
    Severity,
    Status,
    VacuumReport,
    VerifyReport,
)
from indelible.printable import escape_unseen

DAY_S = 24 * 3600
UNDO_DAYS = UNDO_WINDOW_S / DAY_S
UNDO_DAYS_MAX = TTL_S_MAX / DAY_S


@on_store("doctor agent.db", "doctor --url agent.db --json")
def doctor(
    call: CommandContext,
    *,
    store_url: StoreUrl = None,  # noqa: ARG001 (`on_store` takes it)
) -> None:
    """Say what the engine can lose as configured, and what to change; exits 1 for a danger."""
    with warnings.catch_warnings():
        # The same warnings are printed below, in full.
        warnings.simplefilter("ignore", RuntimeWarning)
        store = call.store
    claims = store.claims()
    with show_progress("Looking") as tell:
        found = store.risks(sessions=True, progress=tell)
    dangers = any(risk.severity is Gravity.DANGER for risk in found)
    call.out.print_result(
        {"ok": not dangers, "claims": claims, "risks": found}, _format_risks(claims, found)
    )
    if dangers:
        raise typer.Exit(WRONG_DATA)


def _format_risks(claims: Claims, found: tuple[Risk, ...]) -> Iterator[str]:
    simulated = ", simulated" if claims.simulated else ""
    engine = f"{claims.engine} {claims.engine_version}".strip()
    yield f"{engine}{simulated}: durability {claims.durability}."
    for risk in found:
        yield f"{risk.severity}: {phrases.format_line(risk.subject)}"
        yield f"  {phrases.format_line(risk.risk)}"
        yield f"  to change that: {phrases.format_line(risk.remedy)}"
    counts = [
        phrases.format_count(sum(risk.severity is gravity for risk in found), gravity)
        for gravity in (Gravity.DANGER, Gravity.WARNING)
    ]
    yield f"Found {', '.join(counts)}." if found else "All well."


@on_store("verify --url agent.db")
def verify(
    call: CommandContext,
    session: AnySession = None,
    *,
    head: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="A hash that `audit head` printed for this session."),
    ] = None,
) -> None:
    """Read and check everything; exits 1 if something is wrong."""
    if head is not None and (session is None or not os.environ.get(KEY_VARIABLE)):
        raise UsageError(f"--head needs a SESSION, and the audit key in {KEY_VARIABLE}")
    # A session that was forgotten still has its audit.
    if session is not None and head is None:
        call.require_session(session)
    with show_progress("Verifying") as tell:
        report = call.store.verify(session, head=head, progress=tell)
    call.out.print_result(
        {"ok": report.ok, **to_plain(report)},
        [*map(_format_finding, report.findings), _format_verdict(report)],
    )
    if not report.ok:
        repair = suggest_command("repair", *([session] if session else []), options=["--dry-run"])
        call.out.note(f"`{repair}` says what can be set right.")
        raise typer.Exit(WRONG_DATA)


class AuditPart(StrEnum):
    """What `audit` prints."""

    LOG = "log"
    HEAD = "head"


@on_store("audit log user-42 --url agent.db", "audit head user-42 --url agent.db")
def audit(
    call: CommandContext,
    part: Annotated[
        AuditPart,
        typer.Argument(
            metavar="log|head",
            help="log: every line. head: the newest hash, to keep elsewhere.",
        ),
    ],
    session: SessionId,
) -> None:
    """Print who changed a session, what and when; also for a session that was forgotten."""
    lines = call.store.audit_log(session)
    if part is AuditPart.HEAD:
        lines = lines[-1:]
    form = attrgetter("hash") if part is AuditPart.HEAD else _format_audit_line
    call.out.print_result(lines, map(form, lines))
    if not lines:
        call.out.note(f"Nothing of {escape_unseen(session)} was audited.")


def _format_audit_line(line: AuditLine) -> str:
    who = escape_unseen(line.actor) or "(nobody named)"
    count = f" {line.count}" if line.count else ""
    return f"{line.number}  {line.at:%Y-%m-%d %H:%M:%S}  {who}  {line.change}{count}"


def _format_verdict(report: VerifyReport) -> str:
    sessions = phrases.format_count(report.sessions, "session")
    read = f"{sessions}, {phrases.format_count(report.entries, 'entry')}"
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
        where = f"{escape_unseen(finding.session_id)}{position}: "
    return f"{finding.severity}: {where}{phrases.format_line(finding.what)}"


@on_store("repair user-42 --dry-run --url agent.db")
def repair(
    call: CommandContext, session: AnySession = None, *, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Repair what verify finds: hide entries that cannot be read, and keep their bytes."""
    if session is not None:
        call.require_session(session)
    report = call.store.repair(session, dry_run=dry_run or not yes)
    if report.actions and not dry_run and not yes:
        steps = "\n".join(f"  {_format_action(action)}" for action in report.actions)
        confirm(f"The repair does this:\n{steps}", yes=yes)
        report = call.store.repair(session)
    # What is left as it is has no positions.
    left = sum(not action.positions for action in report.actions)
    done = "Nothing was changed." if report.dry_run else "Repaired."
    if left:
        done = f"Cannot repair {phrases.format_count(left, 'session')}."
    lines = (
        [*map(_format_action, report.actions), done] if report.actions else ["Nothing to repair."]
    )
    call.out.print_result(report, lines)
    if left:
        raise typer.Exit(WRONG_DATA)


def _format_action(action: RepairAction) -> str:
    positions = f" ({phrases.format_positions(action.positions)})" if action.positions else ""
    return f"{escape_unseen(action.session_id)}: {phrases.format_line(action.what)}{positions}"


@on_store("vacuum --undo-days 30 --dry-run --url agent.db")
def vacuum(
    call: CommandContext,
    *,
    undo_days: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=UNDO_DAYS_MAX,
            metavar="DAYS",
            help="Keep entries that were hidden in the last DAYS days.",
        ),
    ] = UNDO_DAYS,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete entries that no view, no snapshot and no undo can bring back."""
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
    verb = "Would remove" if report.dry_run else "Removed"
    call.out.print_result(report, [f"{verb} {_format_counts(report)}."])


def _format_counts(report: VacuumReport) -> str:
    what = f"{phrases.format_count(report.entries, 'entry')} ({report.bytes} bytes)"
    lines = phrases.format_count(report.journal_lines, "undo step")
    return f"{what} and {lines} in {phrases.format_count(report.sessions, 'session')}"


@on_store("reindex --url agent.db")
def reindex(
    call: CommandContext,
    *,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Delete the index first, for example after damage.")
    ] = False,
) -> None:
    """Add to the search indexes what was written without them."""
    with show_progress("Indexing") as tell:
        report = call.store.reindex(rebuild=rebuild, progress=tell)
    lines = [f"Indexed {phrases.format_count(report.entries, 'entry')}."]
    if report.damaged:
        damaged = phrases.format_count(report.damaged, "entry")
        lines += [f"{damaged} cannot be read: {suggest_command('verify')}"]
    call.out.print_result(report, lines)


@on_store("forget user-42 --url agent.db")
def forget(call: CommandContext, session: SessionId, *, yes: Yes = False) -> None:
    """Erase a session: entries, snapshots, keys and undo steps. This cannot be undone."""
    try:
        info = call.store.session(session)
        status, erased = str(info.status), _format_erased(info.logged, info.snapshots)
    except FormatError:
        status, erased = "damaged", "all that is left of it"
    # A session that is gone may be forgotten again, to clear bytes that were still pending.
    if status != Status.NEW:
        confirm(
            f"This erases session {session!r} ({status}) for good: {erased}. It cannot be undone.",
            yes=yes,
        )
    receipt = call.store.forget(session)
    call.out.print_result(receipt, _format_receipt(receipt))


def _format_erased(entries: int, snapshots: int) -> str:
    logged = phrases.format_count(entries, "entry")
    return f"{logged} and {phrases.format_count(snapshots, 'snapshot')}"


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
