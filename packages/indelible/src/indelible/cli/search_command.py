"""The command `search`."""

from __future__ import annotations

from typing import Annotated

import typer

from indelible.cli import completion, phrases
from indelible.cli.command import CommandContext, on_store
from indelible.cli.options import Where
from indelible.core.conditions import parse_conditions
from indelible.core.limits import SEARCH_HITS_MAX
from indelible.model import StoredMemory, Value

HITS_DEFAULT = 10


@on_store()
def search(
    call: CommandContext,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words that are looked for.")],
    *,
    session: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Only this session; may be repeated.",
            autocompletion=completion.complete_session_ids,
        ),
    ] = None,
    under: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only this session and those below it, such as users/ana."),
    ] = None,
    where: Where = None,
    limit: Annotated[
        int, typer.Option(min=1, max=SEARCH_HITS_MAX, metavar="N", help="List this many at most.")
    ] = HITS_DEFAULT,
    around: Annotated[
        int, typer.Option(min=0, max=SEARCH_HITS_MAX, metavar="N", help="With N entries around.")
    ] = 0,
) -> None:
    """Find what shows: messages, summaries and memories, the best first."""
    for name in session or []:
        call.require_session(name)
    hits = call.store.search(
        query,
        sessions=session or None,
        under=under,
        where=parse_conditions(where or []),
        k=limit,
        around=around,
    )
    if call.out.print_json({"hits": hits}):
        return
    if not hits:
        call.out.say("Nothing was found.")
        return
    for hit in hits:
        name = phrases.escape_name(hit.session_id)
        call.out.say(
            f"{name} {hit.position}, {phrases.format_time(hit.entry.written_at)},"
            f" {_format_author(hit.entry.value)}: {phrases.format_line(hit.snippet)}"
        )
        for beside in hit.around:
            call.out.say(f"    {phrases.format_entry(beside)}")


def _format_author(value: Value) -> str:
    """Name who wrote it; a memory by its id, which `memories` and `retract` take."""
    author = phrases.format_author(value)
    return (
        f"{author} {phrases.escape_name(value.id)}" if isinstance(value, StoredMemory) else author
    )
