"""Rows of the log: the metadata of an entry, and its envelope.

    written deadline generation checksum kind·keep·batch key-size links-size key·links·envelope

A script writes the first four words, since it assigns the position; the rest is built here. Links
are the ids of tool calls as JSON or, for a memory, its id, by which scripts index it. A row that is
empty was removed.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from indelible.core.checksums import compute_entry_checksum, recover_content_checksum
from indelible.core.codec import ITEM_KINDS, parse_item
from indelible.core.operations import LogRow, StoredEntry
from indelible.core.rows import KIND_NUMBER
from indelible.model import Kind

_KIND: Final = {b"%d" % number: kind for kind, number in KIND_NUMBER.items()}
# The Lua pattern that parses a row: all words but the checksum, and where the key begins.
ROW_PATTERN: Final = "^(%d+) (%d*) (%d+) %d+ (%d)(%d)(%d+) (%d+) (%d+) ()"


def format_rest(
    kind: Kind | None,
    keep: bool,
    batch: int,
    key: str,
    opens: tuple[str, ...],
    answers: tuple[str, ...],
    envelope: bytes,
) -> bytes:
    """Build a row without the words that scripts write."""
    number = KIND_NUMBER[kind] if kind is not None else 0
    if kind in ITEM_KINDS:
        links = (parse_item(kind, envelope) or "").encode()
    else:
        links = json.dumps([opens, answers]).encode() if opens or answers else b""
    name = key.encode()
    return b"%d%d%d %d %d %b%b%b" % (
        number,
        keep,
        batch,
        len(name),
        len(links),
        name,
        links,
        envelope,
    )


def format_row(row: LogRow, salt: int) -> bytes:
    """Build a whole row, as scripts write it."""
    deadline = b"" if row.deadline_ms is None else b"%d" % row.deadline_ms
    checksum = compute_entry_checksum(salt, row.envelope, *row.place)
    rest = format_rest(
        row.kind, row.keep, row.batch, row.key or "", row.opens, row.answers, row.envelope
    )
    return b"%d %b %d %d %b" % (row.written_at_ms, deadline, row.generation, checksum, rest)


class Row(NamedTuple):
    """A parsed row. A damaged one has no kind, and all its bytes are the envelope."""

    written_at_ms: int
    deadline_ms: int | None
    generation: int
    checksum: int
    kind: Kind | None
    keep: bool
    batch: int
    key: bytes
    links: bytes
    envelope: bytes

    def recover_content(self, position: int, salt: int) -> int:
        """Return the content checksum that follows from the row's checksum."""
        times = self.written_at_ms, self.deadline_ms
        place = position, *times, self.generation, self.batch
        return recover_content_checksum(self.checksum, salt, *place)

    def parse_links(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the ids of the tool calls that the entry opens and answers.

        Damaged ones are a `ValueError`.
        """
        if not self.links or self.kind in ITEM_KINDS:
            return (), ()
        try:
            opens, answers = json.loads(self.links)
            links = tuple(opens), tuple(answers)
        except (TypeError, RecursionError) as error:
            raise ValueError(self.links) from error
        if not all(isinstance(call_id, str) for call_ids in links for call_id in call_ids):
            raise ValueError(self.links)
        return links


def parse_row(raw: bytes) -> Row:
    """Parse a row."""
    try:
        written, deadline, generation, checksum, about, key_size, links_size, rest = raw.split(
            b" ", 7
        )
        links_at = int(key_size)
        envelope_at = links_at + int(links_size)
        return Row(
            int(written),
            int(deadline) if deadline else None,
            int(generation),
            int(checksum),
            _KIND.get(about[:1]),
            about[1:2] == b"1",
            int(about[2:]),
            rest[:links_at],
            rest[links_at:envelope_at],
            rest[envelope_at:],
        )
    except ValueError:
        return Row(0, None, 0, 0, None, False, 0, b"", b"", raw)


def parse_entry(position: int, raw: bytes, salt: int) -> StoredEntry:
    """Parse a row into the fields that a reader needs."""
    row = parse_row(raw)
    content = row.recover_content(position, salt)
    return StoredEntry(position, row.kind, row.written_at_ms, row.envelope, content)


def parse_log_row(position: int, raw: bytes, salt: int) -> LogRow:
    """Parse a row into all fields of an entry."""
    row = parse_row(raw)
    try:
        kind, (opens, answers) = row.kind, row.parse_links()
    except ValueError:
        kind, opens, answers = None, (), ()
    return LogRow(
        position,
        kind,
        row.written_at_ms,
        row.deadline_ms,
        row.batch,
        row.generation,
        row.keep,
        row.key.decode("utf-8", "replace") if row.key else None,
        opens,
        answers,
        row.envelope,
        row.recover_content(position, salt),
    )
