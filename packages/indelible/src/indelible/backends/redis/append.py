"""Appends: the guarded write of one append. `requests.py` puts several into one call."""

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
    """Send the guarded write. If its guard does not hold, the rules decide by its answer."""
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
        # No rule refuses it: another append of the same script call had this key. Find it now.
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
    uses_index = bool(op.expected_item) or any(draft.kind in ITEM_KINDS for draft in op.drafts)
    arguments: list[Argument] = [
        encode_ttl_ms(op.ttl_s),
        op.expected or "",
        key,
        b"" if op.fresh else context.lookup,
        int(uses_index),
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


def _replay(op: Append, head: Head, used: bytes) -> AppendResult:
    """Return the result of the first append with this key."""
    # The checksum of a damaged entry may contain anything.
    first_text, count_text, generation, sums = used.split(b" ", 3)
    first, count = int(first_text), int(count_text)
    rules.refuse_different_content(op, first, split_checksums(sums))
    return AppendResult(
        first,
        count,
        rules.build_version(head.life, first + count, int(generation)),
        replayed=True,
        visible=rules.is_visible(head.view, head.end, first, count),
    )
