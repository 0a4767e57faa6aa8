"""Commands that look after a store: check it, mend it, give space back, erase a session."""

from __future__ import annotations

from typing import Annotated

import typer

from indelible.cli import phrases, progress
from indelible.cli.command import CommandContext, on_store
from indelible.cli.exit_codes import WRONG_DATA
from indelible.cli.options import AnySession, DryRun, SessionId, Yes
from indelible.cli.output import plain
from indelible.cli.prompts import confirm
from indelible.cli.suggestions import hint
from indelible.core.limits import UNDO_WINDOW_S
from indelible.model import (
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
def verify(call: CommandContext, session: AnySession = None) -> None:
    """Read everything and check it; exits 1 if something is wrong."""
    if session is not None:
        call.existing(session)
    with progress.shown("Verifying") as tell:
        report = call.store.verify(session, progress=tell)
    if not call.out.json({"ok": report.ok, **plain(report)}):
        for finding in report.findings:
            call.out.say(_finding(finding))
        call.out.say(_verdict(report))
    if not report.ok:
        repair = hint("repair", *([session] if session else []), options=["--dry-run"])
        call.out.note(f"`{repair}` says what can be set right.")
        raise typer.Exit(WRONG_DATA)


def _verdict(report: VerifyReport) -> str:
    read = f"{phrases.counted(report.sessions, 'session')}, {phrases.entries(report.entries)}"
    if not report.findings:
        return f"Read {read}: all well."
    errors = sum(finding.severity is Severity.ERROR for finding in report.findings)
    warnings = len(report.findings) - errors
    found = f"{phrases.counted(errors, 'error')}, {phrases.counted(warnings, 'warning')}"
    return f"Read {read}: {found}."


def _finding(finding: Finding) -> str:
    where = _where(finding.session_id, finding.position)
    return f"{finding.severity}: {where}{phrases.one_line(finding.what)}"


def _where(session: str | None, position: int | None) -> str:
    if session is None:
        return ""
    place = "" if position is None else f", position {position}"
    return f"{phrases.visible(session)}{place}: "


@on_store()
def repair(
    call: CommandContext, session: AnySession = None, *, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Set right what verify finds: set aside what cannot be read, and keep its bytes."""
    if session is not None:
        call.existing(session)
    report = call.store.repair(session, dry_run=dry_run or not yes)
    if report.actions and not dry_run and not yes:
        steps = "\n".join(f"  {_action(action)}" for action in report.actions)
        confirm(f"The repair does this:\n{steps}", yes=yes)
        report = call.store.repair(session)
    if call.out.json(report):
        return
    for action in report.actions:
        call.out.say(_action(action))
    if not report.actions:
        call.out.say("Nothing to repair.")
    else:
        call.out.say("Nothing was changed." if report.dry_run else "Repaired.")


def _action(action: RepairAction) -> str:
    positions = f" ({phrases.spans(action.positions)})" if action.positions else ""
    return f"{phrases.visible(action.session_id)}: {phrases.one_line(action.what)}{positions}"


@on_store()
def vacuum(
    call: CommandContext,
    *,
    undo_days: Annotated[
        float,
        typer.Option(min=0.0, metavar="DAYS", help="Keep what changes of these days let go of."),
    ] = UNDO_DAYS,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Give back the space of entries that nothing can reach: no view, no snapshot, no undo."""
    window_s = undo_days * DAY_S
    if not dry_run and not yes:
        with progress.shown("Counting") as tell:
            found = call.store.vacuum(undo_window=window_s, dry_run=True, progress=tell)
        confirm(
            f"This removes {_counts(found)}, for good: no view and no snapshot shows them, and they"
            f" were let go of more than {undo_days:g} days ago. Undo will not reach them.",
            yes=yes,
        )
    with progress.shown("Vacuuming") as tell:
        report = call.store.vacuum(undo_window=window_s, dry_run=dry_run, progress=tell)
    if not call.out.json(report):
        call.out.say(_reclaimed(report))


def _reclaimed(report: VacuumReport) -> str:
    verb = "Would remove" if report.dry_run else "Removed"
    return f"{verb} {_counts(report)}."


def _counts(report: VacuumReport) -> str:
    what = f"{phrases.entries(report.entries)} ({report.bytes} bytes)"
    lines = phrases.counted(report.journal_lines, "undo step")
    return f"{what} and {lines} in {phrases.counted(report.sessions, 'session')}"


@on_store()
def forget(call: CommandContext, session: SessionId, *, yes: Yes = False) -> None:
    """Erase a session: entries, snapshots, keys and undo steps. This cannot be taken back."""
    info = call.store.session(session)
    # One that is not there may be asked for again, since bytes of it can still be pending.
    if info.status is not Status.NEW:
        confirm(
            f"This erases session {session!r} ({info.status}) for good:"
            f" {phrases.entries(info.logged)} and {phrases.counted(info.snapshots, 'snapshot')}."
            " It cannot be undone.",
            yes=yes,
        )
    receipt = call.store.forget(session)
    if not call.out.json(receipt):
        for line in _forgotten(receipt):
            call.out.say(line)


def _forgotten(receipt: ForgetReceipt) -> list[str]:
    erased = (
        f"{phrases.entries(receipt.entries)} and {phrases.counted(receipt.snapshots, 'snapshot')}"
    )
    name = repr(receipt.session_id)
    if receipt.entries or receipt.snapshots:
        lines = [f"Erased {erased} of session {name}."]
    elif receipt.forks:
        # It was there once: the id is right.
        lines = [f"There is no session {name} left: nothing was erased."]
    else:
        lines = [f"There is no session {name}: nothing was erased. Check the id."]
    if receipt.forks:
        names = ", ".join(repr(fork) for fork in receipt.forks)
        lines.append(f"Copies that were forked from it are still there: {names}")
    lines += [f"Bytes of it may still be in: {each}" for each in receipt.left]
    if receipt.pending:
        again = hint("forget", receipt.session_id)
        lines.append(f"Once nobody else has the store open, this clears them: {again}")
    return lines
