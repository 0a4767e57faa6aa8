"""Operations of frameworks that need several verbs of a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol, TypeVar

from indelible import AsyncMemoryStore, ChatMessage, ConflictError, Entry, Receipt
from indelible.core.codec import encode, parse_checksum
from indelible.core.limits import PAGE_ENTRIES_MAX

T = TypeVar("T")

# Lost races before giving up; each one means that another writer succeeded.
_ATTEMPTS_MAX: Final = 200
# How often a batch with ids can be hidden and added again and still be recognised.
COMEBACKS_MAX: Final = 100
_MESSAGES: Final = ["message"]


class Page(Protocol):
    """What a verb returns in pages."""

    @property
    def cursor(self) -> str | None:
        """Opens the next page; None for the last one."""


P = TypeVar("P", bound=Page)


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


async def iter_pages(read: Callable[..., Awaitable[P]]) -> AsyncIterator[P]:
    """Iterate over the pages of a verb that takes a `cursor`."""
    page = await read()
    yield page
    while page.cursor is not None:
        page = await read(cursor=page.cursor)
        yield page


async def read_visible(store: AsyncMemoryStore, session_id: str) -> VisibleMessages:
    """Read all visible messages, with positions."""
    read = partial(store.get_entries, session_id, kinds=_MESSAGES, limit=PAGE_ENTRIES_MAX)
    pages = [page async for page in iter_pages(read)]
    return VisibleMessages([entry for page in pages for entry in page], pages[0].version)


async def iter_session_ids(store: AsyncMemoryStore, prefix: str) -> AsyncIterator[str]:
    """Iterate over the sessions whose ids begin with a prefix, by id."""
    async for page in iter_pages(partial(store.list_sessions, prefix=prefix, order="id")):
        for session_id in page.ids:
            yield session_id


async def pop(store: AsyncMemoryStore, session_id: str) -> ChatMessage | None:
    """Hide the newest message and return it; None if there is none.

    It is hidden only if it is still the newest at that moment.
    """

    async def attempt() -> ChatMessage | None:
        newest = await store.get_entries(session_id, kinds=_MESSAGES, last=1)
        return await _hide(store, session_id, newest[0], newest.version) if newest else None

    return await retry(session_id, attempt)


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

    async def attempt() -> ChatMessage | None:
        shown = await read_visible(store, session_id)
        places = listed(shown.messages)
        if not -len(places) <= index < len(places):
            return None
        return await _hide(store, session_id, shown.entries[places[index]], shown.version)

    return await retry(session_id, attempt)


async def replace(
    store: AsyncMemoryStore, session_id: str, messages: Sequence[ChatMessage]
) -> None:
    """Make exactly these messages visible.

    Messages that are there already stay. The rest is appended as one batch, and then the unwanted
    ones are hidden: an interruption in between loses nothing.
    """

    async def attempt() -> None:
        entries, version = await read_visible(store, session_id)
        unwanted, rest = compute_difference(entries, messages)
        if rest:
            await store.add_messages(session_id, rest, expected=version)
        if unwanted:
            await store.hide(session_id, unwanted, expected=None if rest else version)

    await retry(session_id, attempt)


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


async def _hide(
    store: AsyncMemoryStore, session_id: str, entry: Entry, version: str
) -> ChatMessage:
    await store.hide(session_id, [entry.position], expected=version)
    return get_message(entry)


async def retry(session_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Try something again as long as other writers are faster."""
    for _ in range(_ATTEMPTS_MAX):
        try:
            return await attempt()
        except ConflictError as conflict:
            if conflict.details.get("reason") not in ("version", "view", "gone"):
                raise
    raise build_race_error(session_id)


def build_race_error(session_id: str) -> ConflictError:
    """Build the error of one that others were faster than."""
    return ConflictError(
        f"others kept writing to session {session_id!r}; nothing was changed. Try again.",
        session=session_id,
        reason="version",
    )
