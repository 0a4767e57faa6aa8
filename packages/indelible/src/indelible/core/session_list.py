"""Lists of sessions: their orders, their filters, and where a page continues."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final, NamedTuple

import pydantic_core
from pydantic import JsonValue

from indelible import view
from indelible.core import filters
from indelible.core.clock import to_datetime
from indelible.core.filters import Filter
from indelible.core.limits import SESSION_ID_BYTES_MAX
from indelible.core.operations import Head, ListSessions, SessionOrder
from indelible.errors import FormatError, UsageError
from indelible.model import Status

# What sessions are ordered by.
ORDERS: Final = ("id", "last_activity", "created")
# What a filter may name, and what values these fields have.
FIELDS: Final[dict[str, type]] = {
    "status": str,
    "created_at": datetime,
    "last_activity": datetime,
    "expires_at": datetime,
    "entries": int,
    "logged": int,
    "forked_from": str,
}
# Longer than any session id, and after all of them.
_NAME_END: Final = "\U0010ffff" * (SESSION_ID_BYTES_MAX // 4 + 1)


class Place(NamedTuple):
    """Where a session is in an order: what it is ordered by, and its name."""

    value: int
    name: str

    def format(self) -> str:
        """Return the place as a text, for `ListSessions.resume`."""
        return json.dumps(self)


def parse_place(order: SessionOrder, resume: str | None) -> Place:
    """Return the place that a page begins after; one before all sessions for the first page."""
    if resume is not None:
        return Place(*json.loads(resume))
    return Place(2**62, _NAME_END) if order.descending else Place(-1, "")


def build_place(order: SessionOrder, name: str, created_ms: int, activity_ms: int) -> Place:
    """Return where a session is in an order."""
    return Place({"id": 0, "created": created_ms, "last_activity": activity_ms}[order.by], name)


def build_name_end(prefix: str) -> str:
    """Return a text that all session ids with this prefix come before."""
    return prefix + _NAME_END


def parse_order(order: object) -> SessionOrder | None:
    """Parse the order of a list; None is that of the engine."""
    if order is None:
        return None
    if isinstance(order, str) and order.removeprefix("-") in ORDERS:
        return SessionOrder(order.removeprefix("-"), descending=order.startswith("-"))
    known = ", ".join(f'"{name}"' for name in ORDERS)
    raise UsageError(f'order is one of {known}, or with "-" before it, not {order!r}', value=order)


def parse_where(where: object) -> Filter:
    """Parse the filter of a list."""
    conditions = filters.parse_filter(where, fields=tuple(FIELDS), documents=("metadata",))
    for key, name, value in conditions:
        if key not in FIELDS or name == "$exists":
            continue
        kind = FIELDS[key]
        for each in value if name == "$in" else [value]:
            if not isinstance(each, kind) or isinstance(each, bool):
                raise UsageError(f"where[{key!r}]: a {kind.__name__} is needed, not {each!r}")
            if key == "status" and each not in set(Status):
                known = ", ".join(Status)
                raise UsageError(f"where['status']: a status is one of {known}, not {each!r}")
    return conditions


def is_listed(op: ListSessions, name: str, head: Head | None) -> bool:
    """Return whether a session is in a list, by its head; None if it is damaged."""
    if not name.startswith(op.prefix):
        return False
    status = Status.DAMAGED if head is None else head.status
    names_status = any(condition.key == "status" for condition in op.where)
    if status not in (Status.ACTIVE, Status.DAMAGED) and not (op.dead or names_status):
        return False
    if not op.where:
        return True
    try:
        document = _build_document(name, status, head)
    except FormatError:
        document = {"status": Status.DAMAGED}
    return filters.matches(op.where, document)


def _build_document(name: str, status: Status, head: Head | None) -> dict[str, object]:
    """Build the document that a filter is applied to. Unknown fields are missing."""
    document: dict[str, object] = {"status": status}
    if head is None:
        return document
    times = {
        "created_at": head.created_at_ms,
        "last_activity": head.last_activity_ms,
        "expires_at": head.deadline_ms,
    }
    document |= {field: to_datetime(at) for field, at in times.items() if at is not None}
    if head.forked_from is not None:
        document["forked_from"] = head.forked_from
    entries = view.count(head.visible)
    logged, metadata = head.end - head.born, parse_metadata(name, head)
    return document | {"entries": entries, "logged": logged, "metadata": metadata}


def parse_metadata(session: str, head: Head) -> dict[str, JsonValue]:
    """Parse the metadata of a session."""
    try:
        metadata: dict[str, JsonValue] = pydantic_core.from_json(head.metadata)
    except ValueError as exc:
        raise FormatError(
            f"the metadata of session {session!r} is damaged; it was not changed"
        ) from exc
    return metadata
