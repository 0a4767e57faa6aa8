"""What writers were told, held against what the session holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import indelible

SESSION = "shared"


class Write(NamedTuple):
    """An append that was acknowledged: where it stands, and when it was asked for and answered.

    Times are of the monotonic clock, which all processes of a Linux machine share.
    """

    writer: str
    number: int
    first: int
    stop: int
    invoked_ns: int
    acknowledged_ns: int


def batch_of(writer: str, number: int) -> list[dict[str, str]]:
    """The batch that a writer appends as its n-th: of one, two or three messages."""
    size = 1 + number % 3
    return [
        {"role": "user", "content": f"{writer} {number} {index} {size}"} for index in range(size)
    ]


def all_entries(store: indelible.MemoryStore, session: str = SESSION) -> list[indelible.Entry]:
    """Everything that a session shows, page by page, in one state."""
    page = store.get_entries(session, limit=1000)
    entries = list(page)
    while page.cursor is not None:
        page = store.get_entries(session, limit=1000, cursor=page.cursor)
        entries += page
    return entries


def batches_in(contents: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The batches in these messages, in order; half a batch fails."""
    rest = iter(contents)
    for content in rest:
        writer, number, index, size = content.split()
        assert index == "0", f"a batch begins in its middle: {content!r}"
        for following in range(1, int(size)):
            wanted = f"{writer} {number} {following} {size}"
            assert next(rest, None) == wanted, f"the batch of {content!r} lacks {wanted!r}"
        yield writer, int(number)


def check(
    store: indelible.MemoryStore, writes: Sequence[Write], *, others: bool = False
) -> list[str]:
    """Every acknowledged batch is there once, whole, where its receipt says, and in order.

    With `others`, batches may be there of which nobody was told. Gives the messages.
    """
    entries = all_entries(store)
    contents = [entry.value.content for entry in entries]
    assert [entry.position for entry in entries] == list(range(len(entries)))
    for write in writes:
        told = [message["content"] for message in batch_of(write.writer, write.number)]
        assert contents[write.first : write.stop] == told, write
    batches = list(batches_in(contents))
    assert len(set(batches)) == len(batches), "a batch is there twice"
    if not others:
        assert set(batches) == {(write.writer, write.number) for write in writes}
    newest: dict[str, int] = {}
    for writer, number in batches:
        assert number > newest.get(writer, -1), f"{writer} stands out of order"
        newest[writer] = number
    check_real_time(writes)
    return contents


def check_real_time(writes: Sequence[Write]) -> None:
    """An append acknowledged before another was invoked stands before it."""
    earliest_answer_behind: Write | None = None
    for write in sorted(writes, key=lambda write: write.first, reverse=True):
        behind = earliest_answer_behind
        assert behind is None or behind.acknowledged_ns >= write.invoked_ns, (write, behind)
        if behind is None or write.acknowledged_ns < behind.acknowledged_ns:
            earliest_answer_behind = write
