"""Plans that read. Each returns one state of the session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from indelible import view
from indelible.core.clock import to_datetime
from indelible.core.codec import decode_row, format_value
from indelible.core.content import get_content_text, has_text, to_common_role
from indelible.core.cursors import build_cursor, parse_cursor
from indelible.core.history import Entries, History
from indelible.core.limits import BYTES_PER_TOKEN, PAGE_ENTRIES_DEFAULT, PAGE_ENTRIES_MAX
from indelible.core.operations import (
    EntrySlice,
    FrozenView,
    Read,
    ReadCursorKey,
    ReadHead,
    ReadOutline,
    StoredEntry,
)
from indelible.core.plan import Plan, perform
from indelible.core.settings import check_session_id
from indelible.core.tool_calls import join_results
from indelible.errors import CorruptEntryError, FormatError, LimitError, UsageError
from indelible.model import (
    ChatMessage,
    CorruptEntry,
    Entry,
    Kind,
    ToolCallRecord,
    Value,
)

OnCorrupt = Literal["raise", "quarantine"]
CountTokens = Callable[[ChatMessage], int]
Parsed = TypeVar("Parsed")

MESSAGES = frozenset({Kind.MESSAGE})
# Enough messages to fill most prompts with one operation.
_TOKEN_PAGE = 64


class EntryDecoder:
    """Decodes rows. Damaged ones raise an error, or are collected in `corrupt`."""

    def __init__(self, session: str, on_corrupt: OnCorrupt = "raise") -> None:
        if on_corrupt not in ("raise", "quarantine"):
            raise UsageError(
                f'on_corrupt is "raise" or "quarantine", not {on_corrupt!r}', value=on_corrupt
            )
        self._session = session
        self._quarantine = on_corrupt == "quarantine"
        self.corrupt: list[CorruptEntry] = []

    def decode(self, row: StoredEntry) -> Value | None:
        """Decode a row; None if it is damaged and was collected."""
        try:
            return decode_row(row, session=self._session)
        except (CorruptEntryError, FormatError) as error:
            if not self._quarantine:
                raise
            reason = str(error.details.get("reason", error))
            self.corrupt.append(CorruptEntry(row.position, reason, row.envelope))
            return None

    def decode_all(self, rows: Sequence[StoredEntry]) -> list[Any]:
        """Decode rows; damaged ones that were collected are left out."""
        return [value for value in map(self.decode, rows) if value is not None]

    def to_entries(self, rows: Iterable[StoredEntry]) -> list[Entry]:
        """Decode rows to entries; damaged ones that were collected are left out."""
        return [entry for entry in map(self.to_entry, rows) if entry is not None]

    def to_entry(self, row: StoredEntry) -> Entry | None:
        """Decode a row to an entry; None if it is damaged and was collected."""
        value = self.decode(row)
        if value is None:
            return None
        assert row.kind is not None
        try:
            return Entry(row.position, row.kind, value, to_datetime(row.written_at_ms))
        except FormatError as error:
            if not self._quarantine:
                raise CorruptEntryError(
                    f"entry {row.position} of session {self._session!r} cannot be read:"
                    f" {error.message}",
                    session=self._session,
                    position=row.position,
                    reason=error.message,
                    raw=row.envelope,
                ) from error
            self.corrupt.append(CorruptEntry(row.position, error.message, row.envelope))
            return None


def read_history(
    session_id: str,
    *,
    last: int | None,
    max_tokens: int | None,
    count_tokens: CountTokens | None,
    on_corrupt: OnCorrupt,
) -> Plan[History]:
    """Read the visible messages, or the newest of them."""
    session = check_session_id(session_id)
    decoder = EntryDecoder(session, on_corrupt)
    last = check_count(last, "last")
    max_tokens = check_count(max_tokens, "max_tokens")
    if max_tokens is not None:
        return (yield from _read_within_tokens(session, last, max_tokens, count_tokens, decoder))
    if last == 0:
        head = yield from perform(ReadHead(session))
        return History([], version=head.version, status=head.status)
    found: EntrySlice = yield Read(session, None, MESSAGES, last, newest=last is not None)
    return _build_history(decoder.decode_all(found.rows), found, decoder)


def _read_within_tokens(
    session: str,
    last: int | None,
    max_tokens: int,
    count_tokens: CountTokens | None,
    decoder: EntryDecoder,
) -> Plan[History]:
    """Read the newest messages that fit: backwards from the end, page by page, in one state."""
    kept: list[ChatMessage] = []
    left = max_tokens
    op = Read(session, kinds=MESSAGES, limit=_TOKEN_PAGE, newest=True)
    while True:
        found = yield from perform(op)
        for row in reversed(found.rows):
            message = decoder.decode(row)
            if not isinstance(message, ChatMessage):
                continue
            left -= count_tokens(message) if count_tokens else estimate_tokens(len(row.envelope))
            if left < 0 or (last is not None and len(kept) == last):
                return _build_history(kept[::-1], found, decoder)
            kept.append(message)
        if found.resume is None:
            return _build_history(kept[::-1], found, decoder)
        op = replace(op, frozen=found.frozen, start=found.resume)


def estimate_tokens(size_bytes: int) -> int:
    """Estimate tokens from stored bytes, rounded up."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def _build_history(messages: list[Any], found: EntrySlice, decoder: EntryDecoder) -> History:
    return History(
        messages,
        version=found.frozen.version,
        status=found.head.status,
        corrupt=tuple(decoder.corrupt),
    )


def read_turns(session_id: str) -> Plan[list[dict[str, Any]]]:
    """Read the conversation as turns."""
    messages = yield from read_history(
        session_id, last=None, max_tokens=None, count_tokens=None, on_corrupt="raise"
    )
    turns: list[dict[str, Any]] = []
    for message in messages:
        # None if the message has only tool calls, tool results or thinking.
        text = get_content_text(message.content) or ("" if has_text(message.content) else None)
        if is_users(message):
            # A user's message with only a tool result does not open a turn.
            if text is not None or message.content is None:
                turns.append({"human": text, "ai": None})
        elif to_common_role(message.role) == "assistant":
            if turns and turns[-1]["ai"] is None:
                turns[-1]["ai"] = text
            else:
                turns.append({"human": None, "ai": text})
    return turns


def is_users(message: ChatMessage) -> bool:
    """Return whether a message has the role of a user."""
    return to_common_role(message.role) == "user"


def read_entries(
    session_id: str,
    *,
    kinds: Iterable[Kind | str] | None,
    last: int | None,
    limit: int | None,
    cursor: str | None,
    on_corrupt: OnCorrupt,
) -> Plan[Entries]:
    """Read a page of the visible entries, or the newest of them."""
    session = check_session_id(session_id)
    decoder = EntryDecoder(session, on_corrupt)
    if last is not None and (limit is not None or cursor is not None):
        raise UsageError("last= cannot be combined with limit= or cursor=")
    frozen: FrozenView | None = None
    start: int | None = None
    if cursor is not None:
        frozen, start = yield from verify_cursor(lambda key: parse_cursor(key, session, cursor))
    found = yield from perform(
        Read(
            session,
            frozen=frozen,
            kinds=check_kinds(kinds),
            limit=check_limit(limit if last is None else last),
            newest=last is not None,
            start=start,
        )
    )
    following: str | None = None
    if found.resume is not None and last is None:
        key = yield from perform(ReadCursorKey())
        following = build_cursor(key, session, found.frozen, found.resume)
    return Entries(
        decoder.to_entries(found.rows),
        version=found.frozen.version,
        status=found.head.status,
        corrupt=tuple(decoder.corrupt),
        cursor=following,
    )


def verify_cursor(parse: Callable[[bytes], Parsed]) -> Plan[Parsed]:
    """Return what a cursor says, if `parse` accepts its signature by the store's key."""
    key = yield from perform(ReadCursorKey())
    try:
        return parse(key)
    except UsageError:
        # The server may have lost the key, and another process may have created a new one.
        newest = yield from perform(ReadCursorKey(again=True))
        if newest == key:
            raise
        return parse(newest)


def check_number(number: int, what: str, *, least: int) -> int:
    """Check a whole number that has a lower bound."""
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        shown = format_value(number)
        raise UsageError(f"{what} is a number from {least} up, not {shown}", value=number)
    return number


def check_count(count: int | None, what: str) -> int | None:
    """Check a count, which may be zero or None."""
    return None if count is None else check_number(count, what, least=0)


def check_limit(limit: int | None) -> int:
    """Check the size of a page."""
    if limit is None:
        return PAGE_ENTRIES_DEFAULT
    check_number(limit, "limit", least=1)
    if limit > PAGE_ENTRIES_MAX:
        raise LimitError(
            f"a page of {limit} is over the limit of {PAGE_ENTRIES_MAX}",
            limit=PAGE_ENTRIES_MAX,
            actual=limit,
        )
    return limit


def check_kinds(kinds: Iterable[Kind | str] | None) -> frozenset[Kind] | None:
    """Check the kinds of entry to read."""
    if kinds is None:
        return None
    if isinstance(kinds, str):
        kinds = [kinds]
    try:
        return frozenset(Kind(kind) for kind in kinds)
    except (ValueError, TypeError):
        known = ", ".join(Kind)
        raise UsageError(f"kinds are of {known}, not {kinds!r}", value=kinds) from None


def read_tool_calls(session_id: str) -> Plan[list[ToolCallRecord]]:
    """Read the visible tool calls in order; orphaned results come last."""
    session = check_session_id(session_id)
    outlined = yield from perform(ReadOutline(session))
    head = outlined.head
    linked = view.from_positions(
        entry.position for entry in outlined.entries if entry.opens or entry.answers
    )
    if not linked:
        return []
    found = yield from perform(Read(session, frozen=head.freeze(linked)))
    return join_results(EntryDecoder(session).to_entries(found.rows))
