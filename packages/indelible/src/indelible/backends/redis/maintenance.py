"""Maintenance: vacuum, erase, quarantine and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from indelible import view
from indelible.backends.redis.errors import Next, PartlyWrittenError, choose_next, parse_code
from indelible.backends.redis.keys import (
    HEAD,
    JOURNAL,
    QUARANTINE,
    SNAPSHOTS,
    USED,
    VIEW,
    build_pattern,
    parse_session,
    replace_part,
)
from indelible.backends.redis.log_rows import parse_row
from indelible.backends.redis.read import read_rows
from indelible.backends.redis.requests import (
    HANDLERS,
    Argument,
    RedisContext,
    require,
    to_pairs,
)
from indelible.backends.redis.risks import list_copies_on_disk, read_settings
from indelible.backends.redis.sessions import (
    Bookmark,
    Seal,
    build_read,
    parse_head,
    read_parts,
    scan_keys,
)
from indelible.backends.redis.views import parse_lines, parse_records
from indelible.core import rules
from indelible.core.checksums import compute_entry_checksum
from indelible.core.codec import parse_checksum
from indelible.core.limits import (
    BATCH_ENTRIES_MAX,
    KEYS_KEPT,
    LOG_ENTRIES_MAX,
    VIEW_ATTEMPTS_MAX,
)
from indelible.core.operations import (
    CheckSession,
    Erase,
    EraseItem,
    EraseResult,
    Head,
    JournalLine,
    Quarantine,
    ReadQuarantine,
    Reclaim,
    ReclaimResult,
)
from indelible.core.plan import Plan
from indelible.errors import ConflictError
from indelible.model import Status

# Values that one call of `check_session` checks.
SCANNED_VALUES = 100
# Keys of callers that one call of `reclaim` reads.
SCANNED_KEYS = 1000


@HANDLERS.handles(Reclaim)
def reclaim(context: RedisContext, op: Reclaim) -> Plan[ReclaimResult]:
    """Remove what nothing can reach: compute it, and remove it if the view is still the same."""
    for _ in range(VIEW_ATTEMPTS_MAX):
        described, snapshots, journal, keys = yield build_read(
            context, op.session, ("HGETALL", SNAPSHOTS), ("JOURNAL", JOURNAL), ("HLEN", USED)
        )
        head = parse_head(op.session, described)
        if head.status is Status.ACTIVE:
            seal = Seal(context, op.session, described[1])
            records = parse_records(seal, snapshots)
            lines = parse_lines(seal, op.session, head.life, journal)
            done = yield from _reclaim_active(context, op, head, records, lines, keys)
        else:
            done = yield from _reclaim_dead(context, op, described)
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
    keys: int,
) -> Plan[ReclaimResult | None]:
    """Remove what an active session cannot reach; None if its view changed meanwhile."""
    dead, kept = rules.plan_vacuum(head, records, lines, op.undo_since_ms)
    gone_lines = rules.count_removed_changes(lines, kept)
    size = yield from _measure(context, op.session, dead)
    if op.dry_run:
        return ReclaimResult(size.entries, size.size_bytes, gone_lines)
    known = (yield from _find_keys_to_keep(context, head, op.session, dead)) if size.entries else []
    dropped: set[bytes] = set()
    if size.entries and keys + len(known) > KEYS_KEPT:
        dropped = yield from _find_keys_to_drop(context, op.session, known)
        known = [each for each in known if each[0] not in dropped]
    keeping = {line.key for line in kept}
    arguments: list[Argument] = [head.life, head.generation, head.vacuums]
    arguments += (b"1" if size.entries else b"0", len(known))
    for key, value in known:
        arguments += (key, value)
    arguments += (len(dropped), *dropped)
    arguments += [line.key for line in lines if line.key not in keeping]
    (answer,) = yield context.write("vacuum_begin", op.session, *arguments, repeatable=False)
    if answer == b"changed":
        return None
    if size.entries:
        # A call whose reply was lost has removed more than the next one counts.
        yield from _measure(context, op.session, dead, head.life)
    return ReclaimResult(size.entries, size.size_bytes, gone_lines)


def _reclaim_dead(
    context: RedisContext, op: Reclaim, described: Sequence[Any]
) -> Plan[ReclaimResult | None]:
    """Remove the rest of a life that has ended, or an abandoned stage."""
    now_ms, life, _, _, _, _, staged, created, *_ = described
    if life is None:
        return ReclaimResult()
    if staged == b"1" and not rules.is_abandoned(int(created), now_ms):
        return ReclaimResult()
    size = yield from _measure(context, op.session, ((0, LOG_ENTRIES_MAX),))
    if op.dry_run:
        return size
    call = context.write("delete_expired", op.session, life, repeatable=False)
    (answer,) = yield call
    return None if answer == b"changed" else size


def _measure(
    context: RedisContext, session: str, extents: view.Extents, life: str = ""
) -> Plan[ReclaimResult]:
    """Count the entries of these extents; with a life, remove them from it."""
    entries = size = 0
    for start, stop in extents:
        at: int | None = start
        while at is not None:
            call = context.read("measure_entries", session, at, stop, life)
            if life:
                # The vacuum has begun.
                call.write, call.lost = True, PartlyWrittenError()
            count, length, at = yield call
            entries, size = entries + count, size + length
    return ReclaimResult(entries, size)


def _find_keys_to_keep(
    context: RedisContext, head: Head, session: str, dead: view.Extents
) -> Plan[list[tuple[bytes, bytes]]]:
    """Find the keys of appends that lose an entry, and the checksums of their entries."""
    known: list[tuple[bytes, bytes]] = []
    sums: dict[int, bytes] = {}
    heads = 0
    start: int | None = head.end
    while start is not None and heads < KEYS_KEPT:
        _, start, rows = yield from read_rows(
            context, session, None, ((head.born, head.end),), start=start, newest=True, brief=True
        )
        for position, brief in rows:
            row = parse_row(brief.partition(b" ")[2])
            sums[position] = parse_checksum(row.envelope)
            if not row.key or heads == KEYS_KEPT:
                continue
            heads += 1
            count = row.batch
            if view.clip(dead, position, position + count):
                stored = b"".join(
                    sums.get(position + at, b"") for at in range(min(count, BATCH_ENTRIES_MAX))
                )
                # Bytes, since the checksum of a damaged entry may not be text.
                known.append((row.key, b"%d %d %d %b" % (position, count, row.generation, stored)))
    return known


def _find_keys_to_drop(
    context: RedisContext, session: str, known: Sequence[tuple[bytes, bytes]]
) -> Plan[set[bytes]]:
    """Find the keys of the oldest appends without entries: vacuums keep at most `KEYS_KEPT`."""
    texts = dict(known)
    cursor: bytes | None = b"0"
    while cursor is not None:
        scan = ("HSCAN", USED, cursor, "COUNT", SCANNED_KEYS)
        _, seal, answers = yield from read_parts(context, session, scan, checks="head")
        cursor, flat = answers[0]
        for key, value in to_pairs(flat):
            text = seal.open(b"k" + key, value, "a key of its callers")
            # The key of an append that has its entries leads to its position alone.
            if b" " in text:
                texts[key] = text
        cursor = None if cursor == b"0" else cursor
    ordered = sorted(texts, key=lambda key: int(texts[key].partition(b" ")[0]))
    return set(ordered[: max(0, len(ordered) - KEYS_KEPT)])


@HANDLERS.handles(Erase)
def erase(context: RedisContext, op: Erase) -> Plan[EraseResult]:
    """Remove every key of a session, and return which sessions were forked from it."""
    # Before the write, so that an error means that nothing was erased.
    forks = yield from _find_forks(context, op.session)
    kept = yield from _find_copies_on_disk(context)
    size = yield from _measure(context, op.session, ((0, LOG_ENTRIES_MAX),))
    answer, found = yield context.change(
        "erase", op.session, op.expected or "", context.lookup, repeatable=False
    )
    if answer == b"moved":
        rules.refuse_if_moved(op.session, op.expected, found.decode())
    return EraseResult(size.entries, found, size.size_bytes, forks, kept)


@HANDLERS.handles(EraseItem)
def erase_item(context: RedisContext, op: EraseItem) -> Plan[EraseResult]:
    """Overwrite every entry of an item."""
    head, _, _ = yield from read_parts(context, op.session)
    if head.status is not Status.ACTIVE:
        return EraseResult()
    # Before the first write, so that an error means that nothing was erased.
    forks = yield from _find_forks(context, op.session)
    kept = yield from _find_copies_on_disk(context)
    checksum = compute_entry_checksum(context.keys(op.session).salt, op.envelope)
    arguments = (op.item, op.envelope, checksum, context.lookup)
    entries, size, more = 0, 0, 1
    while more:
        call = context.change("erase_item", op.session, *arguments, repeatable=False)
        if entries:
            call.lost = PartlyWrittenError()
        count, length, more = yield call
        entries, size = entries + count, size + length
        # The line was written with the first portion.
        context = context.copy_with(())
    return EraseResult(entries, size_bytes=size, forks=forks, kept=kept)


def _find_copies_on_disk(context: RedisContext) -> Plan[tuple[str, ...]]:
    """List the files of the servers that may keep what was erased."""
    if context.simulated:
        return ()
    every = yield from read_settings(context)
    return tuple(sorted({place for settings in every for place in list_copies_on_disk(settings)}))


def _find_forks(context: RedisContext, session: str) -> Plan[tuple[str, ...]]:
    """Find the forks of a session. They may be on any server, so all sessions are scanned."""
    names: set[str] = set()
    pattern = build_pattern(context.namespace, HEAD)
    after = Bookmark()
    while after.server < (yield context.count_servers()):
        at, after, heads = yield from scan_keys(context, after, pattern)
        looks = [("HGET", replace_part(key, VIEW), "forked") for key in heads]
        origins = (yield context.send(at.server, *looks)) if looks else []
        for key, origin in zip(heads, origins, strict=True):
            if isinstance(origin, Exception) and not _is_absent(origin):
                require(context, origin)
            name = parse_session(key)
            if origin == session.encode() and name is not None:
                names.add(name)
    return tuple(sorted(names))


def _is_absent(error: Exception) -> bool:
    """Return whether a view was moved, and is found on the other server, or is no view at all."""
    return choose_next(error) is Next.MOVE or parse_code(error) == "WRONGTYPE"


# Hashes of a session whose values have checksums, the letter before their names in a checksum, and
# what their values are.
_CHECKED = (
    (USED, b"k", "the key of a caller"),
    (SNAPSHOTS, b"s", "the snapshot"),
    (JOURNAL, b"", "the line of the journal"),
    (QUARANTINE, b"q", "the entry in quarantine at"),
)


@HANDLERS.handles(CheckSession)
def check_session(context: RedisContext, op: CheckSession) -> Plan[tuple[str, ...]]:
    """Check the checksums of all values that are not in the log."""
    wrong: list[str] = []
    for part, letter, what in _CHECKED:
        cursor: bytes | None = b"0"
        while cursor is not None:
            scan = ("HSCAN", part, cursor, "COUNT", SCANNED_VALUES)
            _, seal, answers = yield from read_parts(context, op.session, scan, checks="head")
            cursor, flat = answers[0]
            wrong += [
                f"{what} {name.decode('utf-8', 'replace')!r} does not match its checksum"
                for name, value in to_pairs(flat)
                # Fields that lead from numbers of journal lines to keys have no checksum; they are
                # checked when the journal is read.
                if not (part == JOURNAL and name.startswith(b"#"))
                and not seal.is_sound(letter + name, value)
            ]
            cursor = None if cursor == b"0" else cursor
    return (*wrong, *(yield from _check_items(context, op.session)))


def _check_items(context: RedisContext, session: str) -> Plan[list[str]]:
    """Compare the index of items with the log, in both directions."""
    wrong: list[str] = []
    for side, what in (("index", "without its entry"), ("log", "that is not in the index")):
        at: bytes | None = b""
        while at is not None:
            call = context.read("check_items", session, side, at)
            at, positions = yield call
            wrong += [f"an item at position {int(position)} {what}" for position in positions]
    return wrong


@HANDLERS.handles(Quarantine)
def quarantine(context: RedisContext, op: Quarantine) -> Plan[None]:
    """Keep the bytes of entries that cannot be read."""
    arguments: list[Argument] = []
    for position, reason, raw in op.entries:
        arguments += (position, reason, raw)
    if arguments:
        yield context.change("quarantine", op.session, *arguments)


@HANDLERS.handles(ReadQuarantine)
def read_quarantine(
    context: RedisContext, op: ReadQuarantine
) -> Plan[tuple[tuple[int, str, bytes], ...]]:
    """Read what was put into quarantine."""
    head, seal, answers = yield from read_parts(
        context, op.session, ("HGETALL", QUARANTINE), checks="head"
    )
    if head.status is not Status.ACTIVE:
        return ()
    found = []
    for position, value in to_pairs(answers[0]):
        text = seal.open(b"q" + position, value, "its quarantine")
        size, _, rest = text.partition(b" ")
        found.append((int(position), rest[: int(size)].decode(), rest[int(size) :]))
    return tuple(sorted(each for each in found if each[0] >= head.born))
