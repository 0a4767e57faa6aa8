"""What frameworks do to a conversation and indelible has no single verb for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from indelible import AsyncMemoryStore, ChatMessage, ConflictError, Entry, Receipt
from indelible.core.codec import encode, parse_checksum
from indelible.core.limits import PAGE_ENTRIES_MAX

# Whoever loses a race this often gives up; each loss means that somebody else got on.
ATTEMPTS_MAX: Final = 200
# How often an identified batch can be taken away and added again before it is no longer known.
COMEBACKS_MAX: Final = 100
_MESSAGES: Final = ["message"]


class Shown(NamedTuple):
    """The messages of one state, with their positions, and the version of that state."""

    entries: list[Entry]
    version: str

    @property
    def messages(self) -> list[ChatMessage]:
        """The messages alone."""
        return [message_of(entry) for entry in self.entries]


def message_of(entry: Entry) -> ChatMessage:
    """The message that an entry holds."""
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
    """Add messages as one batch; none at all is nothing to do.

    `identified` says that the framework named at least one of them by an id of its own: then the
    same batch again is the same append. If it was taken away meanwhile it is added anew.
    """
    if not messages:
        return None
    if identified:
        base = _key_of(messages)
        for comeback in range(COMEBACKS_MAX):
            key = f"{base}#{comeback}" if comeback else base
            receipt = await store.add_messages(
                session_id, messages, key=key, expected=expected, replay="hidden-ok"
            )
            if receipt.visible:
                return receipt
    return await store.add_messages(session_id, messages, expected=expected)


def _key_of(messages: Sequence[ChatMessage]) -> str:
    sums = b"".join(parse_checksum(encode(message).envelope) for message in messages)
    return "ids:" + blake2b(sums, digest_size=16).hexdigest()


async def all_shown(store: AsyncMemoryStore, session_id: str) -> Shown:
    """Every message that a session shows, with positions."""
    page = await store.get_entries(session_id, kinds=_MESSAGES, limit=PAGE_ENTRIES_MAX)
    entries, version = list(page), page.version
    while page.cursor is not None:
        page = await store.get_entries(
            session_id, kinds=_MESSAGES, limit=PAGE_ENTRIES_MAX, cursor=page.cursor
        )
        entries += page
    return Shown(entries, version)


async def pop(store: AsyncMemoryStore, session_id: str) -> ChatMessage | None:
    """Take the newest message away and return it; None if there is none.

    It is hidden, not deleted, and only if it is still the newest at that moment.
    """
    for _ in range(ATTEMPTS_MAX):
        newest = await store.get_entries(session_id, kinds=_MESSAGES, last=1)
        if not newest:
            return None
        if await _hidden(store, session_id, [newest[0].position], newest.version):
            return message_of(newest[0])
    raise kept_moving(session_id)


async def pop_at(
    store: AsyncMemoryStore,
    session_id: str,
    index: int,
    *,
    listed: Callable[[Sequence[ChatMessage]], list[int]],
) -> ChatMessage | None:
    """Take one message away by its place in the list and return it; None if there is no such.

    `listed` gives, for each place in the framework's list, the index of the stored message.
    """
    for _ in range(ATTEMPTS_MAX):
        shown = await all_shown(store, session_id)
        places = listed(shown.messages)
        if not -len(places) <= index < len(places):
            return None
        entry = shown.entries[places[index]]
        if await _hidden(store, session_id, [entry.position], shown.version):
            return message_of(entry)
    raise kept_moving(session_id)


async def replace(
    store: AsyncMemoryStore, session_id: str, messages: Sequence[ChatMessage]
) -> None:
    """Show these messages and no others.

    What is there already stays, in its order; the rest is added behind it as one batch, and what is
    no longer wanted is hidden after that. So whoever stops in between has lost nothing.
    """
    for _ in range(ATTEMPTS_MAX):
        entries, version = await all_shown(store, session_id)
        unwanted, rest = difference(entries, messages)
        unmoved: str | None = version
        try:
            if rest:
                await store.add_messages(session_id, rest, expected=version)
                unmoved = None
            if not unwanted or await _hidden(store, session_id, unwanted, unmoved):
                return
        except ConflictError as conflict:
            if not is_race(conflict):
                raise
    raise kept_moving(session_id)


def difference(
    entries: Sequence[Entry], wanted: Sequence[ChatMessage]
) -> tuple[list[int], list[ChatMessage]]:
    """The positions that a list has no use for, and what of it is to be added behind the others."""
    unwanted: list[int] = []
    matched = 0
    for entry in entries:
        if matched < len(wanted) and entry.value == wanted[matched]:
            matched += 1
        else:
            unwanted.append(entry.position)
    return unwanted, list(wanted[matched:])


async def _hidden(
    store: AsyncMemoryStore, session_id: str, positions: list[int], version: str | None
) -> bool:
    """Whether they were hidden; not if somebody wrote since that version."""
    try:
        await store.hide(session_id, positions, expected=version)
    except ConflictError as conflict:
        if not is_race(conflict):
            raise
        return False
    return True


def is_race(conflict: ConflictError) -> bool:
    """Whether somebody else was faster, so that looking again may help."""
    reason: Any = conflict.details.get("reason")
    return reason in ("version", "view")


def kept_moving(session_id: str) -> ConflictError:
    """Others were faster every time."""
    return ConflictError(
        f"others kept writing to session {session_id!r}; nothing was changed. Try again.",
        session=session_id,
        reason="version",
    )
