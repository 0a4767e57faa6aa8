"""Changes of the view, snapshots and the journal."""

from __future__ import annotations

from typing import Any, NamedTuple

from indelible.backends.redis.errors import build_damaged_error
from indelible.backends.redis.keys import JOURNAL, SNAPSHOTS
from indelible.backends.redis.requests import (
    HANDLERS,
    Command,
    RedisContext,
    encode_ttl_ms,
    to_pairs,
)
from indelible.backends.redis.sessions import (
    Seal,
    format_extents,
    parse_extents,
    parse_head,
    read_parts,
)
from indelible.core import rules
from indelible.core.limits import VIEW_ATTEMPTS_MAX
from indelible.core.operations import (
    ChangeView,
    DeleteSnapshot,
    FindChange,
    Head,
    JournalLine,
    JournalPage,
    ReadJournal,
    ReadSnapshots,
    Rollback,
    SaveSnapshot,
    SnapshotList,
    SnapshotRecord,
    ViewChangeResult,
)
from indelible.core.plan import Plan
from indelible.errors import ConflictError, FormatError, MemoryStoreError
from indelible.model import Status
from indelible.view import View, build_view


@HANDLERS.handles(ChangeView)
def change_view(context: RedisContext, op: ChangeView) -> Plan[ViewChangeResult]:
    """Replace the view, if it is still the one that the change was computed from."""
    result = yield from _change(context, op)
    if isinstance(result, ViewChangeResult):
        return result
    raise _explain(op, result.head)


@HANDLERS.handles(Rollback)
def rollback(context: RedisContext, op: Rollback) -> Plan[ViewChangeResult]:
    """Make visible what a snapshot froze."""
    change = ChangeView(op.session, "", 0, 0, rules.ROLLBACK, op.key, (), None, op.expected)
    result = yield from _change(context, change, op.snapshot)
    if isinstance(result, ViewChangeResult):
        return result
    raise _explain(rules.plan_rollback(op, *result), result.head)


@HANDLERS.handles(FindChange)
def find_change(context: RedisContext, op: FindChange) -> Plan[JournalLine | None]:
    """Find a change by its key, and sync it."""
    # No session has this generation, so nothing is changed; only an earlier change is returned.
    change = ChangeView(op.session, "", -1, 0, op.change, op.key, (), None)
    result = yield from _change(context, change)
    return result.line if isinstance(result, ViewChangeResult) else None


class _Unchanged(NamedTuple):
    """The state that decides about a change whose guard did not hold."""

    head: Head
    record: SnapshotRecord | None


def _change(
    context: RedisContext, op: ChangeView, snapshot: str = ""
) -> Plan[ViewChangeResult | _Unchanged]:
    """Send the guarded write; with a snapshot, it is a rollback."""
    first, text, *rest = yield context.change(
        "change_view",
        op.session,
        op.life,
        op.generation,
        op.vacuums,
        op.change,
        op.key,
        format_extents(op.extents),
        "" if op.tail is None else op.tail,
        op.expected or "",
        op.undoes or "",
        context.lookup,
        snapshot,
    )
    if not rest:
        return ViewChangeResult(parse_line(first.decode(), op.key, text, None))
    head = parse_head(op.session, first)
    undone_by, record = rest
    if text is None:
        return _Unchanged(head, None if record is None else parse_record(snapshot, record))
    line = parse_line(head.life, op.key, text, undone_by)
    rules.refuse_different_change(op.session, op.key, op.change, line)
    return ViewChangeResult(line, replayed=True)


def _explain(op: ChangeView, head: Head) -> MemoryStoreError:
    """Return the error for a change whose guard did not hold."""
    rules.refuse_if_changed(op, head)
    return rules.build_outside_error(op.session, "what it would show reaches outside of its log")


def parse_line(life: str, key: str, text: bytes, undone_by: bytes | None) -> JournalLine:
    """Parse a journal line as a script wrote it."""
    try:
        # The name of the change comes last, since it may contain any character.
        about, before, after, change = text.split(b"|", 3)
        _, at, generation, end = about.split(b" ")
        return JournalLine(
            key=key,
            change=change.decode(),
            changed_at_ms=int(at),
            version=rules.build_version(life, int(end), int(generation)),
            end=int(end),
            before=_parse_view(before),
            after=_parse_view(after),
            undone_by=undone_by.decode() if undone_by is not None else None,
        )
    except ValueError:
        raise FormatError(f"a line of the journal is damaged: {text[:60]!r}") from None


def format_line(number: int, line: JournalLine, generation: int) -> str:
    """Format a journal line as a script would write it."""
    about = f"{number} {line.changed_at_ms} {generation} {line.end}"
    return f"{about}|{_format_view(line.before)}|{_format_view(line.after)}|{line.change}"


def _parse_view(text: bytes) -> View:
    tail, _, extents = text.partition(b" ")
    return build_view(parse_extents(extents), int(tail))


def _format_view(view: View) -> str:
    return f"{view.tail} {format_extents(view.extents)}"


def parse_lines(seal: Seal, session: str, life: str, flat: list[Any]) -> list[JournalLine]:
    """Parse lines of read_parts.lua: number, key, line and the key that undid it of each."""
    what = "a line of its journal"
    lines = []
    for number, key, value, undoing in zip(*(flat[at::4] for at in range(4)), strict=True):
        if value is None:
            raise build_damaged_error(session, "lines of its journal are missing")
        text = seal.open(b"o" + key, value, what)
        if int(text.partition(b" ")[0]) != number:
            raise build_damaged_error(session, "lines of its journal are missing")
        undone_by = None if undoing is None else seal.open(b"u" + key, undoing, what)
        lines.append(parse_line(life, key.decode(), text, undone_by))
    return lines


@HANDLERS.handles(ReadJournal)
def read_journal(context: RedisContext, op: ReadJournal) -> Plan[JournalPage]:
    """Read the newest changes of the view."""
    head, seal, answers = yield from read_parts(context, op.session, ("JOURNAL", JOURNAL, op.limit))
    if head.status is not Status.ACTIVE:
        return JournalPage(head, ())
    return JournalPage(head, tuple(parse_lines(seal, op.session, head.life, answers[0])))


@HANDLERS.handles(SaveSnapshot)
def save_snapshot(context: RedisContext, op: SaveSnapshot) -> Plan[SnapshotRecord]:
    """Store the view and the end of the log under an id."""
    whole = ""
    for _ in range(VIEW_ATTEMPTS_MAX):
        answer: Any = yield context.change(
            "save_snapshot",
            op.session,
            op.id,
            "" if op.label is None else f"={op.label}",
            encode_ttl_ms(op.ttl_s),
            whole,
            context.lookup,
            op.expected or "",
        )
        if isinstance(answer, bytes):
            return parse_record(op.id, answer)
        described, there = answer
        if there is not None:
            return parse_record(op.id, there)
        head = parse_head(op.session, described)
        rules.refuse_if_moved(op.session, op.expected, head.version)
        rules.refuse_too_many_extents(op.session, head.visible)
        whole = head.version
    raise ConflictError(
        f"others kept writing to session {op.session!r}; no snapshot was taken. Try again.",
        session=op.session,
        reason="view",
    )


def parse_record(snapshot_id: str, text: bytes) -> SnapshotRecord:
    """Parse a snapshot as a script wrote it."""
    try:
        about, _, label = text.partition(b"|")
        _, taken, end, tail, extents = about.split(b" ")
        return SnapshotRecord(
            snapshot_id,
            label[1:].decode() if label else None,
            int(taken),
            build_view(parse_extents(extents), int(tail)),
            int(end),
        )
    except ValueError:
        raise FormatError(f"a snapshot is damaged: {text[:60]!r}") from None


def format_record(number: int, record: SnapshotRecord) -> str:
    """Format a snapshot as a script would write it."""
    label = "" if record.label is None else f"={record.label}"
    extents = format_extents(record.view.extents)
    return f"{number} {record.taken_at_ms} {record.end} {record.view.tail} {extents}|{label}"


def parse_records(seal: Seal, flat: list[Any]) -> list[SnapshotRecord]:
    """Parse the hash of snapshots, and sort them, the oldest first."""
    opened = [(name, seal.open(b"s" + name, value, "a snapshot")) for name, value in to_pairs(flat)]
    ordered = sorted(opened, key=lambda pair: int(pair[1].partition(b" ")[0]))
    return [parse_record(name.decode(), text) for name, text in ordered]


@HANDLERS.handles(ReadSnapshots)
def read_snapshots(context: RedisContext, op: ReadSnapshots) -> Plan[SnapshotList]:
    """Read all snapshots of the session's life, or the named ones."""
    ids = op.ids
    commands: tuple[Command, ...] = (("HGETALL", SNAPSHOTS),)
    if ids is not None:
        commands = (("HMGET", SNAPSHOTS, *ids),) if ids else ()
    head, seal, answers = yield from read_parts(context, op.session, *commands)
    if head.status is not Status.ACTIVE or not commands:
        return SnapshotList(head, ())
    if ids is None:
        return SnapshotList(head, tuple(parse_records(seal, answers[0])))
    found = [
        parse_record(name, seal.open(b"s" + name.encode(), value, "a snapshot"))
        for name, value in zip(ids, answers[0], strict=True)
        if value is not None
    ]
    return SnapshotList(head, tuple(found))


@HANDLERS.handles(DeleteSnapshot)
def delete_snapshot(context: RedisContext, op: DeleteSnapshot) -> Plan[bool]:
    """Delete one snapshot; entries stay."""
    removed = yield context.change("delete_snapshot", op.session, op.id, repeatable=False)
    return bool(removed)
