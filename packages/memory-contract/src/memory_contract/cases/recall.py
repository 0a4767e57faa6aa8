"""Items that are put into collections and found by search: what is found is what is there.

The checker knows no search, so each case judges by itself. Words are made up, so that nothing else
contains them; a store may also find items that lack the word, as stores of vectors do.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any, Final

from memory_contract.adapter import Refused
from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.disk_recording import restore_files, stop_recording
from memory_contract.cases.interruption import Interruption
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.faults.vfs.images import build_images
from memory_contract.workers.pool import StoreRaised

# More than any collection here holds, so that a store may rank as it likes.
LIMIT: Final = 100
LETTERS: Final = "bdfgklmnprtvz"
# Names that begin alike, hold what stores use as a separator or a wildcard, or hold nothing.
NAMES: Final = ("a", "ab", "a/b", "a.b", "a:b", "a b", "a%", "a_", "a*", "a?b", "A", "a/", "%", "")
# How many processes write at once, and how often.
WRITERS: Final = 3
RACES: Final = 12
# How many power cuts there are, while how many versions of each item are put.
POWER_CUTS: Final = 30
VERSIONS: Final = 4

# An id and a text.
Item = tuple[str, str]


@dataclass
class Collection:
    """A collection of items with one word in common, and what must be found there."""

    context: CaseContext
    name: str
    word: str
    # The version of each item that counts, and those that must not be found any more.
    there: dict[str, str] = field(default_factory=dict)
    gone: list[Item] = field(default_factory=list)

    def new_text(self) -> str:
        """A text with the common word and one that nothing else contains."""
        return f"{self.word} {_draw_word(self.context)}"

    def put(self, client: Client, item: str, **options: Any) -> str:
        """Put another version of an item; its text."""
        text = self.new_text()
        client.ask("put_item", self.name, item, text, **options)
        self.drop(item)
        self.there[item] = text
        return text

    def drop(self, *items: str) -> None:
        """Know that these items must not be found any more."""
        self.gone += [(item, self.there.pop(item)) for item in items if item in self.there]

    def find(
        self, client: Client, word: str = "", *, limit: int = LIMIT, **options: Any
    ) -> list[Item]:
        """Search for a word, or for the common one: ids and texts, the best first."""
        hits = client.ask("search", self.name, word or self.word, limit, **options)
        return [(hit["id"], hit["text"]) for hit in hits]

    def get(self, client: Client, item: str) -> Any:
        """What the id of an item gives."""
        return client.ask("get_item", self.name, item)

    def expect(self, holds: bool, name: str, proof: str) -> None:
        """Fail unless a condition holds."""
        self.context.expect(holds, name, proof, session=self.name)

    def expect_found(self, after: str) -> None:
        """Search by every handle: what is there is found once, and read by its id; no more."""
        for client in self.context.clients:
            found, by = self.find(client), f"after {after}, a search of {client.name}"
            for item in self.there.items():
                times = f"{found.count(item)} times instead of once: it finds {found}"
                self.expect(found.count(item) == 1, "not found", f"{by} finds {item} {times}")
                text = self.get(client, item[0])
                proof = f"after {after}, {item[0]!r} is {item[1]!r}, and its id gives {text!r}"
                self.expect(text == item[1], "wrong version", proof)
            for item in self.gone:
                found += self.find(client, item[1].split()[-1])
                self.expect(item not in found, "found again", f"{by} still finds {item}")
                if item[0] not in self.there:
                    text = self.get(client, item[0])
                    proof = f"after {after}, {item[0]!r} is gone, and its id gives {text!r}"
                    self.expect(text is None, "found again", proof)

    def expect_agreement(
        self, client: Client, item: str, allowed: set[str | None], after: str
    ) -> None:
        """Expect that an id gives an allowed version, and that search finds the same one."""
        text = self.get(client, item)
        proof = f"after {after}, {item!r} gives {text!r}, which is none of {allowed}"
        self.expect(text in allowed, "lost item", proof)
        found = [each for name, each in self.find(client) if name == item]
        proof = f"after {after}, {item!r} gives {text!r}, and a search finds {found}"
        self.expect(found == ([] if text is None else [text]), "index and item differ", proof)


def _draw_word(context: CaseContext) -> str:
    return "".join(context.random.choices(LETTERS, k=10))


def _new_collection(context: CaseContext) -> Collection:
    return Collection(context, context.new_session(), _draw_word(context))


def _open_two(context: CaseContext) -> tuple[Client, Client, Collection]:
    return context.open(), context.open_elsewhere(), _new_collection(context)


@case(
    "recall",
    catches="an index that lags behind, or one for each handle",
    needs=["search"],
)
def what_was_put_is_found(context: CaseContext) -> None:
    """Put items by turns from two callers; the next search of either finds each of them."""
    store, other, items = _open_two(context)
    for number in range(12):
        items.put((store, other)[number % 2], f"i{number}")
        items.expect_found(f"{number + 1} puts")


@case("recall", catches="an old version that is found beside the new one", needs=["search"])
def newest_version_is_found(context: CaseContext) -> None:
    """Put an item again and again: only its newest version is found, and read by its id."""
    store, other, items = _open_two(context)
    for number in range(4):
        items.put((store, other)[number % 2], "item")
        items.expect_found(f"version {number + 1}")


@case(
    "recall",
    catches="a retracted item that is found, or one that can never come back",
    needs=["search", "retract"],
)
def retracted_is_not_found(context: CaseContext) -> None:
    """Retract one of several items: it is not found, the others are, and it can be put again."""
    store, other, items = _open_two(context)
    for number in range(4):
        items.put(store, f"i{number}")
    other.ask("retract", items.name, "i0")
    items.drop("i0")
    items.expect_found("a retraction")
    items.put(store, "i0")
    items.expect_found("a retraction and another put")


@case(
    "recall",
    catches="an index that a rollback does not reach",
    needs=["search", "snapshot", "rollback"],
)
def rolled_back_is_not_found(context: CaseContext) -> None:
    """Replace an item and put another one after a snapshot, and roll back to it."""
    store, other, items = _open_two(context)
    first = items.put(store, "item")
    taken = store.ask("snapshot", items.name)
    items.put(store, "item")
    items.put(store, "new")
    items.expect_found("two puts")
    other.ask("rollback", items.name, taken)
    items.drop("item", "new")
    items.gone.remove(("item", first))
    items.there["item"] = first
    items.expect_found("a rollback")


@case("recall", catches="an index that outlives what it names", needs=["search", "clear"])
def cleared_is_not_found(context: CaseContext) -> None:
    """Clear a collection: nothing of it is found, others are whole, and it can be used again."""
    store, other, items = _open_two(context)
    beside = Collection(context, context.new_session(), items.word)
    items.put(store, "item")
    beside.put(store, "item")
    other.ask("clear", items.name)
    items.drop("item")
    items.expect_found("a clear")
    items.put(store, "item")
    items.expect_found("a clear and another put")
    beside.expect_found("a clear of another one")


@case("recall", catches="an index that outlives a session", needs=["search", "forget"])
def forgotten_is_not_found(context: CaseContext) -> None:
    """Forget a collection: nothing of it is ever found, others are whole, it can be used again."""
    store, other, items = _open_two(context)
    beside = Collection(context, context.new_session(), items.word)
    for item in ("one", "two", "one"):
        items.put(store, item)
    beside.put(store, "one")
    other.ask("forget", items.name)
    items.drop("one", "two")
    items.expect_found("it was forgotten")
    items.put(store, "one")
    items.expect_found("it was forgotten, and another put")
    beside.expect_found("another one was forgotten")


@case("recall", catches="an item that is found after its time", needs=["search", "item_ttl"])
def expired_is_not_found(context: CaseContext) -> None:
    """Put items with and without a time to live: when it has passed, only the others are found."""
    store, _, items = _open_two(context)
    ttl_s = context.adapter.ttl_s_min
    items.put(store, "lasting")
    items.put(store, "brief", ttl_s=ttl_s)
    due = time.monotonic() + ttl_s + context.adapter.ttl_s_late
    while (left_s := due - time.monotonic()) >= 0:
        time.sleep(left_s + 0.001)
    items.drop("brief")
    items.expect_found(f"{ttl_s} s")


@case(
    "recall", catches="a filter that is applied to the first hits alone", needs=["search", "filter"]
)
def filter_comes_before_the_limit(context: CaseContext) -> None:
    """Search many items for the few with a field: all come, or as many as were asked for."""
    store, _, items = _open_two(context)
    red = {f"i{number}" for number in context.random.sample(range(30), 4)}
    for item in (f"i{number}" for number in range(30)):
        items.put(store, item, fields={"colour": "red" if item in red else "blue"})
    for reader in context.clients:
        for limit in (1, 3, 4, LIMIT):
            hits = items.find(reader, limit=limit, where={"colour": "red"})
            found = {item for item, _ in hits}
            proof = f"{len(red)} items are red, and a search for up to {limit} finds {hits}"
            right = found <= red and len(hits) == len(found) == min(limit, len(red))
            items.expect(right, "wrong filter", proof)


@case("recall", catches="a collection that finds what another one holds", needs=["search"])
def collections_do_not_leak(context: CaseContext) -> None:
    """Put one id into collections with similar and strange names: each finds its own alone."""
    store, _, base = _open_two(context)
    named = [f"{base.name}{suffix}" if suffix else suffix for suffix in NAMES]
    context.sessions.update(named)
    collections = [Collection(context, name, base.word) for name in named]
    for items in collections:
        # A name that is refused holds nothing.
        with contextlib.suppress(Exception):
            items.put(store, "item")
    for items in collections:
        for reader in context.clients if items.there else ():
            found, held = items.find(reader), [*items.there.items()]
            proof = f"collection {items.name!r} holds {held}, and a search finds {found}"
            items.expect(found == held, "leak", proof)


@case(
    "recall",
    catches="an index that shows another version than the item has, after a race",
    needs=["search"],
    reach="machine",
    modes=("processes",),
)
def racing_versions_agree(context: CaseContext) -> None:
    """Put one item from several processes at once: all find one version, which its id gives too."""
    writers, items = [context.open_in_process() for _ in range(WRITERS)], _new_collection(context)
    for race in range(RACES):
        texts = [items.new_text() for _ in writers]
        for writer, text in zip(writers, texts, strict=True):
            writer.worker.tell("call", "put_item", (items.name, "item", text), {})
        for writer in writers:
            # One that lost against the others may say so.
            with contextlib.suppress(StoreRaised, Refused):
                writer.worker.answer()
        text = items.get(writers[0], "item")
        proof = f"after race {race + 1} of {texts}, its id gives {text!r}"
        items.expect(race > 0 or text in texts, "wrong version", proof)
        for reader in writers[:2]:
            items.expect_agreement(reader, "item", {text}, f"race {race + 1}")


class _InterruptedPut(Interruption):
    """Puts items of one collection, which are new or replaced by turns."""

    def __init__(self, context: CaseContext) -> None:
        super().__init__(context)
        self._items = _new_collection(context)
        self._versions: dict[str, tuple[str | None, str]] = {}

    def prepare(self, writer: Client) -> str:
        number = len(self._versions)
        old = self._items.put(writer, f"i{number}") if number % 2 else None
        self._versions[f"i{number}"] = old, self._items.new_text()
        return f"i{number}"

    def act(self, writer: Client, name: str) -> None:
        writer.ask("put_item", self._items.name, name, self._versions[name][1])

    def judge(self, reader: Client, name: str, acknowledged: bool, after: str) -> None:
        old, new = self._versions[name]
        allowed: set[str | None] = {new} if acknowledged else {old, new}
        self._items.expect_agreement(reader, name, allowed, f"{after} of a put")


@case(
    "recall",
    catches="an index that disagrees with its items after a kill",
    needs=["search"],
    reach="machine",
    modes=("processes",),
)
def index_agrees_after_a_kill(context: CaseContext) -> None:
    """Kill a process at steps of a put: what is found is what the id gives, old or new."""
    _InterruptedPut(context).kill_at_steps()


@case(
    "recall",
    catches="an index that is not synced with its items",
    needs=["search"],
    reach="machine",
    modes=("processes",),
    durable=True,
)
def index_agrees_after_power_loss(context: CaseContext) -> None:
    """Cut the power while items are put: what is found is what the id gives, as new as claimed."""
    disk, items = FaultyDisk(context.workspace, remember=True), _new_collection(context)
    writer = context.open_in_process(plugin=disk)
    # Each text, with how many changes the disk had seen before and after it was put.
    versions: dict[str, list[tuple[int, int, str]]] = {"i0": [], "i1": [], "i2": []}
    for item in list(versions) * VERSIONS:
        began = writer.worker.call_plugin("length")
        text = items.put(writer, item)
        versions[item].append((began, writer.worker.call_plugin("length"), text))
    changes, others = stop_recording(context, writer.worker)
    ends = [ended for each in versions.values() for _, ended, _ in each]
    images = build_images(
        changes,
        wanted=POWER_CUTS,
        random=context.random,
        base={},
        stage=lambda after: sum(ended <= after for ended in ends),
    )
    for image in images:
        after = f"a power cut after change {image.after} of {len(changes)}"
        with restore_files(context, others | image.files) as folder:
            try:
                with contextlib.closing(context.open_in_process(workspace=folder)) as reader:
                    for item, put in versions.items():
                        allowed = _list_allowed(context, put, image.after)
                        items.expect_agreement(reader, item, allowed, after)
            except (StoreRaised, Refused) as error:
                context.fail("damage", f"after {after}, the store cannot be used: {error}")


def _list_allowed(
    context: CaseContext, put: list[tuple[int, int, str]], after: int
) -> set[str | None]:
    """The versions of an item that a power cut may leave, as the store claims to sync them."""
    synced = context.adapter.durability in ("power", "replicated")
    allowed: set[str | None] = {None}
    for began, ended, text in put:
        if synced and ended <= after:
            allowed = {text}
        elif began < after:
            allowed.add(text)
    return allowed


@case(
    "recall",
    catches="an item that is gone because its vector could not be computed",
    needs=["search", "embedder"],
)
def failing_embedder_loses_nothing(context: CaseContext) -> None:
    """Put and search while the embedder fails: what was acknowledged is found, then or later."""
    store, _, items = _open_two(context)
    items.put(store, "before")
    store.ask("fail_embedder", True)
    # A put may be refused: then nothing was promised. So may a search.
    with contextlib.suppress(Exception):
        items.put(store, "during")
    with contextlib.suppress(Exception):
        items.find(store)
    store.ask("fail_embedder", False)
    items.expect_found("the embedder had failed")


@case("recall", catches="hits that change places from one search to the next", needs=["search"])
def same_query_same_order(context: CaseContext) -> None:
    """Search for a word that many items hold alike, several times: the order is the same."""
    store, other, items = _open_two(context)
    for number in range(12):
        items.put(store, f"i{number}")
    first = items.find(store)
    for reader in (store, store, other, other):
        again = items.find(reader)
        proof = f"one search gives {first}, and the same one gives {again}"
        items.expect(again == first, "another order", proof)
