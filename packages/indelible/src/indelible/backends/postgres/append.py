"""Appends: the guarded write of one or more, and what happens when the guard does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

from indelible.backends.postgres.arrays import BoolArray, BytesArray, IntArray, TextArray
from indelible.backends.postgres.entries import EntryColumns
from indelible.backends.postgres.sessions import (
    OF_SESSION,
    PostgresSessionRow,
    build_damage_error,
    ensure_active,
    lock_session,
)
from indelible.backends.postgres.statements import (
    LOCK_WAIT_S,
    Call,
    PostgresContext,
    Row,
    Sql,
    to_milliseconds,
)
from indelible.core import rules
from indelible.core.batcher import Pending
from indelible.core.checksums import compute_entry_checksum, parse_content_checksum
from indelible.core.codec import CHECKSUM_BYTES, parse_checksum
from indelible.core.operations import Append, AppendResult
from indelible.core.plan import Plan, perform
from indelible.errors import BusyError
from indelible.model import Status

R = TypeVar("R")

# See the migration that creates the function.
_APPEND: Final = f"SELECT indelible.append({', '.join(f'${nth}' for nth in range(1, 19))})"
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
# An envelope begins with its checksum.
_HEAD_BYTES: Final = 64


def sort_appends(batch: Sequence[Pending[Append, R]]) -> list[Pending[Append, R]]:
    """The order in which a group is sent: sessions by name, the appends of a session as they came.

    All groups lock rows in this order, so that two never wait for each other in a circle.
    """
    return sorted(batch, key=lambda pending: pending.request.session.encode())


def build_call(
    context: PostgresContext, appends: Sequence[Append], *, wait_s_max: float = LOCK_WAIT_S
) -> Call:
    """The guarded write of sorted appends."""
    names, keys, fresh, expected = BytesArray(), BytesArray(), BoolArray(), TextArray()
    ttls, firsts, counts = IntArray(), IntArray(), IntArray()
    entries = EntryColumns()
    session, name, salt = None, b"", 0
    for op in appends:
        if op.session != session:
            session, name, salt = op.session, op.session.encode(), context.salt(op.session)
        names.append(name)
        keys.append(op.key.encode())
        fresh.append(op.fresh)
        expected.append(_format_expected(op.expected))
        ttls.append(to_milliseconds(op.ttl_s))
        firsts.append(len(entries.kinds) + 1)
        counts.append(len(op.drafts))
        for kind, envelope, keep, opens, answers in op.drafts:
            checksum = compute_entry_checksum(salt, envelope)
            entries.add(kind, keep, opens, answers, envelope, checksum)
    params = (
        *(context.namespace, context.now_ms()),
        *(names, keys, fresh, expected.or_none(), ttls.or_none(), firsts, counts),
        *entries.build_params(),
    )
    return Call(_APPEND, params, wait_s_max)


def _format_expected(version: str | None) -> str | None:
    """An expected version; text that the server may not be able to read is no session's version."""
    return version if version is None or (version.isascii() and version.isprintable()) else ""


def build_result(op: Append, version: str) -> AppendResult:
    """The result of an append that was written."""
    _, end, _ = rules.parse_version(version)
    count = len(op.drafts)
    return AppendResult(end - count, count, version)


def decide_append(context: PostgresContext, op: Append) -> Plan[AppendResult]:
    """Decide about an append whose guard did not hold, and write it if the rules allow that."""
    named = context.named(op.session)
    key, salt = op.key.encode(), context.salt(op.session)
    current, (kept, earlier) = yield from lock_session(
        context,
        op.session,
        Sql(_KEPT, (*named, key)),
        Sql(_EARLIER, (*named, key, _HEAD_BYTES, salt)),
    )
    status = current.status
    if status is Status.ACTIVE and (kept or earlier):
        # Locking the session's row is a write; its commit waits for the earlier append.
        return _replay(current, op, *_read_earlier(op.session, kept, earlier))
    rules.refuse_if_moved(op.session, op.expected, rules.compute_version(current.state, status))
    end = current.state.end if current.state else 0
    rules.refuse_if_full(op.session, end, len(op.drafts))
    if current.state is not None:
        current = yield from ensure_active(context, current, op.session, ttl_s=op.ttl_s)
    # `expected` was compared above, perhaps with the version of the life before.
    ((version,),) = yield from perform(build_call(context, [replace(op, expected=None)]))
    if version is None:
        raise BusyError(f"another writer began session {op.session!r} at this very moment")
    return build_result(op, version)


def _read_earlier(
    session: str, kept: list[Row], earlier: list[Row]
) -> tuple[int, int, int, list[bytes]]:
    """Position, number of entries, generation and checksums of the first append with the key."""
    if kept:
        first, count, generation, joined, is_intact = kept[0]
        if not is_intact:
            raise build_damage_error(session, f"a key of position {first} in indelible.kept_key")
        size = CHECKSUM_BYTES
        return (
            first,
            count,
            generation,
            [joined[at : at + size] for at in range(0, len(joined), size)],
        )
    first, count, generation, heads, content = earlier[0]
    if not heads or content != parse_content_checksum(heads[0]):
        raise build_damage_error(session, f"entry {first} in indelible.entry")
    return first, count, generation, [parse_checksum(start) for start in heads]


def _replay(
    current: PostgresSessionRow,
    op: Append,
    first: int,
    count: int,
    generation: int,
    stored: list[bytes],
) -> AppendResult:
    """The first receipt of a key; different content under it is a conflict."""
    state = current.state
    assert state is not None
    rules.refuse_different_content(op, first, stored)
    return AppendResult(
        first,
        count,
        rules.build_version(state.life, first + count, generation),
        replayed=True,
        visible=rules.is_visible(current.view, state.end, first, count),
    )
