"""An append in PostgreSQL's words: one statement where nothing has to be decided, else a look."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from indelible.backends.postgres.sessions import (
    OF_SESSION,
    Context,
    SessionRow,
    damaged,
    ensure_active,
    locked,
    update_session,
)
from indelible.backends.postgres.statements import Do, Row, Sql
from indelible.backends.postgres.vectors import vector_of
from indelible.core import rules
from indelible.core.checksums import compute_entry_checksum, parse_content_checksum
from indelible.core.codec import CHECKSUM_BYTES, parse_checksum
from indelible.core.operations import Append, AppendResult, Draft, LogRow
from indelible.core.plan import Plan
from indelible.model import Kind, Status

KIND_NUMBER: Final = {
    Kind.MESSAGE: 1,
    Kind.TOOL_CALL: 2,
    Kind.TOOL_RESULT: 3,
    Kind.SUMMARY: 4,
}

ENTRY_COLUMNS: Final = """
    session, position, written_at, deadline, generation, life, batch, kind, keep, key, opens,
    answers, payload, embedder, vector, checksum"""
# Rows as one array for each column: one statement for any number of them.
INSERT: Final = f"""
    INSERT INTO indelible.entry ({ENTRY_COLUMNS})
    SELECT $1, position, written_at, deadline, generation, $2, batch, kind, keep, key, opens,
        answers, payload, embedder, vector::real[], checksum
    FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::integer[],
        $8::smallint[], $9::boolean[], $10::bytea[], $11::text[], $12::text[], $13::bytea[],
        $14::bytea[], $15::text[], $16::bigint[])
        AS row (position, written_at, deadline, generation, batch, kind, keep, key, opens, answers,
            payload, embedder, vector, checksum)"""
_EARLIER: Final = (
    """
    SELECT part.position, part.batch, part.generation,
        (SELECT array_agg(substr(payload, 1, $4::integer) ORDER BY position)
            FROM indelible.entry AS all_of_it
            WHERE all_of_it.session = part.session AND all_of_it.position >= part.position
                AND all_of_it.position < part.position + part.batch),
        indelible.content_at(part.checksum, part.position, part.written_at, part.deadline,
            part.generation, part.batch, $5::bigint)
    FROM indelible.entry AS part"""
    + OF_SESSION
    + " AND part.key = $3"
)
_KEPT: Final = (
    """
    SELECT part.position, part.entries, part.generation, part.checksums,
        part.checksum = indelible.kept_key_checksum(part.session, part.life, part.position,
            part.generation, part.entries, part.key, part.checksums)
    FROM indelible.kept_key AS part"""
    + OF_SESSION
    + " AND part.key = $3"
)
# The checksum stands at the front of an envelope.
_HEAD_BYTES: Final = 64


def columns(drafts: Sequence[Draft]) -> tuple[list[Any], ...]:
    """Kinds, what must stay, links and envelopes, as a column each."""
    return (
        [KIND_NUMBER[draft.kind] for draft in drafts],
        [draft.keep for draft in drafts],
        [encode_links(draft.opens) for draft in drafts],
        [encode_links(draft.answers) for draft in drafts],
        [draft.envelope for draft in drafts],
    )


def vector_columns(entries: Sequence[Draft] | Sequence[LogRow]) -> tuple[list[Any], list[Any]]:
    """Embedders and vectors, as a column each."""
    both = [vector_of(entry.kind, entry.envelope) for entry in entries]
    return [embedder for embedder, _ in both], [vector for _, vector in both]


def build_result(op: Append, version: str) -> AppendResult:
    """What the function's answer means."""
    end = int(version.split(".")[2])
    count = len(op.drafts)
    return AppendResult(end - count, count, version)


def append(context: Context, op: Append) -> Plan[AppendResult]:
    """Put a batch at the end of the log, after a look at what stands in the way."""
    named = context.named(op.session)
    key, salt = op.key.encode(), context.salt(op.session)
    place, (kept, earlier) = yield from locked(
        context,
        op.session,
        Sql(_KEPT, (*named, key)),
        Sql(_EARLIER, (*named, key, _HEAD_BYTES, salt)),
    )
    standing, status = place.standing, place.status
    if status is Status.ACTIVE and (kept or earlier):
        # The lock of the row is a write: its commit waits for what the answer speaks of.
        return _replayed(place, op, *_known(op.session, kept, earlier))
    version = rules.compute_version(standing, status)
    rules.refuse_if_moved(op.session, op.expected, version)
    count = len(op.drafts)
    rules.refuse_if_full(op.session, standing.end if standing else 0, count)
    place = yield from ensure_active(context, place, op.session, ttl_s=op.ttl_s)
    standing = place.standing
    assert standing is not None
    deadline = rules.compute_deadline_ms(place.now_ms, op.ttl_s)
    end = standing.end + count
    batches = [count] + [0] * (count - 1)
    yield Do(update_session(log_end="$3", deadline="$4"), (*named, end, deadline))
    yield Do(
        INSERT,
        (
            place.number,
            place.life,
            list(range(standing.end, end)),
            [place.now_ms] * count,
            [deadline] * count,
            [standing.generation] * count,
            batches,
            *columns(op.drafts)[:2],
            [key] + [None] * (count - 1),
            *columns(op.drafts)[2:],
            *vector_columns(op.drafts),
            [
                compute_entry_checksum(
                    salt,
                    draft.envelope,
                    position=position,
                    written_at_ms=place.now_ms,
                    deadline_ms=deadline,
                    generation=standing.generation,
                    batch=batch,
                )
                for position, batch, draft in zip(
                    range(standing.end, end), batches, op.drafts, strict=True
                )
            ],
        ),
    )
    version = rules.build_version(standing.life, end, standing.generation)
    return AppendResult(standing.end, count, version)


def _known(session: str, kept: list[Row], earlier: list[Row]) -> tuple[int, int, int, list[bytes]]:
    """Position, entries, generation and checksums of the append that used the key first."""
    if kept:
        first, count, generation, joined, is_intact = kept[0]
        if not is_intact:
            raise damaged(session, f"a key of position {first} in indelible.kept_key")
        size = CHECKSUM_BYTES
        return (
            first,
            count,
            generation,
            [joined[at : at + size] for at in range(0, len(joined), size)],
        )
    first, count, generation, heads, content = earlier[0]
    if not heads or content != parse_content_checksum(heads[0]):
        raise damaged(session, f"entry {first} in indelible.entry")
    return first, count, generation, [parse_checksum(start) for start in heads]


def _replayed(
    place: SessionRow, op: Append, first: int, count: int, generation: int, stored: list[bytes]
) -> AppendResult:
    """The first receipt once more; other content under the key is a conflict."""
    standing = place.standing
    assert standing is not None
    rules.refuse_different_content(op, first, stored)
    return AppendResult(
        first,
        count,
        rules.build_version(standing.life, first + count, generation),
        replayed=True,
        visible=rules.is_visible(place.view, standing.end, first, count),
    )


def encode_links(call_ids: tuple[str, ...]) -> str | None:
    """Call ids as a row keeps them."""
    return json.dumps(call_ids) if call_ids else None


def decode_links(text: str | None) -> tuple[str, ...]:
    """Call ids as they were handed in; a `ValueError` if the row does not hold any such."""
    if text is None:
        return ()
    try:
        call_ids = json.loads(text)
    except RecursionError as error:
        raise ValueError(text) from error
    if not isinstance(call_ids, list) or not all(isinstance(name, str) for name in call_ids):
        raise ValueError(text)
    return tuple(call_ids)
