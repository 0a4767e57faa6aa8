"""Stores with search: a correct one, and goldfish that find other things than are there."""

from __future__ import annotations

import fnmatch
import random
import sqlite3
import time
from pathlib import Path
from typing import Any, ClassVar, Final

from memory_contract.goldfish.lives import EVERYTHING, Life
from memory_contract.goldfish.registry import RIGHT, build_adapter, goldfish, right
from memory_contract.goldfish.stores import SqliteStore, give_way

Item = dict[str, Any]
SEARCHES: Final = frozenset({"search", "filter", "retract", "item_ttl", "forget", "embedder"})


@right
class ItemStore(SqliteStore):
    """Items as entries of a session, of which the newest of each id counts; search looks at all."""

    capabilities: ClassVar[frozenset[str]] = EVERYTHING | SEARCHES

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._fails = False

    def put_item(
        self,
        collection: str,
        item: str,
        text: str,
        fields: dict[str, Any] | None = None,
        ttl_s: float | None = None,
    ) -> None:
        ends = None if ttl_s is None else time.time() + ttl_s
        # Found by words, so it needs no vector; whether that could be computed changes nothing.
        entry = {"role": "item", "id": item, "content": text, "fields": fields or {}, "ends": ends}
        self._add(collection, entry)

    def retract(self, collection: str, item: str) -> None:
        self._add(collection, {"role": "item", "id": item, "content": None, "ends": None})

    def _add(self, collection: str, entry: Item) -> None:
        with self._changing(collection) as life:
            life.add([entry])

    def forget(self, session: str) -> None:
        with self._locked():
            self._save(session, Life())

    def get_item(self, collection: str, item: str) -> str | None:
        with self._locked():
            found = newest(self._alive(collection)).get(item)
            return None if found is None or has_ended(found) else found["content"]

    def search(
        self, collection: str, query: str, limit: int, where: dict[str, Any] | None = None
    ) -> list[dict[str, str]]:
        with self._locked():
            entries = self._searched(collection)
        words = set(query.split())
        found = [each for each in entries if words & set(each["content"].split())]
        return [{"id": e["id"], "text": e["content"]} for e in self._chosen(found, limit, where)]

    def _searched(self, collection: str) -> list[Item]:
        """The items that are looked at."""
        return current(self._alive(collection))

    def _chosen(self, found: list[Item], limit: int, where: dict[str, Any] | None) -> list[Item]:
        return [each for each in found if fits(each, where)][:limit]

    def fail_embedder(self, fails: bool) -> None:
        self._fails = fails


def newest(life: Life) -> dict[str, Item]:
    """The newest entry of each item."""
    return {entry["id"]: entry for entry in life.shown if entry.get("role") == "item"}


def current(life: Life) -> list[Item]:
    """The items that count, by id."""
    there = (each for each in newest(life).values() if each["content"] is not None)
    return sorted((each for each in there if not has_ended(each)), key=lambda each: each["id"])


def has_ended(entry: Item) -> bool:
    """Whether its time to live has passed."""
    return entry["ends"] is not None and entry["ends"] <= time.time()


def fits(entry: Item, where: dict[str, Any] | None) -> bool:
    """Whether it has these fields."""
    return all(entry["fields"].get(name) == value for name, value in (where or {}).items())


@goldfish("class: an index that is refreshed later", caught_by="what_was_put_is_found")
class IndexedWithTheNext(ItemStore):
    """Makes an item searchable when the next one is put."""

    def _searched(self, collection: str) -> list[Item]:
        life = self._alive(collection)
        life.shown = life.shown[:-1]
        return current(life)


@goldfish("class: an index in the memory of a process", caught_by="what_was_put_is_found")
class IndexOfItsOwn(ItemStore):
    """Searches what this handle has put, and never hears of the others."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._own: dict[str, Life] = {}

    def _add(self, collection: str, entry: Item) -> None:
        super()._add(collection, entry)
        self._own.setdefault(collection, Life()).add([entry])

    def _searched(self, collection: str) -> list[Item]:
        return current(self._own.get(collection, Life()))


@goldfish("class: vectors without a delete", caught_by="newest_version_is_found")
class OldVersionsFound(ItemStore):
    """Finds every version that an item ever had."""

    def _searched(self, collection: str) -> list[Item]:
        shown = self._alive(collection).shown
        return [entry for entry in shown if entry["content"] is not None and not has_ended(entry)]


@goldfish("class: a delete that leaves the index", caught_by="retracted_is_not_found")
class RetractedIsFound(ItemStore):
    """Finds the last text of an item that was retracted."""

    def _searched(self, collection: str) -> list[Item]:
        life = self._alive(collection)
        life.shown = [entry for entry in life.shown if entry["content"] is not None]
        return current(life)


@goldfish("class: a tombstone that outweighs every write", caught_by="retracted_is_not_found")
class RetractedForEver(ItemStore):
    """Never again finds an id that was retracted once."""

    def _searched(self, collection: str) -> list[Item]:
        life = self._alive(collection)
        gone = {entry["id"] for entry in life.shown if entry["content"] is None}
        return [entry for entry in current(life) if entry["id"] not in gone]


class IndexedApart(ItemStore):
    """Keeps an index beside the items, as a session of its own."""

    def _index_of(self, collection: str) -> str:
        return f"{collection}\0index"

    def _add(self, collection: str, entry: Item) -> None:
        for name in (collection, self._index_of(collection)):
            self._write(name, entry)

    def _write(self, session: str, entry: Item) -> None:
        super()._add(session, entry)

    def _searched(self, collection: str) -> list[Item]:
        return current(self._alive(self._index_of(collection)))


@goldfish("class: an index that is not versioned", caught_by="rolled_back_is_not_found")
class RollbackSparesTheIndex(IndexedApart):
    """Rolls items back, and leaves the index as it is."""

    def clear(self, session: str) -> None:
        super().clear(session)
        super().clear(self._index_of(session))


@goldfish("class: a clear that leaves the index", caught_by="cleared_is_not_found")
class ClearSparesTheIndex(IndexedApart):
    """Clears items, and leaves the index as it is."""

    def rollback(self, session: str, snapshot: str) -> None:
        super().rollback(session, snapshot)
        shown = self.read(session)
        with self._changing(self._index_of(session)) as life:
            life.change(shown)


@goldfish("class: a session that is erased without its index", caught_by="forgotten_is_not_found")
class ForgetSparesTheIndex(ItemStore):
    """Erases a session, and goes on finding what it held."""

    def forget(self, session: str) -> None:
        with self._locked():
            self._save(f"{session}\0index", self._alive(session))
            self._save(session, Life())

    def _searched(self, collection: str) -> list[Item]:
        return super()._searched(collection) + super()._searched(f"{collection}\0index")


@goldfish(
    "class: an index that is a cache to its disk",
    caught_by="index_agrees_after_power_loss",
    durability="power",
)
class IndexNotSynced(ItemStore):
    """Writes its index before the item, finds no more than items say, and syncs items alone."""

    settings = ("WAL", "FULL")

    def __init__(self, workspace: Path) -> None:
        self._index = sqlite3.connect(
            workspace / "index.db", isolation_level=None, check_same_thread=False
        )
        self._index.execute("PRAGMA journal_mode = WAL")
        self._index.execute("PRAGMA synchronous = NORMAL")
        self._index.execute("CREATE TABLE IF NOT EXISTS word (collection, item, text)")
        super().__init__(workspace)

    def _add(self, collection: str, entry: Item) -> None:
        row = (collection, entry["id"], entry["content"])
        self._index.execute("INSERT INTO word VALUES (?, ?, ?)", row)
        super()._add(collection, entry)

    def _searched(self, collection: str) -> list[Item]:
        query = "SELECT item, text FROM word WHERE collection = ?"
        known = set(self._index.execute(query, (collection,)))
        found = super()._searched(collection)
        return [entry for entry in found if (entry["id"], entry["content"]) in known]


class SyncedItemStore(ItemStore):
    """The correct store, on a disk that may lose its power."""

    settings = ("WAL", "FULL")


RIGHT["synced_item_store"] = build_adapter(SyncedItemStore, "synced_item_store", durability="power")


@goldfish("class: expiry in the item alone", caught_by="expired_is_not_found")
class ExpiredIsFound(ItemStore):
    """Finds items whose time has passed."""

    def _searched(self, collection: str) -> list[Item]:
        entries = newest(self._alive(collection)).values()
        return [entry for entry in entries if entry["content"] is not None]


@goldfish("class: a filter behind the index", caught_by="filter_comes_before_the_limit")
class FiltersAfterTheLimit(ItemStore):
    """Takes the first hits, and filters those."""

    def _chosen(self, found: list[Item], limit: int, where: dict[str, Any] | None) -> list[Item]:
        return [each for each in found[:limit] if fits(each, where)]


class SearchesSeveral(ItemStore):
    """Searches every collection whose name fits."""

    def _is_searched(self, name: str, collection: str) -> bool:
        raise NotImplementedError

    def _searched(self, collection: str) -> list[Item]:
        names = [name for name in self._names() if self._is_searched(name, collection)]
        return [entry for name in names for entry in current(self._alive(name))]


@goldfish("class: a key prefix without an end", caught_by="collections_do_not_leak")
class FindsByPrefix(SearchesSeveral):
    """Searches every collection whose name begins with the one that was asked for."""

    def _is_searched(self, name: str, collection: str) -> bool:
        return name.startswith(collection)


@goldfish("class: a name that is read as a pattern", caught_by="collections_do_not_leak")
class FindsByPattern(SearchesSeveral):
    """Takes a star in the name of a collection for any text."""

    def _is_searched(self, name: str, collection: str) -> bool:
        return fnmatch.fnmatchcase(name, collection)


@goldfish("class: two stores without a transaction", caught_by="racing_versions_agree")
class IndexedAfterwards(IndexedApart):
    """Writes the item, then the index, and lets others write between."""

    def _add(self, collection: str, entry: Item) -> None:
        self._write(collection, entry)
        give_way(random.randint(1, 20))
        self._write(self._index_of(collection), entry)


@goldfish("class: the index first, then the item", caught_by="index_agrees_after_a_kill")
class IndexedBeforehand(IndexedApart):
    """Writes the index, then the item, so that who dies between leaves what is not there."""

    def _add(self, collection: str, entry: Item) -> None:
        self._write(self._index_of(collection), entry)
        self._write(collection, entry)


@goldfish(
    "class: an error of the embedder that is caught", caught_by="failing_embedder_loses_nothing"
)
class LosesWhatIsNotEmbedded(ItemStore):
    """Says yes and keeps nothing when no vector can be computed."""

    def _add(self, collection: str, entry: Item) -> None:
        if not self._fails:
            super()._add(collection, entry)


@goldfish("class: equal scores in no order", caught_by="same_query_same_order")
class AnotherOrderEachTime(ItemStore):
    """Returns hits that are equally good in a new order each time."""

    def _searched(self, collection: str) -> list[Item]:
        entries = super()._searched(collection)
        random.shuffle(entries)
        return entries
