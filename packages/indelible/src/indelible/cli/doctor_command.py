"""The doctor: looks at the running engine, and says what it can lose."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from indelible.cli import phrases, progress
from indelible.cli.command import CommandContext, on_store
from indelible.cli.exit_codes import WRONG_DATA
from indelible.cli.output import plain
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
        # What opening warns of is what is printed below, in full.
        warnings.simplefilter("ignore", RuntimeWarning)
        store = call.store
    claims = store.claims()
    with progress.shown("Looking") as tell:
        found = store.risks(sessions=True, progress=tell)
    dangers = sum(risk.severity is Gravity.DANGER for risk in found)
    if not call.out.json({"ok": not dangers, "claims": plain(claims), "risks": plain(found)}):
        engine = f"{claims.engine} {claims.engine_version}".strip()
        simulated = ", simulated" if claims.simulated else ""
        call.out.say(f"{engine}{simulated}: durability {claims.durability}.")
        for risk in found:
            for line in _said(risk):
                call.out.say(line)
        call.out.say(_verdict(found, dangers))
    if dangers:
        raise typer.Exit(WRONG_DATA)


def _said(risk: Risk) -> list[str]:
    return [
        f"{risk.severity}: {phrases.one_line(risk.subject)}",
        f"  {phrases.one_line(risk.risk)}",
        f"  to change that: {phrases.one_line(risk.remedy)}",
    ]


def _verdict(found: tuple[Risk, ...], dangers: int) -> str:
    if not found:
        return "All well."
    others = sum(risk.severity is Gravity.WARNING for risk in found)
    return f"Found {phrases.counted(dangers, 'danger')}, {phrases.counted(others, 'warning')}."
