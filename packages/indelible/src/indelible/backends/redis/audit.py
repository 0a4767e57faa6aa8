"""Audits: one script writes a change and its line, if the line before is still the newest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from indelible.backends.redis.errors import build_unknown_error
from indelible.backends.redis.keys import AUDIT, build_pattern, parse_session
from indelible.backends.redis.requests import (
    HANDLERS,
    AuditMovedError,
    Command,
    RedisContext,
    Wait,
)
from indelible.backends.redis.sessions import Bookmark, build_read, parse_row, scan_keys
from indelible.core import audit, rules
from indelible.core.deadline import Deadline
from indelible.core.operations import (
    Append,
    AppendResult,
    Audited,
    Erase,
    EraseItem,
    ListAudits,
    ReadAudit,
    ShowStage,
    StoredLine,
)
from indelible.core.plan import Operation, Plan
from indelible.errors import BusyError, MemoryStoreError

R = TypeVar("R")

# The number of lines, and the newest line.
_COUNT: Final[Command] = ("LLEN", AUDIT)
_READ_NEWEST: Final = (_COUNT, ("LRANGE", AUDIT, -1, -1))


@HANDLERS.handles(Audited)
def perform_audited(context: RedisContext, op: Audited[R]) -> Plan[R | None]:
    """Perform a change and add its line; start again if another line was added meanwhile."""
    deadline = context.start_deadline()
    lost: BaseException | None = None
    change: Operation[Any] | None = op.change
    while True:
        try:
            result = yield from _perform_once(context, op, change, deadline)
        except AuditMovedError as moved:
            lost = lost or moved.lost
            if lost is not None and isinstance(change, Append):
                change = change.repeat()
            elif lost is not None and isinstance(change, ShowStage):
                # The calls before the one whose reply was lost have written its rows.
                change = replace(change, rows=())
        except MemoryStoreError:
            if lost is None:
                raise
            # This attempt wrote nothing, but an earlier one may have.
            raise build_unknown_error(lost, shown=context.shown) from lost
        else:
            resent = lost is not None and isinstance(result, AppendResult)
            return cast(R, result._replace(resent=True) if resent else result)
        wait_s = deadline.next_wait_s()
        if wait_s is None and lost is not None:
            raise build_unknown_error(lost, shown=context.shown)
        if wait_s is None:
            raise BusyError(
                f"others kept changing session {op.session!r} until the deadline; nothing was"
                " written, so it is safe to try again",
                session=op.session,
            )
        yield Wait(wait_s)


def _perform_once(
    context: RedisContext, op: Audited[Any], change: Operation[Any] | None, deadline: Deadline
) -> Plan[Any]:
    bounded = context.copy_with((), deadline)
    described, count, found = yield build_read(bounded, op.session, *_READ_NEWEST, checks="none")
    newest = next(iter(_parse_lines(count - 1, found)), None)
    if isinstance(change, ShowStage) and len(change.audit) > count:
        # The script of the change adds these before its own line.
        newest = change.audit[-1]
    now_ms, row = described[0], parse_row(op.session, described)
    # The view may be damaged. If a session is erased, it may be damaged as a whole, and its version
    # is not known.
    erases = isinstance(change, Erase)
    version = "" if erases else rules.compute_version(row, now_ms)
    line = audit.build_line(op, newest, now_ms, version)
    stamp = (version, count, format_audit_line(line))
    # These scan many keys, so each of their requests has a deadline of its own.
    is_long = isinstance(change, (Erase, EraseItem))
    audited = context.copy_with(stamp, None if is_long else deadline)
    if change is not None:
        return (yield from HANDLERS.plan(audited, change))
    # Sent again, it would add a second line.
    yield audited.change("note", op.session, repeatable=False)
    return None


@HANDLERS.handles(ListAudits)
def list_audits(context: RedisContext, _op: ListAudits) -> Plan[tuple[str, ...]]:
    """Return the ids of all sessions that have lines, by SCAN on one server after the other."""
    names: set[str | None] = set()
    pattern = build_pattern(context.namespace, AUDIT)
    after = Bookmark()
    while after.server < (yield context.count_servers()):
        _, after, keys = yield from scan_keys(context, after, pattern)
        names.update(map(parse_session, keys))
    return tuple(name for name in names if name is not None)


@HANDLERS.handles(ReadAudit)
def read_audit(context: RedisContext, op: ReadAudit) -> Plan[tuple[StoredLine, ...]]:
    """Read lines of the audit."""
    commands = _READ_NEWEST
    if op.start is not None:
        commands = _COUNT, ("LRANGE", AUDIT, op.start, op.start + op.limit - 1)
    _, count, found = yield build_read(context, op.session, *commands, checks="none")
    return tuple(_parse_lines(count - 1 if op.start is None else op.start, found))


def format_audit_line(line: StoredLine) -> str:
    """Format a line as it is stored."""
    return f"{line.hash} {line.text}"


def _parse_lines(first: int, values: Sequence[bytes]) -> Iterator[StoredLine]:
    for number, value in enumerate(values, first):
        digest, _, text = value.decode("utf-8", "replace").partition(" ")
        yield StoredLine(number, text, digest)
