"""Sessions: parsing what scripts return of them, metadata, and lists of sessions by SCAN."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b, sha1
from typing import Any, NamedTuple

from indelible.backends.redis.errors import build_damaged_error
from indelible.backends.redis.keys import (
    ANY_PART,
    AUDIT,
    HEAD,
    PARTS,
    SNAPSHOTS,
    build_pattern,
    parse_session,
)
from indelible.backends.redis.requests import (
    HANDLERS,
    Argument,
    Command,
    RedisContext,
    ScriptCall,
    encode_ttl_ms,
    require,
)
from indelible.backends.redis.risks import parse_info
from indelible.core import rules, session_list
from indelible.core.operations import (
    Head,
    ListedSession,
    ListSessions,
    ReadHead,
    SessionOrder,
    SessionPage,
    SetMetadata,
)
from indelible.core.plan import Plan
from indelible.core.rows import SessionRow
from indelible.core.session_list import Place
from indelible.errors import FormatError
from indelible.model import Status
from indelible.view import Extents, View, build_view

# The parts that `read_parts` may read, in the order of the keys of a script.
_READABLE = (*PARTS, AUDIT)
# Keys that one call of SCAN looks at. Meanwhile, the server answers no other client.
SCAN_KEYS = 1000
# The command that counts the snapshots of a session.
_COUNTED: tuple[Command] = (("HLEN", SNAPSHOTS),)
# The length of the checksum at the beginning of values.
SEAL_CHARS = 12


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


def parse_row(session: str, reply: Sequence[Any]) -> SessionRow | None:
    """Parse the description of a session that a script returned, up to its view."""
    _, life, born, end, generation, deadline, staged, created, activity, *_ = reply
    if life is None:
        return None
    return SessionRow(
        name=session,
        token=life.decode(),
        born=int(born),
        end=int(end),
        generation=int(generation),
        deadline_ms=parse_optional(deadline),
        staged=staged == b"1",
        view=View(),
        created_at_ms=int(created),
        last_activity_ms=int(activity),
    )


def parse_head(session: str, reply: Sequence[Any], snapshots: int = 0) -> Head:
    """Parse the description of a session that a script returned."""
    now_ms, row = int(reply[0]), parse_row(session, reply)
    tail, extents, metadata, forked, vacuums = reply[9:] or (None,) * 5
    if rules.compute_status(row, now_ms) is Status.ACTIVE and (tail is None or vacuums is None):
        raise build_damaged_error(session, "its view is missing")
    if row is not None and tail is not None:
        row = row._replace(
            view=build_view(parse_extents(extents or b""), int(tail)),
            vacuums=int(vacuums or 0),
            forked_from=forked.decode() if forked else None,
            metadata=metadata if metadata is not None else b"{}",
        )
    return rules.build_head(row, now_ms, snapshots=snapshots)


def read_parts(
    context: RedisContext, session: str, *commands: Command, checks: str = "all"
) -> Plan[tuple[Head, Seal, list[Any]]]:
    """Read a session and the replies of commands that read its parts, in one state.

    A command consists of its name, the part that it reads, and further arguments.
    """
    call = build_read(context, session, *commands, checks=checks)
    described, *answers = yield call
    seal = Seal(context, session, described[1] or b"")
    return parse_head(session, described), seal, answers


def build_read(
    context: RedisContext, session: str, *commands: Command, checks: str = "all"
) -> ScriptCall:
    """Build the script call of `read_parts`."""
    words: list[Argument] = [checks]
    for name, part, *rest in commands:
        words += (2 + len(rest), name, _READABLE.index(str(part)) + 1, *rest)
    return context.read("read_parts", session, *words)


class Seal:
    """Checks the values of a session's hashes, which begin with a checksum that scripts wrote."""

    def __init__(self, context: RedisContext, session: str, life: bytes) -> None:
        self._start = b"%b\n%b\n" % (context.keys(session).names[0], life)
        self._session = session
        # fakeredis cannot compute checksums.
        self._ignored = context.simulated

    def is_sound(self, name: bytes, value: bytes) -> bool:
        """Return whether a value matches its checksum."""
        checksum, text = value[:SEAL_CHARS], value[SEAL_CHARS + 1 :]
        # As prelude.lua computes it.
        digest = sha1(self._start + name + b"\n" + text, usedforsecurity=False).hexdigest()
        return self._ignored or digest[:SEAL_CHARS].encode() == checksum

    def open(self, name: bytes, value: bytes, what: str) -> bytes:
        """Return a value without its checksum, or raise if it does not match."""
        if not self.is_sound(name, value):
            raise build_damaged_error(self._session, f"{what} does not match its checksum")
        return value[SEAL_CHARS + 1 :]


@HANDLERS.handles(ReadHead)
def read_head(context: RedisContext, op: ReadHead) -> Plan[Head]:
    """Read a session without its entries."""
    commands = _COUNTED if op.count_snapshots else ()
    head, _, counted = yield from read_parts(context, op.session, *commands)
    if commands and head.status is Status.ACTIVE:
        head.snapshots = counted[0]
    return head


@HANDLERS.handles(SetMetadata)
def set_metadata(context: RedisContext, op: SetMetadata) -> Plan[Head]:
    """Replace a session's metadata."""
    described, snapshots = yield context.change(
        "set_metadata",
        op.session,
        op.metadata,
        op.expected or "",
        encode_ttl_ms(op.ttl_s),
        op.replaces or "",
        repeatable=False,
    )
    head = parse_head(op.session, described)
    if snapshots is None:
        rules.refuse_if_moved(op.session, op.expected, head.version)
        rules.refuse_if_replaced(op.session, op.replaces, head.metadata)
    head.snapshots = snapshots
    return head


class Bookmark(NamedTuple):
    """Where a list continues: the server, its run id, SCAN's cursor, and hashes of listed names."""

    server: int = 0
    run: str = ""
    cursor: int = 0
    given: tuple[str, ...] = ()

    def format(self) -> str:
        """Return the bookmark as text."""
        return json.dumps(self)


def parse_bookmark(text: str | None) -> Bookmark:
    """Parse the text of a bookmark; None means the beginning."""
    if text is None:
        return Bookmark()
    server, run, cursor, given = json.loads(text)
    return Bookmark(server, run, cursor, tuple(given))


def hash_name(name: str) -> str:
    """Hash a name for a bookmark. A name with the hash of a listed one would not be listed."""
    return blake2b(name.encode(), digest_size=8).hexdigest()


# For the end of a page: a scan of few keys leaves few names for the bookmark, which is in a cursor.
SCAN_KEYS_FEW = 10


class FoundSession(NamedTuple):
    """A session that SCAN found; no head if it is damaged."""

    name: str
    head: Head | None
    created_ms: int = 0
    activity_ms: int = 0


@HANDLERS.handles(ListSessions)
def list_sessions(context: RedisContext, op: ListSessions) -> Plan[SessionPage]:
    """List a page of sessions, by SCAN on one server after the other."""
    if op.order is not None:
        return (yield from _list_in_order(context, op, op.order))
    listed: dict[str, Head | None] = {}
    at = parse_bookmark(op.resume)
    keys = SCAN_KEYS
    scanned = 0
    # Counted each time, since a cluster may change meanwhile.
    while at.server < (servers := (yield context.count_servers())):
        room = op.limit - len(listed)
        few = SCAN_KEYS_FEW if at.given else keys
        at, after, found = yield from _scan(context, op, at, few)
        scanned += few
        fresh = {each.name: each.head for each in found if hash_name(each.name) not in at.given}
        new = [name for name in fresh if name not in listed]
        if len(new) > room and keys > SCAN_KEYS_FEW and not at.given:
            keys = SCAN_KEYS_FEW
            continue
        listed |= {name: fresh[name] for name in new[:room]}
        if len(new) > room:
            left = set(new[room:])
            given = (*at.given, *(hash_name(name) for name in fresh if name not in left))
            return _build_page(listed, at._replace(given=given))
        at = after
        is_full = len(listed) == op.limit or (op.scan_max is not None and scanned >= op.scan_max)
        if is_full and at.server < servers:
            return _build_page(listed, at)
    return _build_page(listed, None)


def _build_page(listed: dict[str, Head | None], resume: Bookmark | Place | None) -> SessionPage:
    sessions = tuple(ListedSession(*each) for each in listed.items())
    return SessionPage(sessions, None if resume is None else resume.format())


def _list_in_order(
    context: RedisContext, op: ListSessions, order: SessionOrder
) -> Plan[SessionPage]:
    """List a page in an order: scan all sessions, and keep the first ones after the last page.

    A script could not maintain a sorted set of all sessions: on a cluster, the set and the session
    may be on different servers.
    """
    after = session_list.parse_place(order, op.resume)
    first: dict[str, tuple[Place, Head | None]] = {}
    at = Bookmark()
    while at.server < (yield context.count_servers()):
        _, at, found = yield from _scan(context, op, at, SCAN_KEYS)
        for name, head, created_ms, activity_ms in found:
            place = session_list.build_place(order, name, created_ms, activity_ms)
            if place < after if order.descending else place > after:
                first[name] = place, head
        ordered = sorted(first.items(), key=lambda each: each[1][0], reverse=order.descending)
        first = dict(ordered[: op.limit + 1])
    places = [place for place, _ in first.values()]
    listed = {name: head for name, (_, head) in list(first.items())[: op.limit]}
    return _build_page(listed, places[op.limit - 1] if len(places) > op.limit else None)


def _scan(
    context: RedisContext, op: ListSessions, at: Bookmark, keys: int
) -> Plan[tuple[Bookmark, Bookmark, list[FoundSession]]]:
    """Scan once; return where that began, where the next scan begins, and what was found."""
    pattern = build_pattern(context.namespace, ANY_PART if op.damaged else HEAD, op.prefix)
    began, after, found = yield from scan_keys(context, at, pattern, keys)
    sessions = yield from _read_heads(context, began.server, found)
    listed = [each for each in sessions if session_list.is_listed(op, each.name, each.head)]
    return began, after, listed


def scan_keys(
    context: RedisContext, at: Bookmark, pattern: str, keys: int = SCAN_KEYS
) -> Plan[tuple[Bookmark, Bookmark, list[bytes]]]:
    """Scan keys of a server; return where that began, where to continue, and which match."""
    scan = ("SCAN", at.cursor, "MATCH", pattern, "COUNT", keys)
    # Before INFO: a server that loads its file refuses SCAN only, and the first error counts.
    scanned, info = yield context.send(at.server, scan, ("INFO", "server"))
    run, (cursor, found) = parse_info(info).get("run_id", "")[:8], require(context, scanned)
    if at.run and run != at.run:
        # The server was restarted, and now scans in another order: begin again.
        return (yield from scan_keys(context, Bookmark(at.server), pattern, keys))
    after = Bookmark(at.server, run, int(cursor)) if int(cursor) else Bookmark(at.server + 1)
    return at._replace(run=run), after, found


def _read_heads(context: RedisContext, server: int, keys: list[bytes]) -> Plan[list[FoundSession]]:
    """Read the sessions of these keys, in one round trip to their server."""
    # Several keys may belong to the same session.
    names = dict.fromkeys(name for key in keys if (name := parse_session(key)) is not None)
    calls = [build_read(context, each, *_COUNTED, checks="view") for each in names]
    if not calls:
        return []
    # The server may not know the script yet; the other calls then find it.
    calls[0].by_text = True
    commands = tuple(command for call in calls for command in call.build_commands())
    replies = yield context.send(server, *commands)
    found: list[FoundSession] = []
    for name, call, reply in zip(names, calls, replies, strict=True):
        try:
            if isinstance(reply, Exception):
                # It was moved to another server, or it is damaged.
                described, snapshots = yield call
            else:
                described, snapshots = reply
            head = parse_head(name, described, snapshots)
        except FormatError:
            found.append(FoundSession(name, None))
            continue
        created, activity = described[7:9]
        if described[1] is not None:
            found.append(FoundSession(name, head, int(created), int(activity)))
    return found
