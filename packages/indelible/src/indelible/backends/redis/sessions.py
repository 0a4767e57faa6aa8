"""Sessions as scripts describe them: heads, metadata, and lists of sessions by SCAN."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b, sha1
from typing import Any, NamedTuple

from indelible.backends.redis.calls import (
    HANDLERS,
    Argument,
    Command,
    RedisContext,
    encode_ttl_ms,
)
from indelible.backends.redis.errors import (
    Next,
    build_damaged_error,
    build_refused_error,
    choose_next,
    parse_code,
)
from indelible.backends.redis.keys import (
    HEAD,
    HEAD_FIELDS,
    PARTS,
    SNAPSHOTS,
    STATE_FIELDS,
    build_heads_pattern,
    build_parts_pattern,
    is_head,
    parse_session,
    replace_part,
)
from indelible.backends.redis.requests import ask_server, call_script, count_servers
from indelible.core import rules
from indelible.core.clock import read_clock_ms
from indelible.core.operations import Head, ListSessions, ReadHead, SessionPage, SetMetadata
from indelible.core.plan import Plan
from indelible.core.rules import SessionState
from indelible.errors import FormatError, UsageError
from indelible.model import Status
from indelible.view import Extents, View, build_view

# Keys that SCAN looks at in one call: a server answers no other client meanwhile.
SCAN_KEYS = 1000
# Digits of the checksum that values begin with.
SEAL_CHARS = 12
# A cluster has at most as many servers as slots.
_SERVERS_MAX = 16384


def format_extents(extents: Extents) -> str:
    """Format extents as scripts read them."""
    return ";".join(f"{start},{stop}" for start, stop in extents)


def parse_extents(text: bytes) -> Extents:
    """Parse the extents that a script wrote."""
    if not text:
        return ()
    try:
        pairs = [piece.split(b",") for piece in text.split(b";")]
        return tuple((int(start), int(stop)) for start, stop in pairs)
    except ValueError:
        raise FormatError(f"a stored view is damaged: {text[:40]!r}", data=text) from None


def parse_optional(number: bytes | None) -> int | None:
    """Parse a number that is empty if there is none."""
    return int(number) if number else None


def parse_head(session: str, reply: Sequence[Any], snapshots: int = 0) -> Head:
    """Parse a session as a script described it."""
    now, life, born, end, generation, deadline, staged = reply[:7]
    tail, extents, created, metadata, forked, vacuums = reply[7:] or (None,) * 6
    state = None
    if life is not None:
        state = SessionState(
            life.decode(),
            int(born),
            int(end),
            int(generation),
            parse_optional(deadline),
            staged == b"1",
        )
    status = rules.compute_status(state, int(now))
    if status is Status.ACTIVE and (tail is None or vacuums is None):
        raise build_damaged_error(session, "its view is missing")
    return rules.build_head(
        state,
        view=_build_view(extents or b"", int(tail)) if tail is not None else View(),
        now_ms=int(now),
        created_at_ms=parse_optional(created),
        metadata=metadata if metadata is not None else b"{}",
        snapshots=snapshots,
        forked_from=forked.decode() if forked else None,
        vacuums=int(vacuums or 0),
    )


def _build_view(extents: bytes, tail: int) -> View:
    # Most sessions show all that they hold.
    return build_view(parse_extents(extents), tail) if extents else View((), tail)


def parse_life(reply: Sequence[Any]) -> str | None:
    """Return the life that a script described, active or over; None if there is none."""
    life: bytes | None = reply[1]
    return None if life is None else life.decode()


def read_parts(
    context: RedisContext, session: str, *commands: Command, checks: str = "all"
) -> Plan[tuple[Head, Seal, list[Any]]]:
    """Read a session, and what commands that only read say of its parts, in one state.

    A command is its name, the part that it reads, and further arguments. A session that has no
    head has no answers.
    """
    words: list[Argument] = [checks]
    for name, part, *rest in commands:
        words += (2 + len(rest), name, PARTS.index(str(part)) + 1, *rest)
    described, *answers = yield from call_script(
        context, context.read("read_parts", session, *words)
    )
    seal = Seal(context, session, described[1] or b"")
    return parse_head(session, described), seal, answers


class Seal:
    """Checks the values of a session's hashes: they begin with a checksum, as scripts seal them."""

    def __init__(self, context: RedisContext, session: str, life: bytes) -> None:
        self._start = b"%b\n%b\n" % (context.keys(session).names[0], life)
        self._session = session
        # A simulated server keeps no checksums.
        self._ignored = context.simulated

    def is_sound(self, name: bytes, value: bytes) -> bool:
        """Whether a value matches its checksum."""
        checksum, text = value[:SEAL_CHARS], value[SEAL_CHARS + 1 :]
        return self._ignored or compute_digest(self._start + name + b"\n" + text) == checksum

    def open(self, name: bytes, value: bytes, what: str) -> bytes:
        """Return a value without its checksum, or raise if it does not match."""
        if not self.is_sound(name, value):
            raise build_damaged_error(self._session, f"{what} does not match its checksum")
        return value[SEAL_CHARS + 1 :]


def compute_digest(text: bytes) -> bytes:
    """Compute 48 bits of SHA-1, as prelude.lua does; it is no signature."""
    return sha1(text, usedforsecurity=False).hexdigest()[:SEAL_CHARS].encode()


@HANDLERS.handles(ReadHead)
def read_head(context: RedisContext, op: ReadHead) -> Plan[Head]:
    """Read a session without its entries."""
    commands = (("HLEN", SNAPSHOTS),) if op.count_snapshots else ()
    head, _, counted = yield from read_parts(context, op.session, *commands)
    if counted and head.status is Status.ACTIVE:
        head.snapshots = counted[0]
    return head


@HANDLERS.handles(SetMetadata)
def set_metadata(context: RedisContext, op: SetMetadata) -> Plan[Head]:
    """Replace a session's metadata."""
    answer, *rest = yield from call_script(
        context,
        context.write(
            "set_metadata",
            op.session,
            op.metadata,
            op.expected or "",
            encode_ttl_ms(op.ttl_s),
            repeatable=False,
        ),
    )
    if answer == b"moved":
        rules.refuse_if_moved(op.session, op.expected, rest[0].decode())
    described, snapshots = rest
    return replace(parse_head(op.session, described), snapshots=snapshots)


class Bookmark(NamedTuple):
    """Where a list continues: the server, its run, SCAN's cursor, and hashes of listed names."""

    server: int = 0
    run: str = ""
    cursor: int = 0
    given: tuple[str, ...] = ()

    def format(self) -> str:
        """Return the bookmark as a cursor."""
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode("ascii")


def parse_bookmark(text: str | None) -> Bookmark:
    """Parse a cursor."""
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


def hash_name(name: str) -> str:
    """Hash a name for a bookmark: short, since one call may find several."""
    return blake2b(name.encode(), digest_size=4).hexdigest()


# A bookmark must fit a cursor: so few keys leave few names over.
SCAN_KEYS_FEW = 10


@HANDLERS.handles(ListSessions)
def list_sessions(context: RedisContext, op: ListSessions) -> Plan[SessionPage]:
    """List a page of sessions, by SCAN on one server after the other."""
    names: dict[str, None] = {}
    at = parse_bookmark(op.resume)
    servers = yield from count_servers(context)
    keys = SCAN_KEYS
    while at.server < servers:
        room = op.limit - len(names)
        run, cursor, found = yield from _scan(context, op, at, SCAN_KEYS_FEW if at.given else keys)
        if at.run and run != at.run:
            # Another process serves these keys now, in an order of its own: from its beginning.
            at = Bookmark(at.server)
            continue
        fresh = [name for name in found if hash_name(name) not in at.given]
        new = [name for name in fresh if name not in names]
        if len(new) > room and keys > SCAN_KEYS_FEW and not at.given:
            keys = SCAN_KEYS_FEW
            continue
        if len(new) > room:
            left = set(new[room:])
            given = (*at.given, *(hash_name(name) for name in fresh if name not in left))
            resume = Bookmark(at.server, run, at.cursor, given)
            return SessionPage((*names, *new[:room]), resume.format())
        names.update(dict.fromkeys(new))
        at = Bookmark(at.server, run, cursor) if cursor else Bookmark(at.server + 1)
        if len(names) == op.limit and at.server < servers:
            return SessionPage(tuple(names), at.format())
    return SessionPage(tuple(names), None)


def _scan(
    context: RedisContext, op: ListSessions, at: Bookmark, keys: int
) -> Plan[tuple[str, int, list[str]]]:
    """Call SCAN once; returns the server's run, the next cursor, and the names to list."""
    matching = build_parts_pattern if op.damaged else build_heads_pattern
    pattern = matching(context.namespace, op.prefix)
    scan = ("SCAN", at.cursor, "MATCH", pattern, "COUNT", keys)
    info, scanned = yield from ask_server(context, at.server, (("INFO", "server"), scan))
    cursor, found = require(context, scanned)
    named = {key: session for key in found if (session := parse_session(key)) is not None}
    looks = tuple(("HMGET", replace_part(key, HEAD), *HEAD_FIELDS) for key in named)
    time, *heads = yield from ask_server(context, at.server, (("TIME",), *looks))
    seconds, micros = require(context, time)
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    if context.clock is not None:
        now_ms = read_clock_ms(context.clock)
    names = [
        session
        for (key, session), head in zip(named.items(), heads, strict=True)
        if _is_listed(context, op, key, head, now_ms)
    ]
    return parse_run(info), int(cursor), names


def _is_listed(
    context: RedisContext, op: ListSessions, key: bytes, reply: Any, now_ms: int
) -> bool:
    """Whether a session is to be listed, by one of its keys and what its head says."""
    if isinstance(reply, Exception) and choose_next(reply) in (Next.MOVE, Next.ASK):
        # It was here a moment ago, and is on its way to another server: it is there.
        return is_head(key)
    if isinstance(reply, Exception) and parse_code(reply) == "WRONGTYPE":
        # It is no head: operations on the session say so.
        return is_head(key)
    head = require(context, reply)
    if not is_head(key):
        # What is left of a session that lost its head.
        return head[0] is None
    if head[0] is None:
        return False
    if not context.simulated and not is_head_sound(key, head):
        # Whether it is over is unknown: operations on the session say that it is damaged.
        return True
    state, _, deadline, _ = head
    staged = state.split(b" ")[STATE_FIELDS.index("staged")] == b"1"
    return op.dead or (not staged and (not deadline or now_ms < int(deadline)))


def is_head_sound(name: bytes, head: Sequence[bytes | None]) -> bool:
    """Whether a head, its fields in the order of `HEAD_FIELDS`, matches its checksum."""
    state, end, deadline, summed = head
    if state is None or end is None or deadline is None or summed is None:
        return False
    digest = compute_digest(name + b"\n" + state)
    try:
        return int(digest, 16) + int(end) + int(deadline or 0) == int(summed)
    except ValueError:
        return False


def require(context: RedisContext, reply: Any) -> Any:
    """Return a reply, or raise if it is an error."""
    if isinstance(reply, Exception):
        raise build_refused_error(reply, shown=context.shown)
    return reply


def parse_run(info: Any) -> str:
    """Return the id of the run of a server; empty if it does not say."""
    if not isinstance(info, bytes):
        return ""
    for line in info.splitlines():
        if line.startswith(b"run_id:"):
            return line.partition(b":")[2].decode("ascii", "replace")[:8]
    return ""
