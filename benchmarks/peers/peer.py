"""What every peer is asked to do, in one vocabulary."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

# Messages that are written at once when a long session is prepared.
BATCH = 1000


async def await_result(result: Any) -> Any:
    """What a verb gave back, awaited if it must be."""
    return await result if inspect.isawaitable(result) else result


class Message(NamedTuple):
    """What is said: by the user or by the assistant."""

    role: str
    text: str


class Peer(ABC):
    """A store behind a few verbs; it may block (`def`) or be awaited (`async def`), in all of them.

    A verb that a store does not offer is left out.
    """

    # How it is used here, in one line for the page.
    used: ClassVar[str]
    # How a long session is prepared, where that is not a thousand messages at once by `append`.
    prepared: ClassVar[str] = ""
    batch: ClassVar[int] = BATCH
    # Why a snapshot has no time of its own, where a rollback needs none to be taken.
    snapshot_is: ClassVar[str] = ""
    # Whether what is acknowledged is on the disk, as far as the engine is asked for it.
    synced: ClassVar[bool] = True
    # How many messages of a session it keeps, where it does not keep all.
    keeps: ClassVar[int | None] = None

    @abstractmethod
    def open(self, place: str) -> Any:
        """Open the store at a path or URL; tables and indexes are made if they are missing."""

    @abstractmethod
    def append(self, session: str, messages: Sequence[Message]) -> Any:
        """Add messages at a session's end: one, or those of a turn. Back when they are kept."""

    @abstractmethod
    def last(self, session: str, count: int) -> Any:
        """The texts of the newest messages, oldest first."""

    @abstractmethod
    def load(self, session: str) -> Any:
        """The texts of all messages, as the store's own message objects would have been."""

    def fill(self, session: str, messages: Sequence[Message]) -> Any:
        """Prepare a long session in a faster way than by appending batches."""
        raise NotImplementedError

    def snapshot(self, session: str) -> Any:
        """Mark where a session stands, for `rollback`."""
        raise NotImplementedError

    def rollback(self, session: str, snapshot: Any) -> Any:
        """Let the session show what it showed then."""
        raise NotImplementedError

    def close(self) -> Any:
        """Let go of files and connections."""
        return None

    @classmethod
    def offers(cls, verb: str) -> bool:
        """Whether a verb that may be left out is there."""
        return getattr(cls, verb) is not getattr(Peer, verb)
