"""`indelible doctor`: reports what the running engine can lose."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from indelible.cli import phrases
from indelible.cli.command import CommandContext, on_store
from indelible.cli.exit_codes import WRONG_DATA
from indelible.cli.output import show_progress, to_plain
from indelible.model import Gravity, Risk


@on_store()
def doctor(
    call: CommandContext,
    *,
    store_url: Annotated[  # noqa: ARG001 (names the store before the command is called)
        str | None, typer.Argument(metavar="URL", help="The store; the same as --url.")
    ] = None,
) -> None:
    """Say what the running engine can lose, when, and what to change; exits 1 for a danger."""
    with warnings.catch_warnings():
        # The same warnings are printed below, in full.
        warnings.simplefilter("ignore", RuntimeWarning)
        store = call.store
    claims = store.claims()
    with show_progress("Looking") as tell:
        found = store.risks(sessions=True, progress=tell)
    dangers = sum(risk.severity is Gravity.DANGER for risk in found)
    if not call.out.print_json(
        {"ok": not dangers, "claims": to_plain(claims), "risks": to_plain(found)}
    ):
        engine = f"{claims.engine} {claims.engine_version}".strip()
        simulated = ", simulated" if claims.simulated else ""
        call.out.say(f"{engine}{simulated}: durability {claims.durability}.")
        for risk in found:
            for line in _format_risk(risk):
                call.out.say(line)
        call.out.say(_format_verdict(found, dangers))
    if dangers:
        raise typer.Exit(WRONG_DATA)


def _format_risk(risk: Risk) -> list[str]:
    return [
        f"{risk.severity}: {phrases.format_line(risk.subject)}",
        f"  {phrases.format_line(risk.risk)}",
        f"  to change that: {phrases.format_line(risk.remedy)}",
    ]


def _format_verdict(found: tuple[Risk, ...], dangers: int) -> str:
    if not found:
        return "All well."
    warned = sum(risk.severity is Gravity.WARNING for risk in found)
    counts = phrases.format_count(dangers, "danger"), phrases.format_count(warned, "warning")
    return f"Found {', '.join(counts)}."
