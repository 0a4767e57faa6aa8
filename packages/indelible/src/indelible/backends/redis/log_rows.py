"""Entries as the log stores them: what stands beside an envelope, and when it was written."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from indelible.backends.redis.scripts import KIND_NUMBER
from indelible.core.checksums import compute_entry_checksum, recover_content_checksum
from indelible.core.operations import LogRow
from indelible.model import Kind

_KIND = {str(number): kind for kind, number in KIND_NUMBER.items()}


def format_meta(
    kind: Kind | None,
    keep: bool,
    batch: int,
    opens: tuple[str, ...],
    answers: tuple[str, ...],
) -> str:
    """What stands beside an envelope: kind, keep, size of the batch, and links to tool calls."""
    number = KIND_NUMBER[kind] if kind is not None else 0
    start = f"{number}{int(keep)}{batch}"
    return f"{start} {json.dumps([opens, answers])}" if opens or answers else start


class Meta:
    """What stands beside an envelope, read; a damaged one has no kind and no links."""

    __slots__ = ("answers", "batch", "keep", "kind", "opens")

    def __init__(self, text: bytes) -> None:
        self.kind: Kind | None = None
        self.keep = False
        self.batch = 0
        self.opens: tuple[str, ...] = ()
        self.answers: tuple[str, ...] = ()
        try:
            start, _, links = text.decode().partition(" ")
            kind, self.keep, self.batch = _KIND.get(start[:1]), start[1] == "1", int(start[2:])
            if links:
                opens, answers = json.loads(links)
                self.opens, self.answers = tuple(map(str, opens)), tuple(map(str, answers))
            self.kind = kind
        except (ValueError, IndexError, TypeError):
            # Whoever reads the entry says that it is damaged.
            pass


@lru_cache(maxsize=1024)
def parse_meta(meta: bytes) -> Meta:
    """What stands beside an envelope; most of what does is the same few bytes."""
    return Meta(meta)


class Stamp(NamedTuple):
    """When an entry was written, until when it lives, in which generation of the view."""

    written_at_ms: int = 0
    deadline_ms: int | None = None
    generation: int = 0
    # The checksum that binds the entry to its place (see `core.checksums`).
    checksum: int = 0


def format_stamp(row: LogRow, salt: int) -> str:
    """What is known of an entry's time, with its checksum, as a script would write it."""
    deadline = "" if row.deadline_ms is None else str(row.deadline_ms)
    checksum = compute_entry_checksum(
        salt,
        row.envelope,
        position=row.position,
        written_at_ms=row.written_at_ms,
        deadline_ms=row.deadline_ms,
        generation=row.generation,
        batch=row.batch,
    )
    return f"{row.written_at_ms} {deadline} {row.generation} {checksum}"


def parse_stamp(text: bytes) -> Stamp:
    """Raises `ValueError` if it is none."""
    written, deadline, generation, checksum = text.split(b" ")
    return Stamp(int(written), int(deadline) if deadline else None, int(generation), int(checksum))


def parse_row(
    position: bytes, stamp: bytes, meta: bytes, key: bytes, envelope: bytes, *, salt: int
) -> LogRow:
    """An entry with all that stands beside it."""
    beside = parse_meta(meta)
    kind, at = beside.kind, Stamp()
    try:
        at = parse_stamp(stamp)
    except ValueError:
        kind = None
    return LogRow(
        int(position),
        kind,
        at.written_at_ms,
        at.deadline_ms,
        beside.batch,
        at.generation,
        beside.keep,
        key.decode("utf-8", "replace") if key else None,
        beside.opens,
        beside.answers,
        envelope,
        recover_content_checksum(
            at.checksum,
            salt,
            position=int(position),
            written_at_ms=at.written_at_ms,
            deadline_ms=at.deadline_ms,
            generation=at.generation,
            batch=beside.batch,
        ),
    )
