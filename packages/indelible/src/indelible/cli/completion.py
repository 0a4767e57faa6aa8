"""What the shell completes: the ids of the store that the line so far names.

Shells insert a completion into the command line as it is, and zsh evaluates it. So an id is offered
only if no shell can take it for anything but a word; the others have to be typed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer

import indelible
from indelible.cli.location import Location

# More than this no shell shows.
OFFERED_MAX = 50
# Whoever waits for a completion longer than this types on.
COMPLETING_S_MAX = 1.0

# ASCII letters and digits, and marks that mean nothing to any shell inside a word.
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+-]*")
_PLAIN_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]*")


def session_ids(context: typer.Context, incomplete: str) -> list[str]:
    """The sessions that begin with what was typed."""
    try:
        with _store(context) as store:
            found = store.list_sessions(prefix=incomplete, limit=OFFERED_MAX)
    except indelible.MemoryStoreError:
        # Half a line often names no store yet: then there is nothing to offer.
        return []
    return sorted(each for each in found if _PLAIN_WORD.fullmatch(each))


def snapshot_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The snapshots of the session on the line, with their labels."""
    try:
        with _store(context) as store:
            found = store.list_snapshots(context.params.get("session") or "")
    except indelible.MemoryStoreError:
        return []
    plain = [each for each in found if _PLAIN_WORD.fullmatch(each.id)]
    matching = [each for each in plain if each.id.startswith(incomplete)]
    return [(each.id, _plain_label(each.label or "")) for each in matching[-OFFERED_MAX:]]


def _plain_label(label: str) -> str:
    """A label for the list that a shell shows; zsh evaluates it, too."""
    return label if _PLAIN_LABEL.fullmatch(label) else ""


@contextmanager
def _store(context: typer.Context) -> Iterator[indelible.MemoryStore]:
    """The store that the line names."""
    given = context.params
    url = given.get("url") or ""
    if "source" in given:
        # A copy takes sessions of its source, which is not a parameter yet while an option lacks
        # its value.
        url = given["source"] or next(iter(context.args), "")
    place = Location(
        url=url,
        namespace=given.get("namespace") or "",
        busy_timeout_s=0.0,
        timeout_s=COMPLETING_S_MAX,
    )
    with warnings.catch_warnings():
        # Nothing may be printed into the line that is being typed.
        warnings.simplefilter("ignore")
        store = place.opened()
    with store:
        yield store
