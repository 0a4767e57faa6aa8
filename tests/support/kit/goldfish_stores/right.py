"""Correct stores with other promises than those that the kit brings."""

from __future__ import annotations

from typing import ClassVar

from memory_contract.goldfish.lives import Life, Messages
from memory_contract.goldfish.registry import right
from memory_contract.goldfish.stores import ListStore, SqliteStore


@right
class ListThatShowsTheNewest(ListStore):
    """A list store of which the newest entries show."""

    keeps_last: ClassVar[int] = 20

    def read(self, session: str, *, limit: int | None = None) -> Messages:
        return super().read(
            session, limit=self.keeps_last if limit is None else min(limit, self.keeps_last)
        )


@right
class ListRenewedByReading(ListStore):
    """A list store with lives that go on as long as somebody reads."""

    ttl_refreshed_by: ClassVar[str] = "read"


@right
class ListThatEndsOnTime(ListStore):
    """A list store with lives that end when their first append said."""

    ttl_refreshed_by: ClassVar[str] = "nothing"


@right
class SqliteOfTheNewest(SqliteStore):
    """A SQLite store that drops all but the newest entries when it writes."""

    keeps_last: ClassVar[int] = 20
    # How many it keeps in truth.
    kept: ClassVar[int] = keeps_last

    def _save(self, session: str, life: Life) -> None:
        for line in (life.shown, *life.journal):
            del line[: -self.kept]
        super()._save(session, life)
