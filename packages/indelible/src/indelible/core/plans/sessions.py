"""Plans about sessions as a whole: status, metadata and listing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from indelible import view
from indelible.core import session_list
from indelible.core.clock import to_datetime
from indelible.core.codec import encode_metadata
from indelible.core.cursors import build_list_cursor, parse_list_cursor
from indelible.core.limits import PAGE_ENTRIES_MAX, SESSION_ID_BYTES_MAX
from indelible.core.operations import Head, ListSessions, ReadCursorKey, ReadHead, SetMetadata
from indelible.core.plan import Plan, perform
from indelible.core.plans.read import check_limit, check_number, verify_cursor
from indelible.core.settings import Settings, check_session_id, check_text, check_version
from indelible.errors import FormatError, UsageError
from indelible.model import SessionInfo, SessionList, Status

# Called with the session just finished, and the entries so far.
Progress = Callable[[str, int], None]


def read_session(session_id: str) -> Plan[SessionInfo]:
    """Read the current state of a session."""
    name = check_session_id(session_id)
    return build_session_info(name, (yield from perform(ReadHead(name, count_snapshots=True))))


def set_metadata(
    settings: Settings,
    session_id: str,
    metadata: Mapping[str, Any],
    *,
    expected: str | None,
) -> Plan[SessionInfo]:
    """Replace a session's metadata."""
    name = check_session_id(session_id)
    if not isinstance(metadata, Mapping):
        raise UsageError(f"metadata is a mapping, not {metadata!r}", value=metadata)
    data = encode_metadata(dict(metadata))
    head = yield from perform(
        SetMetadata(name, data, check_version(expected), settings.ttl_s(None))
    )
    return build_session_info(name, head)


def change_metadata(
    settings: Settings,
    session_id: str,
    change: Callable[[dict[str, JsonValue]], dict[str, JsonValue]],
) -> Plan[None]:
    """Replace a session's metadata by what `change` makes of it.

    It is a conflict if others have replaced it since it was read.
    """
    name = check_session_id(session_id)
    head = yield from perform(ReadHead(name))
    before = session_list.parse_metadata(name, head)
    after = change(before)
    if after != before:
        data, ttl_s = encode_metadata(after), settings.ttl_s(None)
        yield from perform(SetMetadata(name, data, None, ttl_s, replaces=head.metadata))


def list_sessions(
    *,
    prefix: str,
    where: Mapping[str, Any] | None,
    order: str | None,
    cursor: str | None,
    limit: int | None,
    expired: bool,
    scan_max: int | None,
) -> Plan[SessionList]:
    """List a page of active sessions, or of all that are still known."""
    check_prefix(prefix)
    if scan_max is not None:
        check_number(scan_max, "scan_max", least=1)
    op = ListSessions(
        prefix,
        None,
        check_limit(limit),
        dead=expired,
        where=session_list.parse_where(where),
        order=session_list.parse_order(order),
        scan_max=scan_max,
    )
    # What a cursor is bound to.
    asked = repr((op.prefix, op.dead, op.where, op.order))
    if cursor is not None:
        resume = yield from verify_cursor(lambda key: parse_list_cursor(key, asked, cursor))
        op = replace(op, resume=resume)
    page = yield from perform(op)
    following: str | None = None
    if page.resume is not None:
        key = yield from perform(ReadCursorKey())
        following = build_list_cursor(key, asked, page.resume)
    return SessionList((_build_listed_info(*session) for session in page.sessions), following)


def check_prefix(prefix: str) -> None:
    """Check the beginning of session ids to list; all of them begin with an empty one."""
    if prefix != "":
        check_text(prefix, what="a prefix", bytes_max=SESSION_ID_BYTES_MAX)


def list_all_sessions(
    session_id: str | None, *, prefix: str = "", dead: bool = False, damaged: bool = False
) -> Plan[list[str]]:
    """Return the id of the given session, or the ids of all sessions."""
    if session_id is not None:
        return [check_session_id(session_id)]
    names: list[str] = []
    resume: str | None = None
    while True:
        page = yield from perform(ListSessions(prefix, resume, PAGE_ENTRIES_MAX, dead, damaged))
        names += page.names
        resume = page.resume
        if resume is None:
            return list(dict.fromkeys(names))


def _build_listed_info(session_id: str, head: Head | None) -> SessionInfo:
    """Build the description of a session in a list, which one that is damaged must not end."""
    if head is not None:
        with suppress(FormatError):
            return build_session_info(session_id, head)
    damaged = Head(Status.DAMAGED, "", 0, 0, view.View(), 0, "")
    return build_session_info(session_id, damaged)


def build_session_info(session_id: str, head: Head) -> SessionInfo:
    """Build the public description of a session."""
    deadline = head.deadline_ms
    return SessionInfo(
        session_id=session_id,
        status=head.status,
        version=head.version,
        entries=view.count(head.visible),
        logged=head.end - head.born,
        snapshots=head.snapshots,
        created_at=_to_time(head.created_at_ms),
        last_activity=_to_time(head.last_activity_ms),
        expires_at=_to_time(deadline),
        ttl_s=None if deadline is None else max(0.0, (deadline - head.now_ms) / 1000),
        metadata=session_list.parse_metadata(session_id, head),
        forked_from=head.forked_from,
    )


def _to_time(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else to_datetime(at_ms)
