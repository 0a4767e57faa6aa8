"""Rows that transactions read and write (see `transaction.py`)."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from indelible import view
from indelible.core.limits import LOG_ENTRIES_MAX
from indelible.core.operations import LogRow, Outline
from indelible.errors import CorruptEntryError
from indelible.model import Kind
from indelible.view import Extents, View

# The number of a kind in the row of an entry. They are stored, and never change.
KIND_NUMBER: Final = {
    Kind.MESSAGE: 1,
    Kind.TOOL_CALL: 2,
    Kind.TOOL_RESULT: 3,
    Kind.SUMMARY: 4,
    Kind.MEMORY: 5,
    Kind.VALUE: 6,
    Kind.CHECKPOINT: 7,
}
KIND_BY_NUMBER: Final = {number: kind for kind, number in KIND_NUMBER.items()}


class SessionRow(NamedTuple):
    """A session and its current life, with the end of its log."""

    name: str
    # What tells this life from every other.
    token: str
    # The first position of this life, and the end of the log.
    born: int
    end: int
    generation: int
    deadline_ms: int | None
    staged: bool
    view: View
    created_at_ms: int
    # The later of when this life began and when its newest entry was written.
    last_activity_ms: int
    vacuums: int = 0
    forked_from: str | None = None
    metadata: bytes = b"{}"
    # On SQL engines and in memory: the number of the session, which is assigned by the store and
    # never reused, not even after the session was forgotten; and that of its life, from 1.
    number: int = 0
    life: int = 0


def build_token(number: int, life: int) -> str:
    """Build the token of a life from the numbers of its session and of itself."""
    return f"{number}.{life}"


class KeyUse(NamedTuple):
    """The append that a key was used for."""

    key: str
    first: int
    entries: int
    # Of the view, when it was written.
    generation: int


class SearchScope(NamedTuple):
    """What a search by the indexes looks through."""

    # Names of sessions by their numbers; None for all sessions, of all namespaces.
    names: dict[int, str] | None
    # About how many entries there are, and how many words they have on average. What a small scope
    # has is only known when it was looked through.
    total: int
    average: float
    # Whether they are so many that common words are left out.
    is_large: bool


def build_entry_ids(token: str, extents: Extents) -> list[int]:
    """Build the ids of entries: the number of their session, and their positions."""
    first = int(token.partition(".")[0]) * LOG_ENTRIES_MAX
    return [first + position for position in view.iter_positions(extents)]


def split_entry_id(entry_id: int) -> tuple[int, int]:
    """Split the id of an entry into the number of its session and its position."""
    return divmod(entry_id, LOG_ENTRIES_MAX)


def encode_links(call_ids: tuple[str, ...]) -> str | None:
    """Encode ids of tool calls for the row of an entry."""
    return json.dumps(call_ids) if call_ids else None


def decode_links(text: str | None) -> tuple[str, ...]:
    """Decode ids of tool calls; a `ValueError` if the row is damaged."""
    if text is None:
        return ()
    try:
        call_ids = json.loads(text)
    except (RecursionError, TypeError) as error:
        raise ValueError(text) from error
    if not isinstance(call_ids, list) or not all(isinstance(name, str) for name in call_ids):
        raise ValueError(text)
    return tuple(call_ids)


def build_log_row(
    position: int,
    number: int,
    written_at_ms: int,
    deadline_ms: int | None,
    batch: int,
    generation: int,
    keep: bool,
    key: str | bytes | None,
    opens: str | None,
    answers: str | None,
    envelope: bytes,
    content: int,
) -> LogRow:
    """Build an entry from its columns. An entry with damaged columns has no kind."""
    try:
        kind, links = KIND_BY_NUMBER.get(number), (decode_links(opens), decode_links(answers))
        name = key.decode() if isinstance(key, bytes) else key
    except ValueError:
        kind, links, name = None, ((), ()), None
    return LogRow(
        position,
        kind,
        written_at_ms,
        deadline_ms,
        batch,
        generation,
        bool(keep),
        name,
        *links,
        envelope,
        content,
    )


def build_outline(
    session: str,
    position: int,
    number: int,
    size_bytes: int,
    keep: bool,
    opens: str | None,
    answers: str | None,
) -> Outline:
    """Build an entry without its body from its columns; raise if they are damaged."""
    try:
        links = decode_links(opens), decode_links(answers)
        return Outline(position, KIND_BY_NUMBER[number], size_bytes, bool(keep), *links)
    except (KeyError, ValueError) as error:
        raise build_outline_error(session, position) from error


def build_outline_error(session: str, position: int) -> CorruptEntryError:
    """Build the error for an entry whose kind or tool calls cannot be read."""
    return CorruptEntryError(
        f"entry {position} of session {session!r} is damaged: its kind or its tool calls cannot be"
        " read; nothing was changed. repair takes it out of view.",
        session=session,
        position=position,
    )
