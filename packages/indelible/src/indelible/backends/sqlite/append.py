"""An append in SQLite's words: look where the session stands, then one row for each entry."""

from __future__ import annotations

import json
from typing import Any

from indelible import view
from indelible.backends.sqlite.checksums import damaged_row, is_intact
from indelible.backends.sqlite.connection import Do, Sql, SqlMany
from indelible.backends.sqlite.sessions import (
    POSITION_MASK,
    TIPS_MAX,
    Context,
    SessionRow,
    Tip,
    ensure_active,
    entry_id,
    entry_ids,
    find_session,
    touch,
)
from indelible.core import rules
from indelible.core.checksums import entry_checksum, session_salt
from indelible.core.codec import CHECKSUM_BYTES, compute_checksum
from indelible.core.ids import MADE_PREFIX
from indelible.core.limits import KEYS_KEPT, LOG_ENTRIES_MAX
from indelible.core.operations import Append, AppendResult, Draft
from indelible.core.plan import Plan, perform
from indelible.model import Kind, Status

KIND_NUMBER = {
    Kind.MESSAGE: 1,
    Kind.TOOL_CALL: 2,
    Kind.TOOL_RESULT: 3,
    Kind.SUMMARY: 4,
}

INSERT = """
    INSERT INTO entry (id, kind, written_at, deadline, batch_size, generation, keep, key, opens,
        answers, payload, checksum)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_BY_CALLERS_KEY = """
    SELECT id, batch_size, generation FROM entry
    WHERE id >> 32 = ? AND key = ? AND substr(key, 1, 1) <> '~' AND id >= ?
    ORDER BY id DESC LIMIT 1"""
_BY_KEPT_KEY = f"""
    SELECT {is_intact("kept_key")}, position, entries, generation, checksums FROM kept_key
    WHERE session = ? AND life = ? AND key = ?"""  # noqa: S608 (constants)
_BY_MADE_KEY = """
    SELECT id, batch_size, generation FROM entry
    WHERE id >= ? AND id < ? AND key = ? ORDER BY id DESC LIMIT 1"""


# The session is as we left it, and the position behind our last entry is free: then nobody wrote
# since, and this one statement is the whole append. Else it changes nothing, and we look first.
# (A session's number is never given again, so that it need not be asked for by name.)
INSERT_IF_STILL = """
    INSERT OR IGNORE INTO entry (id, kind, written_at, deadline, batch_size, generation, keep, key,
        opens, answers, payload, checksum)
    SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM session
    WHERE number = ? AND life = ? AND generation = ? AND staged = 0
    """


def shortcut(context: Context, op: Append) -> tuple[Any, ...] | None:
    """What to give to `INSERT_IF_STILL`, which may be enough; None if an append must look first."""
    tip = context.tips.get(op.session)
    if (
        tip is None
        or not op.fresh
        or op.expected is not None
        or len(op.drafts) != 1
        or tip.end >= LOG_ENTRIES_MAX
    ):
        return None
    now_ms = int(context.clock() * 1000)
    if tip.deadline is not None and now_ms >= tip.deadline:
        return None
    deadline = None if op.ttl_s is None else rules.compute_deadline_ms(now_ms, op.ttl_s)
    return (
        *_row(
            op.drafts[0],
            tip.salt,
            entry_id(tip.number, tip.end),
            now_ms,
            deadline,
            1,
            tip.generation,
            op.key,
        ),
        tip.number,
        tip.life,
        tip.generation,
    )


def build_result(
    context: Context, op: Append, given: tuple[Any, ...], changed: int
) -> AppendResult | None:
    """What a shortcut came to; None, and the guess is forgotten, if it changed no row."""
    if not changed:
        # Somebody else wrote; where the session stands now is for the plan to find.
        context.tips.pop(op.session, None)
        return None
    tip = context.tips[op.session]
    first = tip.end
    tip.end = first + 1
    tip.deadline = given[3]
    version = rules.build_version(tip.token, tip.end, tip.generation)
    return AppendResult(first, 1, version)


def append(context: Context, op: Append) -> Plan[AppendResult]:
    """Put a batch at the end of the log."""
    place = yield from find_session(context, op.session)
    now_ms = context.now_ms()
    standing = place.standing
    status = rules.compute_status(standing, now_ms)
    if not op.fresh and status is Status.ACTIVE:
        earlier = yield from _earlier(place, op)
        if earlier is not None:
            return earlier
    if op.expected is not None:
        version = rules.compute_version(standing, status)
        rules.refuse_if_moved(op.session, op.expected, version)
    rules.refuse_if_full(op.session, standing.end if standing else 0, len(op.drafts))
    if standing is None or status is not Status.ACTIVE:
        place = yield from ensure_active(context, place, op.session, ttl_s=op.ttl_s)
        standing = place.standing
        assert standing is not None
    count = len(op.drafts)
    deadline = rules.compute_deadline_ms(now_ms, op.ttl_s)
    first_id = entry_id(place.number, standing.end)
    salt = session_salt(context.namespace, op.session)
    rows = [
        _row(
            draft,
            salt,
            first_id + offset,
            now_ms,
            deadline,
            0 if offset else count,
            standing.generation,
            None if offset else op.key,
        )
        for offset, draft in enumerate(op.drafts)
    ]
    yield Do(INSERT, rows[0]) if count == 1 else SqlMany(INSERT, rows)
    end = standing.end + count
    if len(context.tips) >= TIPS_MAX:
        context.tips.clear()
    context.tips[op.session] = Tip(
        place.number, place.life, standing.life, end, standing.generation, deadline, salt
    )
    version = rules.build_version(standing.life, end, standing.generation)
    return AppendResult(standing.end, count, version)


def _row(
    draft: Draft,
    salt: int,
    row_id: int,
    now_ms: int,
    deadline: int | None,
    batch: int,
    generation: int,
    key: str | None,
) -> tuple[Any, ...]:
    kind, envelope, keep, opens, answers = draft
    return (
        row_id,
        KIND_NUMBER[kind],
        now_ms,
        deadline,
        batch,
        generation,
        keep,
        key,
        encode_links(opens) if opens else None,
        encode_links(answers) if answers else None,
        envelope,
        entry_checksum(
            salt,
            envelope,
            position=row_id & POSITION_MASK,
            written_at_ms=now_ms,
            deadline_ms=deadline,
            generation=generation,
            batch=batch,
        ),
    )


def encode_links(call_ids: tuple[str, ...]) -> str | None:
    """Call ids as a row keeps them."""
    return json.dumps(call_ids) if call_ids else None


def _earlier(place: SessionRow, op: Append) -> Plan[AppendResult | None]:
    """The first attempt with this key, if it landed; other content under it is a conflict."""
    number, standing = place.number, place.standing
    assert standing is not None
    kept = yield from perform(Sql(_BY_KEPT_KEY, (number, place.life, op.key)))
    if kept:
        intact, first, count, generation, checksums = kept[0]
        if not intact:
            raise damaged_row(f"the row of key {op.key!r}", op.session)
        stored = [
            checksums[at : at + CHECKSUM_BYTES] for at in range(0, len(checksums), CHECKSUM_BYTES)
        ]
        return (yield from _replayed(place, op, first, count, generation, stored))
    if op.key.startswith(MADE_PREFIX):
        oldest = max(standing.born, standing.end - KEYS_KEPT)
        look = Sql(_BY_MADE_KEY, (*entry_ids(place, oldest, standing.end), op.key))
    else:
        low, _ = entry_ids(place, standing.born, standing.end)
        look = Sql(_BY_CALLERS_KEY, (number, op.key, low))
    rows = yield from perform(look)
    if not rows:
        return None
    found_id, count, generation = rows[0]
    first = found_id & POSITION_MASK
    payloads = yield from perform(
        Sql(
            "SELECT payload FROM entry WHERE id >= ? AND id < ? ORDER BY id",
            entry_ids(place, first, min(first + count, standing.end)),
        )
    )
    stored = [compute_checksum(payload) for (payload,) in payloads]
    return (yield from _replayed(place, op, first, count, generation, stored))


def _replayed(
    place: SessionRow, op: Append, first: int, count: int, generation: int, stored: list[bytes]
) -> Plan[AppendResult]:
    """The first receipt once more; other content under the key is a conflict."""
    standing = place.standing
    assert standing is not None
    rules.refuse_different_content(op, first, stored)
    ((tail, extents),) = yield from perform(
        Sql("SELECT tail, extents FROM session WHERE number = ?", (place.number,))
    )
    shown = view.build_view(view.decode(extents), tail)
    yield touch(place)
    return AppendResult(
        first,
        count,
        rules.build_version(standing.life, first + count, generation),
        replayed=True,
        visible=rules.is_visible(shown, standing.end, first, count),
    )


def decode_links(text: str | None) -> tuple[str, ...]:
    """Call ids as they were handed in; a `ValueError` if the row does not hold any such."""
    if text is None:
        return ()
    call_ids = json.loads(text)
    if not isinstance(call_ids, list) or not all(isinstance(name, str) for name in call_ids):
        raise ValueError(text)
    return tuple(call_ids)
