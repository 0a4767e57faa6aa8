"""Sessions in the words of scripts: what one is, metadata, and lists of them by SCAN."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

from indelible.backends.redis.calls import Ask, Context, CountServers, ttl_ms
from indelible.backends.redis.checksums import head_is_sound
from indelible.backends.redis.errors import Next, code_of, damaged, next_of, refused
from indelible.backends.redis.keys import (
    HEAD_FIELDS,
    STATE_FIELDS,
    head_key_of,
    heads_pattern,
    is_head,
    parts_pattern,
    session_of,
)
from indelible.core import rules
from indelible.core.clock import read_clock_ms
from indelible.core.operations import Head, ListSessions, ReadHead, SessionPage, SetMetadata
from indelible.core.plan import Plan, perform
from indelible.core.rules import SessionState
from indelible.errors import FormatError, UsageError
from indelible.model import Status
from indelible.view import Extents, View, build_view

# Keys that SCAN looks at in one call: a server answers nobody else meanwhile.
SCAN_KEYS = 1000
# A cluster has at most as many servers as slots.
_SERVERS_MAX = 16384


def extents_text(extents: Extents) -> str:
    """Extents as scripts read them."""
    return ";".join(f"{start},{stop}" for start, stop in extents)


def extents_of(text: bytes) -> Extents:
    """The extents that a script wrote."""
    if not text:
        return ()
    try:
        pairs = [piece.split(b",") for piece in text.split(b";")]
        return tuple((int(start), int(stop)) for start, stop in pairs)
    except ValueError:
        raise FormatError(f"a stored view is damaged: {text[:40]!r}", data=text) from None


def optional(number: bytes | None) -> int | None:
    """A number that may be missing, written as nothing."""
    return int(number) if number else None


def head_of(session: str, reply: Sequence[Any], snapshots: int = 0) -> Head:
    """A session as a script described it."""
    now, life, born, end, generation, deadline, staged, *parts = reply
    tail, extents, created, metadata, forked, vacuums = parts
    standing = None
    if life is not None:
        standing = SessionState(
            life.decode(), int(born), int(end), int(generation), optional(deadline), staged == b"1"
        )
    status = rules.compute_status(standing, int(now))
    if status is Status.ACTIVE and (tail is None or vacuums is None):
        raise damaged(session, "its view is missing")
    return rules.build_head(
        standing,
        view=_view(extents, int(tail)) if tail is not None else View(),
        now_ms=int(now),
        created_at_ms=optional(created),
        metadata=metadata if metadata is not None else b"{}",
        snapshots=snapshots,
        forked_from=forked.decode() if forked else None,
        vacuums=int(vacuums or 0),
    )


def _view(extents: bytes, tail: int) -> View:
    # Most sessions show all that they hold.
    return build_view(extents_of(extents), tail) if extents else View((), tail)


def head(context: Context, op: ReadHead) -> Plan[Head]:
    """Look at a session without its entries."""
    count = b"1" if op.count_snapshots else b"0"
    described, snapshots = yield from perform(context.read("head", op.session, count))
    return head_of(op.session, described, snapshots)


def set_metadata(context: Context, op: SetMetadata) -> Plan[Head]:
    """Replace a session's metadata."""
    answer, *rest = yield from perform(
        context.write(
            "set_metadata",
            op.session,
            op.metadata,
            op.expected or "",
            ttl_ms(op.ttl_s),
            again=False,
        )
    )
    if answer == b"moved":
        rules.refuse_if_moved(op.session, op.expected, rest[0].decode())
    described, snapshots = rest
    return replace(head_of(op.session, described), snapshots=snapshots)


class Bookmark(NamedTuple):
    """Where a list goes on: the server, its run, SCAN's cursor, and names it gave already."""

    server: int = 0
    run: str = ""
    cursor: int = 0
    given: tuple[str, ...] = ()

    def text(self) -> str:
        """The bookmark as a cursor that anybody may keep."""
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode("ascii")


def bookmark_of(text: str | None) -> Bookmark:
    """The bookmark that a cursor stands for."""
    if text is None:
        return Bookmark()
    # A cursor only says where to go on. What is listed is decided by the namespace of the store, so
    # nothing in it must be trusted; it must only be of the right form.
    with suppress(ValueError, TypeError, RecursionError):
        server, run, cursor, given = json.loads(base64.urlsafe_b64decode(text))
        if (
            type(server) is int
            and 0 <= server < _SERVERS_MAX
            and type(run) is str
            and type(cursor) is int
            and 0 <= cursor < 2**64
            and type(given) is list
            and all(type(mark) is str for mark in given)
        ):
            return Bookmark(server, run, cursor, tuple(given))
    raise UsageError(
        f"not a cursor of this store: {text!r}. Start again without a cursor.", value=text
    )


def mark_of(name: str) -> str:
    """A name as a bookmark keeps it: short, since one call may find several."""
    return blake2b(name.encode(), digest_size=4).hexdigest()


# A bookmark must fit a cursor: so few keys leave few names over.
SCAN_KEYS_FEW = 10


def list_sessions(context: Context, op: ListSessions) -> Plan[SessionPage]:
    """Name a page of sessions, by SCAN on one server after the other."""
    names: dict[str, None] = {}
    at = bookmark_of(op.resume)
    servers = yield from perform(CountServers())
    keys = SCAN_KEYS
    while at.server < servers:
        room = op.limit - len(names)
        run, cursor, found = yield from _scanned(
            context, op, at, SCAN_KEYS_FEW if at.given else keys
        )
        if at.run and run != at.run:
            # Another process serves these keys now, in an order of its own: from its beginning.
            at = Bookmark(at.server)
            continue
        fresh = [name for name in found if mark_of(name) not in at.given]
        new = [name for name in fresh if name not in names]
        if len(new) > room and keys > SCAN_KEYS_FEW and not at.given:
            keys = SCAN_KEYS_FEW
            continue
        if len(new) > room:
            left = set(new[room:])
            given = (*at.given, *(mark_of(name) for name in fresh if name not in left))
            resume = Bookmark(at.server, run, at.cursor, given)
            return SessionPage((*names, *new[:room]), resume.text())
        names.update(dict.fromkeys(new))
        at = Bookmark(at.server, run, cursor) if cursor else Bookmark(at.server + 1)
        if len(names) == op.limit and at.server < servers:
            return SessionPage(tuple(names), at.text())
    return SessionPage(tuple(names), None)


def _scanned(
    context: Context, op: ListSessions, at: Bookmark, keys: int
) -> Plan[tuple[str, int, list[str]]]:
    """One call of SCAN: the server's run, where it goes on, and the names that count."""
    matching = parts_pattern if op.damaged else heads_pattern
    pattern = matching(context.namespace, op.prefix)
    scan = ("SCAN", at.cursor, "MATCH", pattern, "COUNT", keys)
    info, scanned = yield from perform(Ask(at.server, (("INFO", "server"), scan)))
    cursor, found = answered(context, scanned)
    named = {key: session for key in found if (session := session_of(key)) is not None}
    looks = tuple(("HMGET", head_key_of(key), *HEAD_FIELDS) for key in named)
    time, *heads = yield from perform(Ask(at.server, (("TIME",), *looks)))
    seconds, micros = answered(context, time)
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    if context.clock is not None:
        now_ms = read_clock_ms(context.clock)
    names = [
        session
        for (key, session), head in zip(named.items(), heads, strict=True)
        if _counts(context, op, key, head, now_ms)
    ]
    return run_of(info), int(cursor), names


def _counts(context: Context, op: ListSessions, key: bytes, reply: Any, now_ms: int) -> bool:
    """Whether a session is to be named, by one of its keys and what its head says."""
    if isinstance(reply, Exception) and next_of(reply) in (Next.MOVE, Next.ASK):
        # It was here a moment ago, and is on its way to another server: it is there.
        return is_head(key)
    if isinstance(reply, Exception) and code_of(reply) == "WRONGTYPE":
        # No head at all: whoever looks at the session is told.
        return is_head(key)
    head = answered(context, reply)
    if not is_head(key):
        # What is left of a session that lost its head.
        return head[0] is None
    if head[0] is None:
        return False
    if not context.simulated and not head_is_sound(key, head):
        # Nobody knows whether it is over: whoever looks at it is told that it is damaged.
        return True
    state, _, deadline, _ = head
    staged = state.split(b" ")[STATE_FIELDS.index("staged")] == b"1"
    return op.dead or (not staged and (not deadline or now_ms < int(deadline)))


def answered(context: Context, reply: Any) -> Any:
    """A reply that must not be an error."""
    if isinstance(reply, Exception):
        raise refused(reply, shown=context.shown)
    return reply


def run_of(info: Any) -> str:
    """Which run of a server answered; empty where it does not say."""
    if not isinstance(info, bytes):
        return ""
    for line in info.splitlines():
        if line.startswith(b"run_id:"):
            return line.partition(b":")[2].decode("ascii", "replace")[:8]
    return ""
