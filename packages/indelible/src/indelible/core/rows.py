"""Rows that transactions read and write (see `transaction.py`)."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from indelible import view
from indelible.core import rules
from indelible.core.limits import LOG_ENTRIES_MAX
from indelible.core.operations import Head, LogRow, Outline
from indelible.core.rules import SessionState
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
    # Assigned by the store and never reused, not even after the session was forgotten.
    number: int
    # Counts the lives of the session, from 1.
    life: int
    # The first position of this life, and the end of the log.
    born: int
    end: int
    generation: int
    deadline_ms: int | None
    staged: bool
    # The view: its tail, and its extents as `view.encode` writes them.
    tail: int
    extents: bytes
    created_at_ms: int
    # The later of when this life began and when its newest entry was written.
    last_activity_ms: int
    vacuums: int
    forked_from: str | None
    metadata: bytes

    @property
    def token(self) -> str:
        """What tells this life from every other."""
        return f"{self.number}.{self.life}"

    @property
    def state(self) -> SessionState:
        """The part that decides about writes."""
        return SessionState(
            self.token, self.born, self.end, self.generation, self.deadline_ms, self.staged
        )

    @property
    def view(self) -> View:
        """What the session shows; damaged extents are a `FormatError`."""
        if not self.extents:
            return View((), self.tail)
        return view.build_view(view.decode(self.extents), self.tail)


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
    except RecursionError as error:
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
        raise rules.build_outline_error(session, position) from error


def build_row_head(row: SessionRow | None, now_ms: int, *, snapshots: int = 0) -> Head:
    """Build the head of a session from its row; None for one that does not exist."""
    if row is None:
        return rules.build_head(None, view=View(), now_ms=now_ms)
    return rules.build_head(
        row.state,
        view=row.view,
        now_ms=now_ms,
        created_at_ms=row.created_at_ms,
        last_activity_ms=row.last_activity_ms,
        metadata=row.metadata,
        snapshots=snapshots,
        forked_from=row.forked_from,
        vacuums=row.vacuums,
    )
