"""Commands for memories: what an agent knows, by id, in a collection."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from pydantic import JsonValue

from indelible.cli import phrases
from indelible.cli.change_commands import format_receipt, read_stdin
from indelible.cli.command import CommandContext, on_store
from indelible.cli.options import Key, Limit, Text, Ttl, Where, complete_session_ids
from indelible.cli.suggestions import suggest_command
from indelible.core.filters import parse_conditions
from indelible.errors import UsageError
from indelible.model import Memory
from indelible.printable import escape_unseen

MEMORIES_DEFAULT = 100

Collection = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTION",
        help="The collection: the id of its session, such as users/ana/facts.",
        autocompletion=complete_session_ids,
    ),
]


@on_store('remember ana/facts "Likes tea" --id drink --url agent.db', creates=True)
def remember(
    call: CommandContext,
    collection: Collection,
    text: Text,
    *,
    memory_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Replaces the memory with this id. Without it: a new one."
        ),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(metavar="JSON", help="An object, to filter by.")
    ] = None,
    ttl: Ttl = None,
    key: Key = None,
) -> None:
    """Store a memory. A collection, or a file, that is not there begins with it."""
    fields = _parse_object(metadata)
    content = read_stdin() if text == "-" else text
    if not content.strip():
        raise UsageError("there is no text to remember. Nothing was written")
    receipt = call.store.remember(
        collection, content, id=memory_id, metadata=fields, ttl=ttl, key=key
    )
    name, where = memory_id or receipt.key, phrases.format_positions(receipt.positions)
    done = f"Remembered as {escape_unseen(name)}, at position {where}."
    call.out.print_result(receipt, [format_receipt(receipt, done)])


def _parse_object(text: str | None) -> dict[str, JsonValue] | None:
    if text is None:
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--metadata is not JSON: {error}. Nothing was written") from None
    if not isinstance(parsed, dict):
        raise UsageError(f"--metadata is an object, not {text!r}. Nothing was written")
    return parsed


@on_store("memories ana/facts --url agent.db", "memories ana/facts drink --url agent.db")
def memories(
    call: CommandContext,
    collection: Collection,
    memory_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Only this one, with all its versions."),
    ] = None,
    *,
    where: Where = None,
    limit: Limit = MEMORIES_DEFAULT,
    cursor: Annotated[
        str | None, typer.Option(metavar="ID", help="Continue after this id.")
    ] = None,
) -> None:
    """List the memories of a collection, by id; or every version of one, and what removed it."""
    call.require_session(collection)
    if memory_id is not None:
        _print_versions(call, collection, memory_id)
        return
    page = call.store.list_memories(
        collection, where=parse_conditions(where or []), limit=limit, cursor=cursor
    )
    if page.cursor is not None:
        options = [f"--where={each}" for each in where or []]
        options += [f"--limit={limit}", f"--cursor={page.cursor}"]
        call.out.note(f"There are more: {suggest_command('memories', collection, options=options)}")
    call.out.print_table(
        {"memories": page, "cursor": page.cursor},
        ("memory", "written (UTC)", "text"),
        [(each.id, phrases.format_time(each.written_at), _format_content(each)) for each in page],
        empty="No memories.",
    )


def _print_versions(call: CommandContext, collection: str, memory_id: str) -> None:
    versions = call.store.memory_history(collection, memory_id)
    call.out.print_table(
        {"versions": versions},
        ("position", "written (UTC)", "text", "removed"),
        [
            (
                str(each.memory.position),
                phrases.format_time(each.memory.written_at),
                _format_content(each.memory),
                "" if each.current else each.removed_by or "hidden",
            )
            for each in versions
        ],
        empty=f"Collection {collection!r} has no memory {memory_id!r}, now or earlier.",
    )


def _format_content(memory: Memory) -> str:
    content = memory.text
    if content is None:
        content = phrases.format_compact_json(memory.value)
    return phrases.format_line(content)


@on_store("retract ana/facts drink --url agent.db")
def retract(
    call: CommandContext,
    collection: Collection,
    memory_id: Annotated[str, typer.Argument(metavar="ID", help="The memory.")],
    *,
    key: Key = None,
) -> None:
    """Take a memory back: it is not found any more. Its versions stay in the history."""
    call.require_session(collection)
    receipt = call.store.retract(collection, memory_id, key=key)
    done = f"Retracted {memory_id!r}. Earlier versions stay in its history."
    absent = f"There is no memory {memory_id!r} in {collection!r}; nothing was written."
    call.out.print_result(receipt, [done if receipt.positions else absent])
