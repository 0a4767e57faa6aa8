"""Appends: one guarded write, which takes one to n of them."""

from __future__ import annotations

from typing import Any

from indelible.backends.redis.log_rows import format_rest
from indelible.backends.redis.requests import (
    HANDLERS,
    Argument,
    RedisContext,
    ScriptCall,
    encode_ttl_ms,
)
from indelible.backends.redis.sessions import parse_head
from indelible.core import rules
from indelible.core.checksums import compute_entry_checksum, split_checksums
from indelible.core.codec import ITEM_KINDS
from indelible.core.limits import VIEW_ATTEMPTS_MAX
from indelible.core.operations import Append, AppendResult, Head
from indelible.core.plan import Plan
from indelible.errors import ConflictError


@HANDLERS.handles(Append)
def append(context: RedisContext, op: Append) -> Plan[AppendResult]:
    """Send the guarded write; if its guard does not hold, rules decide by what it answers."""
    call = build_append_call(context, op)
    for _ in range(VIEW_ATTEMPTS_MAX):
        answer: Any = yield call
        resent = call.lost is not None
        if isinstance(answer, bytes):
            version, count = answer.decode(), len(op.drafts)
            _, end, _ = rules.parse_version(version)
            return AppendResult(end - count, count, version, resent=resent)
        described, used, newest = answer
        head = parse_head(op.session, described)
        if used:
            return _replay(op, head, used)._replace(resent=resent)
        rules.refuse_if_moved(op.session, op.expected, head.version)
        if op.expected_item is not None:
            rules.refuse_if_item_moved(op.session, op.expected_item, newest)
        rules.refuse_if_full(op.session, head.end, len(op.drafts))
        # Another append of the same call has this key, and is written by now.
    raise ConflictError(
        f"others kept changing session {op.session!r}; nothing was written. Try again.",
        session=op.session,
        reason="version",
    )


def build_append_call(context: RedisContext, op: Append) -> ScriptCall:
    """Build the guarded write."""
    salt = context.keys(op.session).salt
    batch, key = len(op.drafts), op.key
    item, place = op.expected_item or ("", None)
    arguments: list[Argument] = [
        encode_ttl_ms(op.ttl_s),
        op.expected or "",
        key,
        b"" if op.fresh else context.lookup,
        _encode_indexed(op),
        item,
        "" if place is None else place,
        batch,
    ]
    size = 0
    for kind, envelope, keep, opens, answers in op.drafts:
        size += len(envelope)
        arguments += (
            compute_entry_checksum(salt, envelope, batch),
            format_rest(kind, keep, batch, key, opens, answers, envelope),
        )
        batch, key = 0, ""
    call = context.change("append", op.session, *arguments)
    call.is_append, call.size = True, size
    return call


def _encode_indexed(op: Append) -> bytes:
    """Return whether an append reads or writes the index of items."""
    for draft in op.drafts:
        if draft.kind in ITEM_KINDS:
            return b"1"
    return b"0" if op.expected_item is None else b"1"


def _replay(op: Append, head: Head, used: bytes) -> AppendResult:
    """Return the result of the first append with this key."""
    first_text, count_text, generation, sums = used.split(b" ")
    first, count = int(first_text), int(count_text)
    rules.refuse_different_content(op, first, split_checksums(sums))
    return AppendResult(
        first,
        count,
        rules.build_version(head.life, first + count, int(generation)),
        replayed=True,
        visible=rules.is_visible(head.view, head.end, first, count),
    )
