"""The arguments and options that several commands share, and how shells complete them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

import indelible
from indelible.cli.location import Location
from indelible.core.limits import PAGE_ENTRIES_MAX, TIMEOUT_S_MAX, TTL_S_MAX

# Where help shows the options that every command on a store has.
SHARED_PANEL = "Store and output"

# Shells do not show more.
OFFERED_MAX = 50
# A slower completion is of no use.
COMPLETING_S_MAX = 1.0

# Shells insert a completion as it is, and zsh evaluates it. So an id is offered only if it is a
# plain word to every shell: ASCII letters and digits, and characters without a meaning in a word.
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
    labels = [each.label or "" for each in matching]
    shown = [label if _PLAIN_LABEL.fullmatch(label) else "" for label in labels]
    return [(each.id, label) for each, label in zip(matching, shown, strict=True)][-OFFERED_MAX:]


@contextmanager
def _open_store(context: typer.Context) -> Iterator[indelible.MemoryStore]:
    """Open the store that the line names."""
    given = context.params
    url = given.get("url") or ""
    if "store_url" in given:
        # Click has not parsed the arguments yet while an option has no value.
        url = given["store_url"] or next(iter(context.args), "") or url
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


SessionId = Annotated[
    str,
    typer.Argument(
        metavar="SESSION", help="The session's id.", autocompletion=complete_session_ids
    ),
]
AnySession = Annotated[
    str | None,
    typer.Argument(
        metavar="SESSION",
        help="The session's id. Default: all sessions.",
        autocompletion=complete_session_ids,
    ),
]
Sessions = Annotated[
    list[str] | None,
    typer.Option(
        "--session",
        metavar="ID",
        help="Only this session; may be repeated.",
        autocompletion=complete_session_ids,
    ),
]
SnapshotId = Annotated[
    str,
    typer.Argument(
        metavar="SNAPSHOT",
        help="The snapshot: its id or the start of it, its label, or latest.",
        autocompletion=complete_snapshot_ids,
    ),
]
# The store as an argument: `on_store` takes it instead of --url.
StoreUrl = Annotated[
    str | None, typer.Argument(metavar="URL", help="The store; the same as --url.")
]
Text = Annotated[
    str,
    typer.Argument(
        metavar="TEXT",
        help="The text; - reads it from stdin, without the final newline.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Makes a retry safe: with the same key, the change is made once.",
    ),
]
Ttl = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        max=TTL_S_MAX,
        metavar="SECONDS",
        help="Expires after this time. Default: never.",
    ),
]

Limit = Annotated[
    int,
    typer.Option(min=1, max=PAGE_ENTRIES_MAX, metavar="N", help="List at most N."),
]
Prefix = Annotated[
    str, typer.Option(metavar="TEXT", help="Only sessions whose id begins with this.")
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Only those that match, such as metadata.team=support or"
        " 'expires_at<2030-01-31'; may be repeated. Operators: = != > >= < <=.",
    ),
]

Url = Annotated[
    str,
    typer.Option(
        "--url",
        "-u",
        metavar="URL",
        envvar="INDELIBLE_URL",
        help="The store: a file name such as agent.db, or a server such as redis://localhost.",
        rich_help_panel=SHARED_PANEL,
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        metavar="NAME",
        envvar="INDELIBLE_NAMESPACE",
        help="The namespace; its sessions are separate from those of others.",
        rich_help_panel=SHARED_PANEL,
    ),
]
BusyTimeout = Annotated[
    float,
    typer.Option(
        "--busy-timeout",
        metavar="SECONDS",
        min=0.0,
        help="How long to wait for another writer of a file.",
        rich_help_panel=SHARED_PANEL,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.001,
        max=TIMEOUT_S_MAX,
        help="How long a call to a server may take, including retries.",
        rich_help_panel=SHARED_PANEL,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON document to stdout, and everything else to stderr.",
        rich_help_panel=SHARED_PANEL,
    ),
]
