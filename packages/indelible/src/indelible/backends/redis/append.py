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
from indelible.backends.redis.scripts import load_script
from indelible.backends.redis.sessions import parse_head
from indelible.core import rules
from indelible.core.checksums import compute_entry_checksum, split_checksums
from indelible.core.codec import ITEM_KINDS
from indelible.core.deadline import Deadline
from indelible.core.limits import VIEW_ATTEMPTS_MAX
from indelible.core.operations import Append, AppendResult, Head
from indelible.core.plan import Plan
from indelible.errors import ConflictError


@HANDLERS.handles(Append)
def append(context: RedisContext, op: Append) -> Plan[AppendResult]:
    """Send the guarded write; if its guard does not hold, load the state and let rules decide."""
    deadline = context.start_deadline()
    lost: BaseException | None = None
    for _ in range(VIEW_ATTEMPTS_MAX):
        fresh = op.fresh and lost is None
        call = build_append_call(context, op, deadline, fresh=fresh)
        call.lost = lost
        version: Any = yield call
        lost = call.lost
        if version:
            text: str = version.decode()
            count = len(op.drafts)
            _, end, _ = rules.parse_version(text)
            return AppendResult(end - count, count, text, resent=lost is not None)
        fresh_now = b"1" if op.fresh and lost is None else b"0"
        item = "" if op.expected_item is None else op.expected_item.item
        indexed = _encode_indexed(op)
        looked = context.write(
            "find_append", op.session, op.key, fresh_now, context.touch, indexed, item
        )
        looked.deadline, looked.lost = deadline, lost
        described, used, newest = yield looked
        head = parse_head(op.session, described)
        if used:
            return _replay(op, head, used)._replace(resent=lost is not None)
        rules.refuse_if_moved(op.session, op.expected, head.version)
        if op.expected_item is not None:
            rules.refuse_if_item_moved(op.session, op.expected_item, newest)
        rules.refuse_if_full(op.session, head.end, len(op.drafts))
    raise ConflictError(
        f"others kept changing session {op.session!r}; nothing was written. Try again.",
        session=op.session,
        reason="version",
    )


def build_append_call(
    context: RedisContext, op: Append, deadline: Deadline, *, fresh: bool
) -> ScriptCall:
    """Build the guarded write."""
    keys = context.keys(op.session)
    batch, key = len(op.drafts), op.key
    item, place = op.expected_item or ("", None)
    arguments: list[Argument] = [
        encode_ttl_ms(op.ttl_s),
        op.expected or "",
        key,
        b"1" if fresh else b"0",
        _encode_indexed(op),
        item,
        "" if place is None else place,
        batch,
    ]
    size = 0
    for kind, envelope, keep, opens, answers in op.drafts:
        size += len(envelope)
        arguments += (
            compute_entry_checksum(keys.salt, envelope, batch),
            format_rest(kind, keep, batch, key, opens, answers, envelope),
        )
        batch, key = 0, ""
    return context.audit(
        ScriptCall(
            load_script("append"),
            keys,
            context.time(),
            arguments,
            deadline,
            write=True,
            confirmed=context.confirms,
            is_append=True,
            size=size,
        )
    )


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
