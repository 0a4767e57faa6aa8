"""Maintenance: vacuum, erase, quarantine and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from indelible import view
from indelible.backends.redis.calls import (
    HANDLERS,
    Argument,
    RedisContext,
    to_pairs,
)
from indelible.backends.redis.keys import (
    ASIDE,
    JOURNAL,
    PARTS,
    SNAPSHOTS,
    USED,
    VIEW,
    build_heads_pattern,
    parse_session,
    replace_part,
)
from indelible.backends.redis.requests import ask_server, call_script, count_servers
from indelible.backends.redis.sessions import SCAN_KEYS, parse_head, require
from indelible.backends.redis.settings import list_copies_on_disk, read_settings
from indelible.backends.redis.views import parse_lines, parse_records
from indelible.core import rules
from indelible.core.ids import MADE_PREFIX
from indelible.core.limits import (
    BATCH_ENTRIES_MAX,
    KEYS_KEPT,
    LOG_ENTRIES_MAX,
    STAGE_ABANDONED_S,
    VIEW_ATTEMPTS_MAX,
)
from indelible.core.operations import (
    CheckEngine,
    CheckSession,
    Erase,
    EraseResult,
    Head,
    JournalLine,
    Quarantine,
    ReadQuarantine,
    Reclaim,
    ReclaimResult,
    Scrub,
)
from indelible.core.plan import Plan
from indelible.errors import ConflictError
from indelible.model import Status

# Entries whose keys are looked at in one call.
KEYS_PER_CALL = 1000


@HANDLERS.handles(Reclaim)
def reclaim(context: RedisContext, op: Reclaim) -> Plan[ReclaimResult]:
    """Remove what nothing can reach: compute, then act if the view is still the same."""
    for _ in range(VIEW_ATTEMPTS_MAX):
        described, snapshots, flat, logged = yield from call_script(
            context, context.read("vacuum_inputs", op.session)
        )
        head = parse_head(op.session, described)
        if head.status is Status.ACTIVE:
            lines = parse_lines(head.life, flat)
            done = yield from _reclaim_active(context, op, head, parse_records(snapshots), lines)
        else:
            done = yield from _reclaim_dead(context, op, described, logged)
        if done is not None:
            return done
    raise ConflictError(
        f"others kept changing what session {op.session!r} shows; nothing went. Try again.",
        session=op.session,
        reason="view",
    )


def _reclaim_active(
    context: RedisContext,
    op: Reclaim,
    head: Head,
    records: Sequence[Any],
    lines: Sequence[JournalLine],
) -> Plan[ReclaimResult | None]:
    """What went; None if the view was changed meanwhile."""
    kept = rules.keep_undoable(lines, op.undo_since_ms)
    reach = rules.find_reachable(head, records, kept)
    # The newest entry stays, as on every engine: what a vacuum may take does not depend on it.
    dead = view.subtract(((0, max(0, head.end - 1)),), reach)
    gone_lines = rules.count_removed_changes(lines, kept)
    if op.dry_run:
        size = yield from _measure(context, op.session, dead)
        return ReclaimResult(size.entries, size.size_bytes, gone_lines)
    size = yield from _measure(context, op.session, dead)
    known = (yield from _keys_to_keep(context, op.session, dead)) if size.entries else []
    keeping = {line.key for line in kept}
    arguments: list[Argument] = [head.life, head.generation, head.vacuums]
    arguments += (b"1" if size.entries else b"0", len(known))
    for key, value in known:
        arguments += (key, value)
    arguments += [line.key for line in lines if line.key not in keeping]
    (answer,) = yield from call_script(
        context, context.write("vacuum_begin", op.session, *arguments, repeatable=False)
    )
    if answer == b"changed":
        return None
    entries = size_bytes = 0
    for start, stop in dead if size.entries else ():
        at: int | None = start
        while at is not None:
            count, length, left_off = yield from call_script(
                context, context.write("vacuum_entries", op.session, head.life, at, stop)
            )
            entries, size_bytes = entries + count, size_bytes + length
            at = None if left_off is None else int(left_off)
    return ReclaimResult(entries, size_bytes, gone_lines)


def _reclaim_dead(
    context: RedisContext, op: Reclaim, described: Sequence[Any], logged: int
) -> Plan[ReclaimResult | None]:
    """What a life that ended has left, or a copy that nobody finished."""
    now_ms, life, staged, created = int(described[0]), described[1], described[6], described[9]
    if life is None:
        return ReclaimResult()
    if staged == b"1" and now_ms < int(created or 0) + STAGE_ABANDONED_S * 1000:
        return ReclaimResult()
    size = yield from _measure(context, op.session, ((0, LOG_ENTRIES_MAX),) if logged else ())
    if op.dry_run:
        return size
    (answer,) = yield from call_script(
        context,
        context.write(
            "delete_expired", op.session, life, STAGE_ABANDONED_S * 1000, repeatable=False
        ),
    )
    return None if answer == b"changed" else size


def _measure(context: RedisContext, session: str, extents: view.Extents) -> Plan[ReclaimResult]:
    entries = size = 0
    for start, stop in extents:
        at: int | None = start
        while at is not None:
            count, length, left_off = yield from call_script(
                context, context.read("measure_entries", session, at, stop)
            )
            entries, size = entries + count, size + length
            at = None if left_off is None else int(left_off)
    return ReclaimResult(entries, size)


def _keys_to_keep(
    context: RedisContext, session: str, dead: view.Extents
) -> Plan[list[tuple[bytes, str]]]:
    """Made keys of appends that lose an entry, with what their entries were.

    Keys of callers are known by an index that no vacuum touches.
    """
    known: list[tuple[bytes, str]] = []
    sums: dict[int, bytes] = {}
    heads = 0
    start: Any = ""
    while start is not None and heads < KEYS_KEPT:
        flat, start = yield from call_script(
            context, context.read("read_keys", session, start, KEYS_PER_CALL)
        )
        columns = (flat[at::5] for at in range(5))
        for position, batch, generation, key, checksum in zip(*columns, strict=True):
            first, count = int(position), int(batch)
            sums[first] = checksum
            if not key or heads == KEYS_KEPT:
                continue
            heads += 1
            if key.startswith(MADE_PREFIX.encode()) and view.clip(dead, first, first + count):
                stored = b"".join(
                    sums.get(first + at, b"") for at in range(min(count, BATCH_ENTRIES_MAX))
                )
                known.append((key, f"{first} {count} {int(generation)} {stored.decode()}"))
    return known


@HANDLERS.handles(Erase)
def erase(context: RedisContext, op: Erase) -> Plan[EraseResult]:
    """Remove every key of a session, and say which sessions were forked from it."""
    forks = yield from _find_forks(context, op.session)
    size = yield from _measure(context, op.session, ((0, LOG_ENTRIES_MAX),))
    entries, snapshots = yield from call_script(
        context, context.write("erase", op.session, repeatable=False)
    )
    kept = yield from _find_copies_on_disk(context)
    return EraseResult(entries, snapshots, size.size_bytes if entries else 0, forks, kept)


def _find_copies_on_disk(context: RedisContext) -> Plan[tuple[str, ...]]:
    """The places outside of memory where servers keep what they were told."""
    if context.simulated:
        return ()
    every = yield from read_settings(context)
    return tuple(sorted({place for settings in every for place in list_copies_on_disk(settings)}))


def _find_forks(context: RedisContext, session: str) -> Plan[tuple[str, ...]]:
    """Forks lie anywhere: every session is asked where it comes from."""
    names: set[str] = set()
    servers = yield from count_servers(context)
    for server in range(servers):
        cursor = 0
        while True:
            scan = (
                "SCAN",
                cursor,
                "MATCH",
                build_heads_pattern(context.namespace, ""),
                "COUNT",
                SCAN_KEYS,
            )
            (scanned,) = yield from ask_server(context, server, (scan,))
            after, heads = require(context, scanned)
            looks = tuple(("HGET", replace_part(key, VIEW), "forked") for key in heads)
            origins = (yield from ask_server(context, server, looks)) if looks else []
            names |= {
                name
                for key, origin in zip(heads, origins, strict=True)
                # One that is on its way to another server is found there.
                if origin == session.encode() and (name := parse_session(key)) is not None
            }
            cursor = int(after)
            if cursor == 0:
                break
    return tuple(sorted(names))


@HANDLERS.handles(Scrub)
def scrub(_context: RedisContext, _op: Scrub) -> Plan[tuple[str, ...]]:
    """Nothing is left that a store could clear: a server's files are its operator's."""
    yield from ()
    return ()


@HANDLERS.handles(CheckEngine)
def check_engine(_context: RedisContext, _op: CheckEngine) -> Plan[tuple[str, ...]]:
    """A server checks its own files when it starts; while it runs there is nothing to ask."""
    yield from ()
    return ()


# Hashes of a session whose values carry checksums: which of its keys, the letter that stands before
# their names in a checksum, and what they are.
_CHECKED = (
    (USED, "k", "the key of a caller"),
    (SNAPSHOTS, "s", "the snapshot"),
    (JOURNAL, "", "the line of the journal"),
    (ASIDE, "q", "the entry in quarantine at"),
)


@HANDLERS.handles(CheckSession)
def check_session(context: RedisContext, op: CheckSession) -> Plan[tuple[str, ...]]:
    """Recompute the checksum of every value that stands beside the log."""
    wrong: list[str] = []
    for part, letter, what in _CHECKED:
        cursor = b"0"
        while True:
            cursor, names = yield from call_script(
                context,
                context.read("check_values", op.session, PARTS.index(part) + 1, letter, cursor),
            )
            wrong += [
                f"{what} {name.decode('utf-8', 'replace')!r} does not match its checksum"
                for name in names
            ]
            if cursor == b"0":
                break
    return tuple(wrong)


@HANDLERS.handles(Quarantine)
def quarantine(context: RedisContext, op: Quarantine) -> Plan[None]:
    """Keep the bytes of entries that cannot be read."""
    arguments: list[Argument] = []
    for position, reason, raw in op.entries:
        arguments += (position, reason, raw)
    if arguments:
        yield from call_script(context, context.write("quarantine", op.session, *arguments))


@HANDLERS.handles(ReadQuarantine)
def read_quarantine(
    context: RedisContext, op: ReadQuarantine
) -> Plan[tuple[tuple[int, str, bytes], ...]]:
    """What was put into quarantine."""
    flat = yield from call_script(context, context.read("read_quarantine", op.session))
    found = []
    for position, text in to_pairs(flat):
        size, _, rest = text.partition(b" ")
        found.append((int(position), rest[: int(size)].decode(), rest[int(size) :]))
    return tuple(sorted(found))
