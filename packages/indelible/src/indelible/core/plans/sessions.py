"""Plans about sessions as a whole: status, metadata and listing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic_core

from indelible import view
from indelible.core.clock import to_datetime
from indelible.core.codec import encode_json
from indelible.core.limits import METADATA_BYTES_MAX, SESSION_ID_BYTES_MAX
from indelible.core.operations import Head, ListSessions, ReadHead, SetMetadata
from indelible.core.plan import Plan, perform
from indelible.core.plans.read import check_limit
from indelible.core.settings import Settings, check_session_id, check_text, check_version
from indelible.errors import FormatError, LimitError, UsageError
from indelible.model import SessionIds, SessionInfo


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
    data = encode_json(dict(metadata), what="metadata")
    if len(data) > METADATA_BYTES_MAX:
        raise LimitError(
            f"metadata takes {len(data)} bytes; the limit is {METADATA_BYTES_MAX}",
            limit=METADATA_BYTES_MAX,
            actual=len(data),
        )
    head = yield from perform(
        SetMetadata(name, data, check_version(expected), settings.ttl_s(None))
    )
    return build_session_info(name, head)


def list_sessions(
    *, prefix: str, cursor: str | None, limit: int | None, expired: bool
) -> Plan[SessionIds]:
    """List a page of ids of active sessions, or of all that are still known."""
    if prefix != "":
        check_text(prefix, what="a prefix", bytes_max=SESSION_ID_BYTES_MAX)
    if cursor is not None:
        cursor = check_text(cursor, what="a cursor", bytes_max=SESSION_ID_BYTES_MAX)
    page = yield from perform(ListSessions(prefix, cursor, check_limit(limit), dead=expired))
    return SessionIds(page.names, page.resume)


def build_session_info(session_id: str, head: Head) -> SessionInfo:
    """Build the public description of a session."""
    try:
        metadata = pydantic_core.from_json(head.metadata)
    except ValueError as exc:
        raise FormatError(
            f"the metadata of session {session_id!r} is damaged; it was not changed"
        ) from exc
    deadline = head.deadline_ms
    return SessionInfo(
        session_id=session_id,
        status=head.status,
        version=head.version,
        entries=view.count(view.freeze(head.view, head.end)),
        logged=head.end - head.born,
        snapshots=head.snapshots,
        created_at=None if head.created_at_ms is None else to_datetime(head.created_at_ms),
        expires_at=None if deadline is None else to_datetime(deadline),
        ttl_s=None if deadline is None else max(0.0, (deadline - head.now_ms) / 1000),
        metadata=metadata,
        forked_from=head.forked_from,
    )
