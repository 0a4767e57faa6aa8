"""What reads return: lists with the state of the session that they show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self, SupportsIndex, TypeVar, overload

from indelible.core.provider_messages import to_anthropic, to_openai
from indelible.model import ChatMessage, CorruptEntry, Entry, Status

Item = TypeVar("Item")


class ReadList(list[Item]):
    """The result of a read: a list with the state of the session that it shows."""

    def __init__(
        self,
        items: Iterable[Item],
        *,
        version: str,
        status: Status,
        corrupt: tuple[CorruptEntry, ...] = (),
        cursor: str | None = None,
    ) -> None:
        super().__init__(items)
        #: Pass it as `expected=` to append only if the session has not changed since.
        self.version = version
        #: `new`, `active` or `expired`: tells an unknown session from an expired one.
        self.status = status
        #: Damaged entries, with `on_corrupt="quarantine"`.
        self.corrupt = corrupt
        #: Opens the next page, in the same state as the first page; None on the last page.
        self.cursor = cursor

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Item: ...
    @overload
    def __getitem__(self, index: slice, /) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> Item | Self:
        """Return an item, or with a slice a list of the same kind and state.

        Only a slice with the last item has the cursor: it opens the page behind that.
        """
        if not isinstance(index, slice):
            return super().__getitem__(index)
        has_last = not self or len(self) - 1 in range(*index.indices(len(self)))
        return type(self)(
            super().__getitem__(index),
            version=self.version,
            status=self.status,
            corrupt=self.corrupt,
            cursor=self.cursor if has_last else None,
        )

    def to_openai(self) -> list[dict[str, Any]]:
        """Return the messages in the form of OpenAI's Chat Completions, and nothing else in it.

            client.chat.completions.create(model=…, messages=history.to_openai())

        Tool calls are in `tool_calls`, tool results are messages of role `tool`. A content block
        that OpenAI has no form for is a `UsageError`.
        """
        return to_openai(self._values())

    def to_anthropic(self) -> dict[str, Any]:
        """Return `messages`, and `system` if there are system messages, in Anthropic's form.

            client.messages.create(model=…, max_tokens=…, **history.to_anthropic())

        Tool calls are blocks of the assistant, tool results are blocks of the next user message. A
        content block that Anthropic has no form for is a `UsageError`.
        """
        return to_anthropic(self._values())

    def _values(self) -> list[Any]:
        return [item.value if isinstance(item, Entry) else item for item in self]


class History(ReadList[ChatMessage]):
    """Messages in order."""


class Entries(ReadList[Entry]):
    """A page of entries in order."""
