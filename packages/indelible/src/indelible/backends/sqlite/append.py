"""An append: load the session's state, let the rules decide, then one row for each entry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from indelible import view
from indelible.backends.sqlite.checksums import build_damage_error, is_intact
from indelible.backends.sqlite.connection import SqliteConnection
from indelible.backends.sqlite.handlers import WRITES
from indelible.backends.sqlite.sessions import (
    POSITION_MASK,
    SqliteSessionRow,
    begin_life,
    entry_ids,
    find_session,
    log_entry_ids,
    sync,
)
from indelible.core import rules
from indelible.core.checksums import compute_entry_checksum, compute_session_salt
from indelible.core.codec import CHECKSUM_BYTES, parse_checksum
from indelible.core.ids import MADE_PREFIX
from indelible.core.limits import KEYS_KEPT
from indelible.core.operations import Append, AppendResult, LogRow
from indelible.model import Kind, Status

KIND_NUMBER = {
    Kind.MESSAGE: 1,
    Kind.TOOL_CALL: 2,
    Kind.TOOL_RESULT: 3,
    Kind.SUMMARY: 4,
}

_INSERT = """
    INSERT INTO entry (id, kind, written_at, deadline, batch_size, generation, keep, key, opens,
        answers, payload, checksum)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_REPLACE = _INSERT.replace("INSERT", "INSERT OR REPLACE", 1)
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
_PAYLOADS = "SELECT payload FROM entry WHERE id >= ? AND id < ? ORDER BY id"


@WRITES.handles(Append)
def append(db: SqliteConnection, op: Append) -> AppendResult:
    """Append a batch to the log."""
    row = find_session(db, op.session)
    state = row.state
    now_ms = db.now_ms()
    status = rules.compute_status(state, now_ms)
    if not op.fresh and status is Status.ACTIVE:
        earlier = _find_earlier(db, row, op)
        if earlier is not None:
            return earlier
    if op.expected is not None:
        rules.refuse_if_moved(op.session, op.expected, rules.compute_version(state, status))
    count = len(op.drafts)
    rules.refuse_if_full(op.session, state.end if state else 0, count)
    if state is None or status is not Status.ACTIVE:
        row = begin_life(db, row, op.session, ttl_s=op.ttl_s)
        state = row.state
        assert state is not None
    first, generation = state.end, state.generation
    deadline_ms = rules.compute_deadline_ms(now_ms, op.ttl_s)
    salt = compute_session_salt(db.namespace, op.session)
    rows = [
        _build_row(
            row.number,
            salt,
            first + offset,
            kind,
            now_ms,
            deadline_ms,
            0 if offset else count,
            generation,
            keep,
            None if offset else op.key,
            opens,
            answers,
            envelope,
        )
        for offset, (kind, envelope, keep, opens, answers) in enumerate(op.drafts)
    ]
    db.execute_many(_INSERT, rows)
    return AppendResult(first, count, rules.build_version(state.life, first + count, generation))


def replace_entries(db: SqliteConnection, row: SqliteSessionRow, entries: Sequence[LogRow]) -> None:
    """Write rows of a copied log at their positions, over those that are there."""
    salt = compute_session_salt(db.namespace, row.name)
    db.execute_many(_REPLACE, [_build_row(row.number, salt, *entry[:-1]) for entry in entries])


def _build_row(
    number: int,
    salt: int,
    position: int,
    kind: Kind | None,
    written_at_ms: int,
    deadline_ms: int | None,
    batch: int,
    generation: int,
    keep: bool,
    key: str | None,
    opens: tuple[str, ...],
    answers: tuple[str, ...],
    envelope: bytes,
) -> tuple[Any, ...]:
    """Build the row of an entry; its place is part of its id and of its checksum."""
    return (
        entry_ids(number, position, position + 1)[0],
        KIND_NUMBER[kind] if kind is not None else 0,
        written_at_ms,
        deadline_ms,
        batch,
        generation,
        keep,
        key,
        json.dumps(opens) if opens else None,
        json.dumps(answers) if answers else None,
        envelope,
        compute_entry_checksum(
            salt,
            envelope,
            position=position,
            written_at_ms=written_at_ms,
            deadline_ms=deadline_ms,
            generation=generation,
            batch=batch,
        ),
    )


def _find_earlier(db: SqliteConnection, row: SqliteSessionRow, op: Append) -> AppendResult | None:
    """Return the result of the first append with this key; other content is a conflict."""
    state = row.state
    assert state is not None
    kept = db.execute(_BY_KEPT_KEY, (row.number, row.life, op.key))
    if kept:
        intact, first, count, generation, checksums = kept[0]
        if not intact:
            raise build_damage_error(f"the row of key {op.key!r}", op.session)
        stored = [
            checksums[at : at + CHECKSUM_BYTES] for at in range(0, len(checksums), CHECKSUM_BYTES)
        ]
    else:
        if op.key.startswith(MADE_PREFIX):
            oldest = max(state.born, state.end - KEYS_KEPT)
            ids = log_entry_ids(row, oldest, state.end)
            rows = db.execute(_BY_MADE_KEY, (*ids, op.key))
        else:
            low, _ = log_entry_ids(row, state.born, state.end)
            rows = db.execute(_BY_CALLERS_KEY, (row.number, op.key, low))
        if not rows:
            return None
        first_id, count, generation = rows[0]
        first = first_id & POSITION_MASK
        batch_ids = log_entry_ids(row, first, min(first + count, state.end))
        stored = [parse_checksum(payload) for (payload,) in db.execute(_PAYLOADS, batch_ids)]
    rules.refuse_different_content(op, first, stored)
    ((tail, extents),) = db.execute(
        "SELECT tail, extents FROM session WHERE number = ?", (row.number,)
    )
    sync(db, row)
    return AppendResult(
        first,
        count,
        rules.build_version(state.life, first + count, generation),
        replayed=True,
        visible=rules.is_visible(
            view.build_view(view.decode(extents), tail), state.end, first, count
        ),
    )


def decode_links(text: str | None) -> tuple[str, ...]:
    """Decode the call ids of a row; a `ValueError` if it does not hold any such."""
    if text is None:
        return ()
    call_ids = json.loads(text)
    if not isinstance(call_ids, list) or not all(isinstance(name, str) for name in call_ids):
        raise ValueError(text)
    return tuple(call_ids)
