"""Search by words: which entries have them, by the index of words, and which are visible."""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import Final, NamedTuple

from indelible.backends.sqlite.checksums import CONTENT
from indelible.backends.sqlite.connection import SqliteConnection
from indelible.backends.sqlite.text_index import read_totals
from indelible.backends.sqlite.transaction import (
    POSITION_BITS,
    POSITION_MASK,
    SqliteTransaction,
)
from indelible.core import ranking, rules
from indelible.core.checksums import CHECKSUM_MASK, compute_session_salt
from indelible.core.limits import COMMON_WORD_ENTRIES
from indelible.core.operations import (
    FindText,
    FrozenView,
    Head,
    StoredEntry,
    TextMatches,
    TextPage,
)
from indelible.core.ranking import Occurrences
from indelible.core.rows import KIND_BY_NUMBER, build_row_head

# FTS5 looks for a word in one range of row ids at a time. With more ranges than this, it looks
# through all that is between the first and the last.
_SPANS_MAX: Final = 128

Span = tuple[int, int]

_FIND: Final = "SELECT rowid FROM entry_text WHERE entry_text MATCH ? AND rowid >= ? AND rowid < ?"
_COUNT: Final = f"SELECT count(*) FROM ({_FIND} LIMIT ?)"
_COUNT_ENTRIES: Final = "SELECT count(*) FROM entry_text_docsize WHERE id >= ? AND id < ?"
_SESSIONS: Final = "SELECT number, name FROM session WHERE namespace = ?"
_UNINDEXED: Final = """
    SELECT session, name FROM unindexed JOIN session ON number = session WHERE namespace = ?"""
# The salt of each session is subtracted later.
_READ: Final = f"""
    SELECT id, kind, written_at, payload, {CONTENT.replace(":salt", "0")} FROM entry
    WHERE id IN (SELECT value FROM json_each(?))"""


class SearchedSessions(NamedTuple):
    """The sessions that are searched: names by numbers, or None for all."""

    names: dict[int, str] | None
    # Those of them that have entries which the index lacks.
    unindexed: dict[int, str]

    def build_spans(self) -> list[Span]:
        """Build the ranges of row ids that hold them; sessions side by side share one."""
        if self.names is None:
            return [(0, 2**63 - 1)]
        spans: list[Span] = []
        for number in sorted(self.names):
            start, stop = number << POSITION_BITS, (number + 1) << POSITION_BITS
            if spans and spans[-1][1] == start:
                spans[-1] = spans[-1][0], stop
            else:
                spans.append((start, stop))
        return spans


class SessionWithWords(NamedTuple):
    """A session that was found, and what of it is visible."""

    name: str
    head: Head
    frozen: FrozenView
    salt: int

    def shows(self, position: int) -> bool:
        """Return whether a position is visible."""
        extents = self.frozen.extents
        at = bisect_right(extents, (position, POSITION_MASK + 1)) - 1
        return at >= 0 and position < extents[at][1]


def find_text(db: SqliteConnection, op: FindText) -> TextPage:
    """Find the visible entries with the rarest words."""
    scope = _find_scope(db, op)
    words = _find_words(db, op, scope)
    ids, more = ranking.order_matches(words, op.limit)
    states: dict[int, SessionWithWords | None] = dict.fromkeys(scope.unindexed)
    found: dict[int, list[StoredEntry]] = {}
    count = 0
    for start in range(0, len(ids), op.limit):
        if count >= op.limit:
            more = True
            break
        visible: list[int] = []
        for entry_id in ids[start : start + op.limit]:
            number = entry_id >> POSITION_BITS
            if number not in states:
                states[number] = _load_state(db, op, number)
            state = states[number]
            if state is not None and state.shows(entry_id & POSITION_MASK):
                visible.append(entry_id)
        for entry_id, kind, written_at, payload, content in db.execute(
            _READ, (json.dumps(visible),)
        ):
            # One whose kind is unknown is damaged, and reported when it is decoded.
            if kind in KIND_BY_NUMBER and KIND_BY_NUMBER[kind] not in op.kinds:
                continue
            number = entry_id >> POSITION_BITS
            state = states[number]
            assert state is not None
            place = (entry_id & POSITION_MASK, KIND_BY_NUMBER.get(kind), written_at, payload)
            row = StoredEntry(*place, (content - state.salt) & CHECKSUM_MASK)
            found.setdefault(number, []).append(row)
            count += 1
    matches = [
        TextMatches(state.name, state.head, state.frozen, tuple(found[number]))
        for number, state in states.items()
        if state is not None and number in found
    ]
    return TextPage(
        tuple(matches),
        more,
        words.statistics,
        words.dropped,
        tuple(scope.unindexed.values()),
    )


def _load_state(db: SqliteConnection, op: FindText, number: int) -> SessionWithWords | None:
    """Load a session by its number; None if it is one of another namespace."""
    names = db.execute(f"{_SESSIONS} AND number = ?", (db.namespace, number))
    if not names:
        return None
    ((_, name),) = names
    tx = SqliteTransaction(db)
    head = build_row_head(tx.find_session(name), tx.now_ms())
    frozen = rules.choose_frozen_view(name, op.frozen, head)
    return SessionWithWords(name, head, frozen, compute_session_salt(db.namespace, name))


def _find_scope(db: SqliteConnection, op: FindText) -> SearchedSessions:
    """Find the sessions that a search is about, active or not."""
    unindexed: dict[int, str] = dict(db.execute(_UNINDEXED, (db.namespace,)))
    if op.sessions is not None:
        one = f"{_SESSIONS} AND name = ?"
        found = [row for name in op.sessions for row in db.execute(one, (db.namespace, name))]
    elif op.under is not None:
        below = f"{_SESSIONS} AND (name = ? OR name > ? AND name < ?)"
        # What comes next after a slash is a zero.
        bounds = (op.under, f"{op.under}/", f"{op.under}0")
        found = db.execute(below, (db.namespace, *bounds))
    else:
        return SearchedSessions(None, unindexed)
    names: dict[int, str] = dict(found)
    return SearchedSessions(
        names, {each: name for each, name in unindexed.items() if each in names}
    )


def _find_words(db: SqliteConnection, op: FindText, scope: SearchedSessions) -> Occurrences:
    """Find the entries that have each word, for words that are not too common."""
    words = {term: f'"{written}"' for term, written in op.words}
    spans = scope.build_spans()
    stored, length = read_totals(db)
    if not stored or not spans:
        return Occurrences(0, 0.0, {}, ())
    total = stored
    if scope.names is not None:
        total = sum(db.execute(_COUNT_ENTRIES, span)[0][0] for span in spans)
    scattered = len(spans) > _SPANS_MAX
    if scattered:
        spans = [(spans[0][0], spans[-1][1])]
    kept = words
    if scattered or total > COMMON_WORD_ENTRIES:
        kept = _drop_common(db, words, spans, stored if scattered else total)
    ids = {
        term: [entry_id for span in spans for (entry_id,) in db.execute(_FIND, (word, *span))]
        for term, word in kept.items()
    }
    if scattered and scope.names is not None:
        names = scope.names
        ids = {
            term: [entry_id for entry_id in each if entry_id >> POSITION_BITS in names]
            for term, each in ids.items()
        }
    return Occurrences(total, length / stored, ids, tuple(sorted(words.keys() - kept.keys())))


def _drop_common(
    db: SqliteConnection, words: dict[str, str], spans: list[Span], total: int
) -> dict[str, str]:
    """Leave out the words that many entries have; if all have many, keep the rarest one."""

    def count(word: str, most: int) -> int:
        return sum(db.execute(_COUNT, (word, *span, most))[0][0] for span in spans)

    most = ranking.compute_common_count(total)
    counts = {term: count(word, most + 1) for term, word in words.items()}
    common = {term for term, number in counts.items() if number > most}
    if common and not any(number for term, number in counts.items() if term not in common):
        common.remove(min(common, key=lambda term: (count(words[term], -1), term)))
    return {term: word for term, word in words.items() if term not in common}
