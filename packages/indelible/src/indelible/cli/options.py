"""The arguments and options that several commands share, each with one wording."""

from __future__ import annotations

from typing import Annotated

import typer

from indelible.cli import completion
from indelible.core.limits import TIMEOUT_S_MAX

SessionId = Annotated[
    str,
    typer.Argument(
        metavar="SESSION", help="The session's id.", autocompletion=completion.complete_session_ids
    ),
]
AnySession = Annotated[
    str | None,
    typer.Argument(
        metavar="SESSION",
        help="The session's id. Without it: all of the store.",
        autocompletion=completion.complete_session_ids,
    ),
]
SnapshotId = Annotated[
    str,
    typer.Argument(
        metavar="SNAPSHOT",
        help="The snapshot: its id or the beginning of it, its label, or latest.",
        autocompletion=completion.complete_snapshot_ids,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Names this very change: the same key again is the same change, done once.",
    ),
]

Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        help="Only those for which this holds, such as metadata.team=support or"
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
        rich_help_panel="Store and output",
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        metavar="NAME",
        envvar="INDELIBLE_NAMESPACE",
        help="Which of the store's namespaces; sessions of two never meet.",
        rich_help_panel="Store and output",
    ),
]
BusyTimeout = Annotated[
    float,
    typer.Option(
        "--busy-timeout",
        metavar="SECONDS",
        min=0.0,
        help="How long to wait for another writer.",
        rich_help_panel="Store and output",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.001,
        max=TIMEOUT_S_MAX,
        help="How long a call to a server may take, with all its retries.",
        rich_help_panel="Store and output",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the data as one JSON document, and everything else to stderr.",
        rich_help_panel="Store and output",
    ),
]
