"""What the shell completes: the ids of the store that the line so far names."""

from __future__ import annotations

import typer

import indelible
from indelible.cli.place import Place

# More than this no shell shows.
OFFERED_MAX = 50
# Whoever waits for a completion longer than this types on.
COMPLETING_S_MAX = 1.0


def session_ids(context: typer.Context, incomplete: str) -> list[str]:
    """The sessions that begin with what was typed."""
    try:
        with _place(context).opened() as store:
            return sorted(store.list_sessions(prefix=incomplete, limit=OFFERED_MAX))
    except indelible.MemoryStoreError:
        # Half a line often names no store yet: then there is nothing to offer.
        return []


def snapshot_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The snapshots of the session on the line, with their labels."""
    try:
        with _place(context).opened() as store:
            found = store.list_snapshots(context.params.get("session") or "")
    except indelible.MemoryStoreError:
        return []
    matching = [each for each in found if each.id.startswith(incomplete)]
    return [(each.id, each.label or "") for each in matching[-OFFERED_MAX:]]


def _place(context: typer.Context) -> Place:
    given = context.params
    url = given.get("url") or ""
    if "source" in given:
        # A copy takes sessions of its source, which is not a parameter yet while an option lacks
        # its value.
        url = given["source"] or next(iter(context.args), "")
    return Place(
        url=url,
        namespace=given.get("namespace") or "",
        busy_timeout_s=0.0,
        timeout_s=COMPLETING_S_MAX,
    )
