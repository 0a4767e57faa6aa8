"""Appends: one guarded write, which takes one to n of them."""

from __future__ import annotations

from typing import Any

from indelible.backends.redis.calls import (
    HANDLERS,
    AppendCall,
    Argument,
    RedisContext,
    encode_ttl_ms,
)
from indelible.backends.redis.log_rows import format_meta
from indelible.backends.redis.requests import call_script
from indelible.backends.redis.scripts import load_script
from indelible.backends.redis.sessions import parse_head, parse_life
from indelible.core import rules
from indelible.core.checksums import compute_entry_checksum
from indelible.core.codec import CHECKSUM_BYTES
from indelible.core.deadline import Deadline
from indelible.core.limits import VIEW_ATTEMPTS_MAX
from indelible.core.operations import Append, AppendResult, Head
from indelible.core.plan import Plan
from indelible.errors import ConflictError
from indelible.model import Status

# What an append says of the life that it follows if there was none.
_NO_LIFE = "-"


@HANDLERS.handles(Append)
def append(context: RedisContext, op: Append) -> Plan[AppendResult]:
    """Send the guarded write; if its guard does not hold, load the state and let rules decide."""
    deadline = Deadline(context.timeout_s)
    lost: BaseException | None = None
    expected, over = op.expected or "", ""
    for _ in range(VIEW_ATTEMPTS_MAX):
        call = build_append_call(context, op, expected, over, fresh=op.fresh and lost is None)
        call.deadline, call.lost = deadline, lost
        version: Any = yield from call_script(context, call)
        lost = call.lost
        if version:
            text: str = version.decode()
            count = len(op.drafts)
            _, end, _ = rules.parse_version(text)
            return AppendResult(end - count, count, text, resent=lost is not None)
        fresh = b"1" if op.fresh and lost is None else b"0"
        looked = context.write("find_append", op.session, op.key, fresh, context.touch)
        looked.deadline, looked.lost = deadline, lost
        described, used = yield from call_script(context, looked)
        head = parse_head(op.session, described)
        if used:
            return _replay(op, head, used)._replace(resent=lost is not None)
        rules.refuse_if_moved(op.session, op.expected, head.version)
        rules.refuse_if_full(op.session, head.end, len(op.drafts))
        # The version was compared: what is left is that nobody else begins the next life.
        if head.status is Status.ACTIVE:
            expected, over = op.expected or "", ""
        else:
            expected, over = "", parse_life(described) or _NO_LIFE
    raise ConflictError(
        f"others kept changing session {op.session!r}; nothing was written. Try again.",
        session=op.session,
        reason="version",
    )


def build_append_call(
    context: RedisContext, op: Append, expected: str, over: str, *, fresh: bool
) -> AppendCall:
    """Build the guarded write. `over` names the life that it follows, if it may begin one."""
    keys = context.keys(op.session)
    batch = len(op.drafts)
    arguments: list[Argument] = [
        encode_ttl_ms(op.ttl_s),
        expected,
        op.key,
        b"1" if fresh else b"0",
        over,
        batch,
    ]
    for kind, envelope, keep, opens, answers in op.drafts:
        arguments += (
            format_meta(kind, keep, batch, opens, answers),
            envelope,
            compute_entry_checksum(keys.salt, envelope, batch=batch),
        )
        batch = 0
    return AppendCall(load_script("append"), (keys,), context.time(), tuple(arguments), True)


def _replay(op: Append, head: Head, used: bytes) -> AppendResult:
    """The result of the first append with this key."""
    first_text, count_text, generation, sums = used.split(b" ")
    first, count = int(first_text), int(count_text)
    stored = [sums[at : at + CHECKSUM_BYTES] for at in range(0, len(sums), CHECKSUM_BYTES)]
    rules.refuse_different_content(op, first, stored)
    return AppendResult(
        first,
        count,
        rules.build_version(head.life, first + count, int(generation)),
        replayed=True,
        visible=rules.is_visible(head.view, head.end, first, count),
    )
