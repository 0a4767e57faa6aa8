"""Commands that only read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from indelible.cli import phrases
from indelible.cli.command import CommandContext, on_store
from indelible.cli.options import (
    Limit,
    Prefix,
    SessionId,
    Sessions,
    SnapshotId,
    Where,
    complete_snapshot_ids,
)
from indelible.cli.output import to_plain
from indelible.cli.suggestions import suggest_command
from indelible.core.filters import parse_conditions
from indelible.core.limits import SEARCH_HITS_MAX
from indelible.model import Entry, Hit, Kind, Status, StoredMemory, Value
from indelible.printable import escape_unseen

SESSIONS_DEFAULT = 100
HITS_DEFAULT = 10
# Below this width, the table of sessions has fewer columns.
WIDE_TABLE_COLUMNS = 90


@on_store(
    "sessions --url agent.db --order -last_activity",
    "sessions --url agent.db --where metadata.team=support",
)
def sessions(
    call: CommandContext,
    *,
    prefix: Prefix = "",
    status: Annotated[
        list[Status] | None,
        typer.Option(
            metavar="STATUS",
            help="Only these: active, expired, damaged, or new (an unfinished copy); may be"
            " repeated. Default: active and damaged.",
        ),
    ] = None,
    where: Where = None,
    order: Annotated[
        str,
        typer.Option(
            metavar="FIELD", help="id, created or last_activity; with - in front, descending."
        ),
    ] = "-last_activity",
    limit: Limit = SESSIONS_DEFAULT,
    cursor: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Continue after an earlier page.")
    ] = None,
) -> None:
    """List the sessions of a store, with their status, counts and dates."""
    conditions = parse_conditions(where or [])
    if status:
        conditions.setdefault("status", {})["$in"] = status
    page = call.store.list_sessions(
        prefix=prefix,
        where=conditions,
        order=order,
        limit=limit,
        cursor=cursor,
    )
    if page.cursor is not None:
        options = [f"--prefix={prefix}"] if prefix else []
        options += [f"--status={each}" for each in status or []]
        options += [f"--where={each}" for each in where or []]
        options += [f"--order={order}", f"--limit={limit}", f"--cursor={page.cursor}"]
        call.out.note(f"There are more: {suggest_command('sessions', options=options)}")
    headings = ("session", "status", "entries", "snapshots", "created (UTC)", "active (UTC)")
    rows = [
        (
            each.session_id,
            each.status,
            str(each.entries),
            str(each.snapshots),
            _format_minute(each.created_at),
            _format_minute(each.last_activity),
        )
        for each in page
    ]
    is_narrow = not call.out.as_json and call.out.columns < WIDE_TABLE_COLUMNS
    shown = (0, 1, 5) if is_narrow else range(len(headings))
    call.out.print_table(
        {"sessions": page, "cursor": page.cursor},
        [headings[place] for place in shown],
        [[row[place] for place in shown] for row in rows],
        empty="No sessions.",
    )


def _format_minute(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M}"


@on_store("history user-42 --last 10 --url agent.db")
def history(
    call: CommandContext,
    session: SessionId,
    *,
    last: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only the newest N messages.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Only the newest messages that fit into N tokens, estimated."
        ),
    ] = None,
) -> None:
    """Print the visible messages of a session, oldest first."""
    call.require_session(session)
    messages = call.store.get_history(session, last=last, max_tokens=max_tokens)
    found = {
        "session_id": session,
        "status": messages.status,
        "version": messages.version,
        "messages": messages,
    }
    # With --max-tokens there may be messages that do not fit.
    if not messages and max_tokens is None and last != 0:
        _note_no_messages(call, session)
    call.out.print_result(found, map(phrases.format_turn, messages))


def _note_no_messages(call: CommandContext, session: str) -> None:
    """Print what a session has instead of messages: empty output would look like a new session."""
    entries = call.store.timeline(session).entries
    kinds = {each.entry.kind for each in entries if each.visible and isinstance(each.entry, Entry)}
    hidden = sum(not each.visible for each in entries)
    where = suggest_command("show", session)
    if Kind.CHECKPOINT in kinds:
        call.out.note(f"This is a thread of LangGraph, which has checkpoints: {where}")
    elif Kind.MEMORY in kinds:
        memories = suggest_command("memories", session)
        call.out.note(f"This is a collection, which has memories: {memories}")
    elif hidden:
        are = "is" if hidden == 1 else "are"
        call.out.note(
            f"No messages show; {phrases.format_count(hidden, 'entry')} {are} hidden: {where}"
        )


@on_store("snapshots user-42 --url agent.db")
def snapshots(call: CommandContext, session: SessionId) -> None:
    """List the snapshots of a session, oldest first."""
    call.require_session(session)
    found = call.store.list_snapshots(session)
    call.out.print_table(
        found,
        ("snapshot", "taken (UTC)", "entries", "label"),
        [
            (
                each.id,
                phrases.format_time(each.taken_at),
                str(each.entries),
                phrases.format_line(each.label or ""),
            )
            for each in found
        ],
        empty=f"Session {session!r} has no snapshots.",
    )


@on_store("diff user-42 latest --url agent.db", "diff user-42 before-booking latest --url agent.db")
def diff(
    call: CommandContext,
    session: SessionId,
    snapshot: SnapshotId,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="SNAPSHOT",
            help="Another snapshot to compare with. Default: the current view.",
            autocompletion=complete_snapshot_ids,
        ),
    ] = None,
) -> None:
    """List what was added since a snapshot (+), and what no longer shows (-)."""
    found = call.store.diff_snapshots(session, snapshot, other)
    signed = [("-", entry) for entry in found.removed] + [("+", entry) for entry in found.added]
    signed.sort(key=lambda pair: pair[1].position)
    lines = [f"{sign} {phrases.format_entry(entry)}" for sign, entry in signed]
    call.out.print_result(found, lines or ["No difference."])


@on_store('search "where is my order" --url agent.db', 'search "tea" --under ana --url agent.db')
def search(
    call: CommandContext,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The words to look for.")],
    *,
    session: Sessions = None,
    under: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only this session and those below it, such as users/ana."),
    ] = None,
    where: Where = None,
    limit: Annotated[
        int, typer.Option(min=1, max=SEARCH_HITS_MAX, metavar="N", help="List at most N.")
    ] = HITS_DEFAULT,
    around: Annotated[
        int,
        typer.Option(
            min=0, max=SEARCH_HITS_MAX, metavar="N", help="Also print N entries before and after."
        ),
    ] = 0,
) -> None:
    """Search visible messages, summaries and memories; the best match first."""
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
    lines = [line for hit in hits for line in _format_hit(hit)]
    call.out.print_result({"hits": hits}, lines or ["Nothing was found."])


def _format_hit(hit: Hit) -> Iterator[str]:
    yield (
        f"{escape_unseen(hit.session_id)} {hit.position},"
        f" {phrases.format_time(hit.entry.written_at)}, {_format_author(hit.entry.value)}:"
        f" {phrases.format_line(hit.snippet)}"
    )
    for beside in hit.around:
        yield f"    {phrases.format_entry(beside)}"


def _format_author(value: Value) -> str:
    """Format the author of a value; a memory has its id, which `memories` and `retract` take."""
    author = phrases.format_author(value)
    return f"{author} {escape_unseen(value.id)}" if isinstance(value, StoredMemory) else author


@on_store("claims --url agent.db")
def claims(call: CommandContext) -> None:
    """Print what the store promises on its engine, as configured now."""
    promised = call.store.claims()
    rows = [
        (name, _format_claim(value))
        for name, value in to_plain(promised).items()
        if name != "warnings"
    ]
    call.out.print_table(promised, ("claim", "value"), rows, empty="")
    for warning in () if call.out.as_json else promised.warnings:
        call.out.say(f"Warning: {warning}")


def _format_claim(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
