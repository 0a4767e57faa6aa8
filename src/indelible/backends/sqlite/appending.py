"""An append in SQLite's words: look where the session stands, then one row for each entry."""

from __future__ import annotations

import json
from typing import Any

from indelible import view
from indelible.backends.sqlite.connection import Sql, SqlMany
from indelible.backends.sqlite.sessions import (
    POSITION_BITS,
    POSITION_MASK,
    Context,
    Place,
    living,
    place_of,
)
from indelible.core import rules
from indelible.core.codec import checksum_of
from indelible.core.limits import KEYS_KEPT
from indelible.core.plan import Plan, ask
from indelible.core.sources import MADE_PREFIX
from indelible.core.waist import Append, Appended
from indelible.model import Kind, Status

KIND_NUMBER = {
    Kind.MESSAGE: 1,
    Kind.TOOL_CALL: 2,
    Kind.TOOL_RESULT: 3,
    Kind.SUMMARY: 4,
}

_INSERT = """
    INSERT INTO entry (id, kind, written_at, deadline, batch, generation, keep, key, opens,
        answers, payload)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_BY_CALLERS_KEY = """
    SELECT id, batch, generation FROM entry
    WHERE id >> 32 = ? AND key = ? AND substr(key, 1, 1) <> '~' AND id >= ?
    ORDER BY id DESC LIMIT 1"""
_BY_MADE_KEY = """
    SELECT id, batch, generation FROM entry
    WHERE id >= ? AND id < ? AND key = ? ORDER BY id DESC LIMIT 1"""


def append(context: Context, step: Append) -> Plan[Appended]:
    """Put a batch at the end of the log."""
    place = yield from place_of(context, step.session)
    now_ms = context.now_ms()
    standing = place.standing
    status = rules.status_of(standing, now_ms)
    if step.stage is not None:
        rules.refuse_if_not_staged(step.session, step.stage, standing)
    if not step.fresh and (status is Status.ACTIVE or step.stage is not None):
        earlier = yield from _earlier(place, step)
        if earlier is not None:
            return earlier
    if step.expected is not None:
        version = rules.version_of(standing, status)
        rules.refuse_if_moved(step.session, step.expected, version)
    rules.refuse_if_full(step.session, standing.end if standing else 0, len(step.drafts))
    if standing is None or (status is not Status.ACTIVE and step.stage is None):
        place = yield from living(context, place, step.session, ttl_s=step.ttl_s)
        standing = place.standing
        assert standing is not None
    rows = _rows(step, place, now_ms, standing.end, standing.generation)
    yield Sql(_INSERT, rows[0]) if len(rows) == 1 else SqlMany(_INSERT, rows)
    end = standing.end + len(rows)
    version = rules.version_token(standing.life, end, standing.generation)
    return Appended(standing.end, len(rows), version)


def _rows(
    step: Append, place: Place, now_ms: int, first: int, generation: int
) -> list[tuple[Any, ...]]:
    deadline = rules.deadline_ms(now_ms, step.ttl_s)
    first_id = place.number << POSITION_BITS | first
    count = len(step.drafts)
    return [
        (
            first_id + offset,
            KIND_NUMBER[draft.kind],
            now_ms if draft.written_at_ms is None else draft.written_at_ms,
            deadline,
            0 if offset else count,
            generation,
            draft.keep,
            None if offset else step.key,
            _links(draft.opens),
            _links(draft.answers),
            draft.envelope,
        )
        for offset, draft in enumerate(step.drafts)
    ]


def _links(call_ids: tuple[str, ...]) -> str | None:
    return json.dumps(call_ids) if call_ids else None


def _earlier(place: Place, step: Append) -> Plan[Appended | None]:
    """The first attempt with this key, if it landed; other content under it is a conflict."""
    number, standing = place.number, place.standing
    assert standing is not None
    base = number << POSITION_BITS
    if step.key.startswith(MADE_PREFIX):
        oldest = max(standing.born, standing.end - KEYS_KEPT)
        look = Sql(_BY_MADE_KEY, (base | oldest, base + standing.end, step.key))
    else:
        look = Sql(_BY_CALLERS_KEY, (number, step.key, base | standing.born))
    rows = yield from ask(look)
    if not rows:
        return None
    entry_id, count, generation = rows[0]
    first = entry_id & POSITION_MASK
    stored = yield from ask(
        Sql(
            "SELECT payload FROM entry WHERE id >= ? AND id < ? ORDER BY id",
            (entry_id, entry_id + count),
        )
    )
    rules.refuse_other_content(step, first, [checksum_of(payload) for (payload,) in stored])
    ((tail, extents),) = yield from ask(
        Sql("SELECT tail, extents FROM session WHERE number = ?", (number,))
    )
    shown = view.view_of(view.decode(extents), tail)
    return Appended(
        first,
        count,
        rules.version_token(standing.life, first + count, generation),
        replayed=True,
        visible=rules.still_shows(shown, standing.end, first, count),
    )


def draft_links(text: str | None) -> tuple[str, ...]:
    """Call ids as they were handed in."""
    return tuple(json.loads(text)) if text else ()
