"""An append in one call: the script checks the key, draws the positions, and writes."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

from indelible.backends.redis.calls import Call, Context, ttl_ms
from indelible.backends.redis.protocol import Argument
from indelible.backends.redis.scripts import KIND_NUMBER
from indelible.backends.redis.sessions import extents_of
from indelible.core import rules
from indelible.core.checksums import compute_entry_checksum, recover_content_checksum
from indelible.core.codec import CHECKSUM_BYTES
from indelible.core.operations import Append, AppendResult, LogRow
from indelible.errors import FormatError
from indelible.model import Kind
from indelible.view import build_view

_KIND = {str(number): kind for kind, number in KIND_NUMBER.items()}
# Where an append's arguments say that its key is fresh: behind the time and the margin.
_FRESH_AT = 5


def call_of(context: Context, op: Append) -> Call:
    """The one call that is an append."""
    arguments: list[Argument] = [
        ttl_ms(op.ttl_s),
        op.expected or b"",
        op.key,
        b"1" if op.fresh else b"0",
        context.touch,
    ]
    batch = len(op.drafts)
    salt = context.keys(op.session).salt
    for kind, envelope, keep, opens, answers in op.drafts:
        arguments.append(meta_text(kind, keep, batch, opens, answers))
        arguments.append(envelope)
        arguments.append(compute_entry_checksum(salt, envelope, batch=batch))
        batch = 0
    return context.write("append", op.session, *arguments, fresh_at=_FRESH_AT)


def appended_of(op: Append, reply: list[Any]) -> AppendResult:
    """What became of an append, from the script's answer."""
    answer = reply[0]
    count = len(op.drafts)
    if answer == b"appended":
        first = int(reply[1])
        version = rules.build_version(reply[2].decode(), first + count, int(reply[3]))
        return AppendResult(first, count, version)
    if answer == b"replayed":
        return _replayed(op, *reply[1:])
    if answer == b"moved":
        rules.refuse_if_moved(op.session, op.expected, reply[1].decode())
    rules.refuse_if_full(op.session, int(reply[1]), count)
    raise FormatError(f"a script answered {answer!r}")


def _replayed(
    op: Append, done: bytes, life: bytes, end: bytes, tail: bytes | None, extents: bytes | None
) -> AppendResult:
    first_text, count_text, generation, sums = done.split(b" ")
    first, count = int(first_text), int(count_text)
    stored = [sums[at : at + CHECKSUM_BYTES] for at in range(0, len(sums), CHECKSUM_BYTES)]
    rules.refuse_different_content(op, first, stored)
    shown = build_view(extents_of(extents or b""), int(tail or 0))
    return AppendResult(
        first,
        count,
        rules.build_version(life.decode(), first + count, int(generation)),
        replayed=True,
        visible=rules.is_visible(shown, int(end), first, count),
    )


def meta_text(
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
def read_meta(meta: bytes) -> Meta:
    """What stands beside an envelope; most of what does is the same few bytes."""
    return Meta(meta)


class Stamp(NamedTuple):
    """When an entry was written, until when it lives, in which generation of the view."""

    written_at_ms: int = 0
    deadline_ms: int | None = None
    generation: int = 0
    # The checksum that binds the entry to its place (see `core.checksums`).
    checksum: int = 0


def stamp_text(row: LogRow, salt: int) -> str:
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


def log_row_of(
    position: bytes, stamp: bytes, meta: bytes, key: bytes, envelope: bytes, *, salt: int
) -> LogRow:
    """An entry with all that stands beside it."""
    beside = Meta(meta)
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
