"""Shell completion of session and snapshot ids.

Shells insert a completion into the command line as it is, and zsh evaluates it. So an id is offered
only if it is a plain word to every shell; the others have to be typed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer

import indelible
from indelible.cli.location import Location

# Shells do not show more.
OFFERED_MAX = 50
# A slower completion is of no use.
COMPLETING_S_MAX = 1.0

# ASCII letters and digits, and characters without a meaning to any shell inside a word.
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+-]*")
_PLAIN_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]*")


def complete_session_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the id of a session."""
    try:
        with _open_store(context) as store:
            found = store.list_sessions(prefix=incomplete, limit=OFFERED_MAX)
    except indelible.MemoryStoreError:
        # An incomplete line often names no store yet.
        return []
    return sorted(each for each in found.ids if _PLAIN_WORD.fullmatch(each))


def complete_snapshot_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Complete the id of a snapshot of the session on the line; labels are shown as help."""
    try:
        with _open_store(context) as store:
            found = store.list_snapshots(context.params.get("session") or "")
    except indelible.MemoryStoreError:
        return []
    plain = [each for each in found if _PLAIN_WORD.fullmatch(each.id)]
    matching = [each for each in plain if each.id.startswith(incomplete)]
    return [(each.id, _filter_label(each.label or "")) for each in matching[-OFFERED_MAX:]]


def _filter_label(label: str) -> str:
    """Return the label if it is safe for zsh, which evaluates it."""
    return label if _PLAIN_LABEL.fullmatch(label) else ""


@contextmanager
def _open_store(context: typer.Context) -> Iterator[indelible.MemoryStore]:
    """Open the store that the line names."""
    given = context.params
    url = given.get("url") or ""
    if "source" in given:
        # `copy` completes sessions of its source, which is not parsed yet while an option has no
        # value.
        url = given["source"] or next(iter(context.args), "")
    place = Location(
        url=url,
        namespace=given.get("namespace") or "",
        busy_timeout_s=0.0,
        timeout_s=COMPLETING_S_MAX,
    )
    with warnings.catch_warnings():
        # A warning would be printed into the line that is being typed.
        warnings.simplefilter("ignore")
        store = place.open()
    with store:
        yield store
