"""Operations of frameworks that need several verbs of a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from indelible import AsyncMemoryStore, ChatMessage, ConflictError, Entry, Receipt
from indelible.core.codec import encode, parse_checksum
from indelible.core.limits import PAGE_ENTRIES_MAX

# Lost races before giving up; each one means that another writer succeeded.
ATTEMPTS_MAX: Final = 200
# How often a batch with ids can be hidden and added again and still be recognised.
COMEBACKS_MAX: Final = 100
_MESSAGES: Final = ["message"]


class VisibleMessages(NamedTuple):
    """The visible messages of one state, with positions, and its version."""

    entries: list[Entry]
    version: str

    @property
    def messages(self) -> list[ChatMessage]:
        """The messages without positions."""
        return [get_message(entry) for entry in self.entries]


def get_message(entry: Entry) -> ChatMessage:
    """Return the message of an entry."""
    assert isinstance(entry.value, ChatMessage)
    return entry.value


async def append(
    store: AsyncMemoryStore,
    session_id: str,
    messages: Sequence[ChatMessage],
    *,
    identified: bool,
    expected: str | None = None,
) -> Receipt | None:
    """Append messages as one batch; an empty batch does nothing.

    `identified` says that at least one message has an id of the framework. Then repeating the batch
    writes nothing, unless its entries were hidden since.
    """
    if not messages:
        return None
    if identified:
        sums = b"".join(parse_checksum(encode(message).envelope) for message in messages)
        base = "ids:" + blake2b(sums, digest_size=16).hexdigest()
        for comeback in range(COMEBACKS_MAX):
            key = f"{base}#{comeback}" if comeback else base
            receipt = await store.add_messages(
                session_id, messages, key=key, expected=expected, replay="hidden-ok"
            )
            if receipt.visible:
                return receipt
    return await store.add_messages(session_id, messages, expected=expected)


async def read_visible(store: AsyncMemoryStore, session_id: str) -> VisibleMessages:
    """Read all visible messages, with positions."""
    page = await store.get_entries(session_id, kinds=_MESSAGES, limit=PAGE_ENTRIES_MAX)
    entries, version = list(page), page.version
    while page.cursor is not None:
        page = await store.get_entries(
            session_id, kinds=_MESSAGES, limit=PAGE_ENTRIES_MAX, cursor=page.cursor
        )
        entries += page
    return VisibleMessages(entries, version)


async def pop(store: AsyncMemoryStore, session_id: str) -> ChatMessage | None:
    """Hide the newest message and return it; None if there is none.

    It is hidden only if it is still the newest at that moment.
    """
    for _ in range(ATTEMPTS_MAX):
        newest = await store.get_entries(session_id, kinds=_MESSAGES, last=1)
        if not newest:
            return None
        if await _try_hide(store, session_id, [newest[0].position], newest.version):
            return get_message(newest[0])
    raise build_race_error(session_id)


async def pop_at(
    store: AsyncMemoryStore,
    session_id: str,
    index: int,
    *,
    listed: Callable[[Sequence[ChatMessage]], list[int]],
) -> ChatMessage | None:
    """Hide a message by its index in the framework's list and return it; None if out of range.

    `listed` returns, for each item of the framework's list, the index of its stored message.
    """
    for _ in range(ATTEMPTS_MAX):
        shown = await read_visible(store, session_id)
        places = listed(shown.messages)
        if not -len(places) <= index < len(places):
            return None
        entry = shown.entries[places[index]]
        if await _try_hide(store, session_id, [entry.position], shown.version):
            return get_message(entry)
    raise build_race_error(session_id)


async def replace(
    store: AsyncMemoryStore, session_id: str, messages: Sequence[ChatMessage]
) -> None:
    """Make exactly these messages visible.

    Messages that are there already stay. The rest is appended as one batch, and then the unwanted
    ones are hidden: an interruption in between loses nothing.
    """
    for _ in range(ATTEMPTS_MAX):
        entries, version = await read_visible(store, session_id)
        unwanted, rest = compute_difference(entries, messages)
        unmoved: str | None = version
        try:
            if rest:
                await store.add_messages(session_id, rest, expected=version)
                unmoved = None
            if not unwanted or await _try_hide(store, session_id, unwanted, unmoved):
                return
        except ConflictError as conflict:
            if not is_race(conflict):
                raise
    raise build_race_error(session_id)


def compute_difference(
    entries: Sequence[Entry], wanted: Sequence[ChatMessage]
) -> tuple[list[int], list[ChatMessage]]:
    """Return the positions to hide, and the messages to append."""
    unwanted: list[int] = []
    matched = 0
    for entry in entries:
        if matched < len(wanted) and entry.value == wanted[matched]:
            matched += 1
        else:
            unwanted.append(entry.position)
    return unwanted, list(wanted[matched:])


async def _try_hide(
    store: AsyncMemoryStore, session_id: str, positions: list[int], version: str | None
) -> bool:
    """Hide positions; return False if the session changed since that version."""
    try:
        await store.hide(session_id, positions, expected=version)
    except ConflictError as conflict:
        if not is_race(conflict):
            raise
        return False
    return True


def is_race(conflict: ConflictError) -> bool:
    """Return whether another writer was faster, so that a retry may succeed."""
    reason: Any = conflict.details.get("reason")
    return reason in ("version", "view")


def build_race_error(session_id: str) -> ConflictError:
    """Build the error after too many lost races."""
    return ConflictError(
        f"others kept writing to session {session_id!r}; nothing was changed. Try again.",
        session=session_id,
        reason="version",
    )
