"""Audits: a change and its line are one script, guarded by the line that it follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from indelible.backends.redis.errors import build_unknown_error
from indelible.backends.redis.keys import build_audit_key
from indelible.backends.redis.requests import (
    HANDLERS,
    AuditMovedError,
    Command,
    RedisContext,
    Wait,
    require,
)
from indelible.backends.redis.sessions import read_parts
from indelible.core import audit
from indelible.core.clock import read_clock_ms
from indelible.core.deadline import Deadline
from indelible.core.operations import (
    Append,
    AppendResult,
    Audited,
    Erase,
    ImportAudit,
    ReadAudit,
    StoredLine,
)
from indelible.core.plan import Operation, Plan
from indelible.errors import BusyError, MemoryStoreError

R = TypeVar("R")

_IMPORT: Final = """
if redis.call('LLEN', KEYS[1]) == tonumber(ARGV[1]) then
  redis.call('RPUSH', KEYS[1], unpack(ARGV, 2))
end
return 1
"""


@HANDLERS.handles(Audited)
def perform_audited(context: RedisContext, op: Audited[R]) -> Plan[R | None]:
    """Perform a change with the line that follows the newest one; again if another came first."""
    deadline = Deadline(context.timeout_s)
    lost: BaseException | None = None
    change: Operation[Any] | None = op.change
    while True:
        try:
            result = yield from _perform_once(context, op, change)
        except AuditMovedError as moved:
            lost = lost or moved.lost
            if lost is not None and isinstance(change, Append):
                change = replace(change, fresh=False)
        except MemoryStoreError:
            if lost is None:
                raise
            # This attempt wrote nothing, but an earlier one may have.
            raise build_unknown_error(lost, shown=context.shown) from lost
        else:
            resent = lost is not None and isinstance(result, AppendResult)
            return cast(R, result._replace(resent=True) if resent else result)
        wait_s = deadline.next_wait_s()
        if wait_s is None:
            raise _build_moved_error(context, op.session, lost)
        yield Wait(wait_s)


def _perform_once(
    context: RedisContext, op: Audited[Any], change: Operation[Any] | None
) -> Plan[Any]:
    count, newest = yield from _read_newest(context, op.session)
    if isinstance(change, Erase):
        # A damaged session can be erased; its version is not known then.
        version, now_ms = "", (yield from _read_time_ms(context, op.session))
    else:
        head, _, _ = yield from read_parts(context, op.session, checks="head")
        version, now_ms = head.version, head.now_ms
    line = audit.build_line(op, newest, now_ms, version)
    audited = context.copy_with((version, count, f"{line.hash} {line.text}"))
    if change is not None:
        return (yield from HANDLERS.plan(audited, change))
    # Sent again, it would be a second line.
    yield audited.write("note", op.session, repeatable=False)
    return None


def _build_moved_error(
    context: RedisContext, session: str, lost: BaseException | None
) -> MemoryStoreError:
    if lost is not None:
        return build_unknown_error(lost, shown=context.shown)
    return BusyError(
        f"others kept changing session {session!r} until the deadline; nothing was written, so it"
        " is safe to try again",
        session=session,
    )


@HANDLERS.handles(ImportAudit)
def import_audit(context: RedisContext, op: ImportAudit) -> Plan[None]:
    """Add lines that follow the newest one."""
    keys = context.keys(op.session)
    lines = [f"{line.hash} {line.text}" for line in op.lines]
    number = op.lines[0].number
    # Sent again, it finds its lines and adds none.
    command: Command = ("EVAL", _IMPORT, 1, build_audit_key(keys), number, *lines)
    (answer,) = yield context.send(keys.head, command)
    require(context, answer)


@HANDLERS.handles(ReadAudit)
def read_audit(context: RedisContext, op: ReadAudit) -> Plan[tuple[StoredLine, ...]]:
    """Read lines of the audit."""
    if op.start is None:
        _, newest = yield from _read_newest(context, op.session)
        return () if newest is None else (newest,)
    keys = context.keys(op.session)
    wanted = ("LRANGE", build_audit_key(keys), op.start, op.start + op.limit - 1)
    (found,) = yield context.send(keys.head, wanted)
    return tuple(
        _parse_line(number, value) for number, value in enumerate(require(context, found), op.start)
    )


def _read_newest(context: RedisContext, session: str) -> Plan[tuple[int, StoredLine | None]]:
    keys = context.keys(session)
    key = build_audit_key(keys)
    wanted = (("LLEN", key), ("LINDEX", key, -1))
    count, newest = yield context.send(keys.head, *wanted)
    total: int = require(context, count)
    value = require(context, newest)
    return total, None if value is None else _parse_line(total - 1, value)


def _read_time_ms(context: RedisContext, session: str) -> Plan[int]:
    if context.clock is not None:
        return read_clock_ms(context.clock)
    (told,) = yield context.send(context.keys(session).head, ("TIME",))
    seconds, micros = require(context, told)
    return int(seconds) * 1000 + int(micros) // 1000


def _parse_line(number: int, value: bytes) -> StoredLine:
    digest, _, text = value.decode("utf-8", "replace").partition(" ")
    return StoredLine(number, text, digest)
