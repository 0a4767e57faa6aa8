"""Items that are put into collections and found by search: what is found is what is there.

The checker knows no search, so each case judges by itself. Words are made up, so that nothing else
contains them; a store may also find items that lack the word, as stores of vectors do.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import Any, Final

from memory_contract.adapter import Refused
from memory_contract.case_context import CaseContext, CaseNotClaimed, Client
from memory_contract.cases.case import case
from memory_contract.cases.perturbation import draw_positions
from memory_contract.faults.vfs.faulty_disk import FaultyDisk
from memory_contract.workers.pool import StoreRaised, WorkerLost

# More than any collection here holds, so that a store may rank as it likes.
LIMIT: Final = 100
LETTERS: Final = "bdfgklmnprtvz"
# Names that begin alike, hold what stores use as a separator or a wildcard, or hold nothing.
NAMES: Final = ("a", "ab", "a/b", "a.b", "a:b", "a b", "a%", "a_", "a*", "a?b", "A", "a/", "%", "")
# How many processes write at once, and how often; how many kills there are.
WRITERS: Final = 3
RACES: Final = 12
KILLS: Final = 10

Items = list[tuple[str, str]]


def new_word(context: CaseContext) -> str:
    """A word that nothing else contains."""
    return "".join(context.random.choices(LETTERS, k=10))


def put(client: Client, collection: str, item: str, text: str, **options: Any) -> None:
    """Put an item, or another version of it."""
    client.ask("put_item", collection, item, text, **options)


def find(client: Client, collection: str, query: str, limit: int = LIMIT, **options: Any) -> Items:
    """Search a collection: ids and texts, the best first."""
    hits = client.ask("search", collection, query, limit, **options)
    return [(hit["id"], hit["text"]) for hit in hits]


def expect_found(
    context: CaseContext,
    readers: Iterable[Client],
    collection: str,
    query: str,
    *,
    there: Iterable[tuple[str, str]] = (),
    gone: Iterable[tuple[str, str]] = (),
    after: str,
) -> None:
    """Search with each reader: these versions are found once each, and those are not."""
    for reader in readers:
        found = find(reader, collection, query)
        for item in there:
            proof = f"after {after}, a search of {reader.name} finds {item[0]!r} as {item[1]!r}"
            proof += f" {found.count(item)} times instead of once: it finds {found}"
            context.expect(found.count(item) == 1, "not found", proof, session=collection)
        for item in gone:
            proof = f"after {after}, a search of {reader.name} still finds {item[0]!r}: {item[1]!r}"
            context.expect(item not in found, "found again", proof, session=collection)


@case(
    "recall",
    catches="an index that lags behind, or one for each handle",
    needs=["search"],
)
def what_was_put_is_found(context: CaseContext) -> None:
    """Put items by turns from two callers; the next search of either finds each of them."""
    store, other, collection = context.open(), context.open_elsewhere(), context.new_session()
    for number in range(12):
        word = new_word(context)
        put((store, other)[number % 2], collection, f"i{number}", word)
        expect_found(
            context,
            (store, other),
            collection,
            word,
            there=[(f"i{number}", word)],
            after=f"{number + 1} puts",
        )


@case("recall", catches="an old version that is found beside the new one", needs=["search"])
def newest_version_is_found(context: CaseContext) -> None:
    """Put an item again and again: only its newest version is found, and read by its id."""
    store, other, collection = context.open(), context.open_elsewhere(), context.new_session()
    words = [new_word(context) for _ in range(4)]
    for number, word in enumerate(words):
        put((store, other)[number % 2], collection, "item", word)
        for query in words[: number + 1]:
            expect_found(
                context,
                (store, other),
                collection,
                query,
                there=[("item", word)] if query == word else [],
                gone=[("item", old) for old in words[:number]],
                after=f"version {number + 1}",
            )
        text = other.ask("get_item", collection, "item")
        proof = f"version {number + 1} is {word!r}, and its id gives {text!r}"
        context.expect(text == word, "wrong version", proof, session=collection)


@case(
    "recall",
    catches="a retracted item that is found, or one that can never come back",
    needs=["search", "retract"],
)
def retracted_is_not_found(context: CaseContext) -> None:
    """Retract one of several items: it is not found, the others are, and it can be put again."""
    store, other, collection = context.open(), context.open_elsewhere(), context.new_session()
    word = new_word(context)
    items = [(f"i{number}", f"{word} {new_word(context)}") for number in range(4)]
    for item, text in items:
        put(store, collection, item, text)
    gone, *rest = items
    other.ask("retract", collection, gone[0])
    readers, where = (store, other), "a retraction"
    expect_found(context, readers, collection, word, there=rest, gone=[gone], after=where)
    text = store.ask("get_item", collection, gone[0])
    proof = f"{gone[0]!r} was retracted, and its id gives {text!r}"
    context.expect(text is None, "found again", proof, session=collection)
    again = (gone[0], f"{word} {new_word(context)}")
    put(store, collection, *again)
    where = "a retraction and another put"
    expect_found(context, readers, collection, word, there=[*rest, again], gone=[gone], after=where)


@case(
    "recall",
    catches="an index that a rollback does not reach",
    needs=["search", "snapshot", "rollback"],
)
def rolled_back_is_not_found(context: CaseContext) -> None:
    """Replace an item and put another one after a snapshot, and roll back to it."""
    store, other, collection = context.open(), context.open_elsewhere(), context.new_session()
    word = new_word(context)
    first, later, new = (f"{word} {new_word(context)}" for _ in range(3))
    put(store, collection, "item", first)
    taken = store.ask("snapshot", collection)
    put(store, collection, "item", later)
    put(store, collection, "new", new)
    readers, where = (store, other), "two puts"
    now = [("item", later), ("new", new)]
    expect_found(context, readers, collection, word, there=now, after=where)
    other.ask("rollback", collection, taken)
    expect_found(
        context,
        readers,
        collection,
        word,
        there=[("item", first)],
        gone=now,
        after="a rollback",
    )


@case("recall", catches="an index that outlives what it names", needs=["search", "clear"])
def cleared_is_not_found(context: CaseContext) -> None:
    """Clear a collection: nothing of it is found, others are whole, and it can be used again."""
    store, other = context.open(), context.open_elsewhere()
    collection, beside = context.new_session(), context.new_session()
    word = new_word(context)
    old, kept, new = (("item", f"{word} {new_word(context)}") for _ in range(3))
    put(store, collection, *old)
    put(store, beside, *kept)
    other.ask("clear", collection)
    readers = (store, other)
    expect_found(context, readers, collection, word, gone=[old], after="a clear")
    put(store, collection, *new)
    where = "a clear and another put"
    expect_found(context, readers, collection, word, there=[new], gone=[old], after=where)
    expect_found(context, readers, beside, word, there=[kept], after="a clear of another one")


@case("recall", catches="an item that is found after its time", needs=["search", "item_ttl"])
def expired_is_not_found(context: CaseContext) -> None:
    """Put items with and without a time to live: when it has passed, only the others are found."""
    store, other, collection = context.open(), context.open_elsewhere(), context.new_session()
    word, ttl_s = new_word(context), context.adapter.ttl_s_min
    brief, lasting = ((name, f"{word} {new_word(context)}") for name in ("brief", "lasting"))
    put(store, collection, *lasting)
    put(store, collection, *brief, ttl_s=ttl_s)
    due = time.monotonic() + ttl_s + context.adapter.ttl_s_late
    while (left_s := due - time.monotonic()) >= 0:
        time.sleep(left_s + 0.001)
    readers, where = (store, other), f"{ttl_s} s"
    expect_found(context, readers, collection, word, there=[lasting], gone=[brief], after=where)


@case(
    "recall", catches="a filter that is applied to the first hits alone", needs=["search", "filter"]
)
def filter_comes_before_the_limit(context: CaseContext) -> None:
    """Search many items for the few with a field: all come, or as many as were asked for."""
    store, other, collection = context.open(), context.open_elsewhere(), context.new_session()
    word = new_word(context)
    wanted = set(context.random.sample(range(30), 4))
    for number in range(30):
        colour = "red" if number in wanted else "blue"
        put(store, collection, f"i{number}", f"{word} {number}", fields={"colour": colour})
    names = {f"i{number}" for number in wanted}
    for reader in (store, other):
        for limit in (1, 3, 4, LIMIT):
            hits = find(reader, collection, word, limit, where={"colour": "red"})
            found = {item for item, _ in hits}
            proof = f"{len(names)} items are red, and a search for up to {limit} finds {hits}"
            right = found <= names and len(hits) == len(found) == min(limit, len(names))
            context.expect(right, "wrong filter", proof, session=collection)


@case("recall", catches="a collection that finds what another one holds", needs=["search"])
def collections_do_not_leak(context: CaseContext) -> None:
    """Put one id into collections with similar and strange names: each finds its own alone."""
    store, other, word = context.open(), context.open_elsewhere(), new_word(context)
    base = context.new_session()
    texts: dict[str, str] = {}
    for name in (f"{base}{suffix}" if suffix else suffix for suffix in NAMES):
        context.sessions.add(name)
        text = f"{word} {new_word(context)}"
        # A name that is refused holds nothing.
        with contextlib.suppress(Exception):
            put(store, name, "item", text)
            texts[name] = text
    for name, text in texts.items():
        for reader in (store, other):
            found = find(reader, name, word)
            proof = f"collection {name!r} holds one item, {text!r}, and a search finds {found}"
            context.expect(found == [("item", text)], "leak", proof, session=name)


@case(
    "recall",
    catches="an index that shows another version than the item has, after a race",
    needs=["search"],
    reach="machine",
    modes=("processes",),
)
def racing_versions_agree(context: CaseContext) -> None:
    """Put one item from several processes at once: all find one version, which its id gives too."""
    writers = [context.open_in_process() for _ in range(WRITERS)]
    readers, collection, word = writers[:2], context.new_session(), new_word(context)
    for race in range(RACES):
        texts = [f"{word} {new_word(context)}" for _ in writers]
        for writer, text in zip(writers, texts, strict=True):
            writer.handle.worker.tell("call", "put_item", (collection, "item", text), {})
        for writer in writers:
            # One that lost against the others may say so.
            with contextlib.suppress(StoreRaised, Refused):
                writer.handle.worker.answer()
        text = readers[0].ask("get_item", collection, "item")
        proof = f"after race {race + 1} of {texts}, its id gives {text!r}"
        context.expect(race > 0 or text in texts, "wrong version", proof, session=collection)
        for reader in readers:
            found = find(reader, collection, word)
            proof = f"after a race its id gives {text!r}, and a search finds {found}"
            context.expect(found == [("item", text)], "wrong version", proof, session=collection)


@case(
    "recall",
    catches="an index and its items that a kill sets at odds",
    needs=["search"],
    reach="machine",
    modes=("processes",),
)
def index_agrees_after_a_kill(context: CaseContext) -> None:
    """Kill a process at steps of a put: what is found is what the id gives, old or new."""
    collection, word = context.new_session(), new_word(context)
    writer = _open_writer(context)
    put(writer, collection, "first", f"{word} first")
    writer.handle.worker.call_plugin("kill_at_step", 0)
    put(writer, collection, "second", f"{word} second")
    steps: int = writer.handle.worker.call_plugin("steps")
    writer.handle.worker.kill()
    if not steps:
        raise CaseNotClaimed("no step of a put touches a file")
    for number, step in enumerate(draw_positions(context, steps + 1, KILLS)):
        writer, item = _open_writer(context), f"i{number}"
        old = f"{word} {new_word(context)}" if number % 2 else None
        if old is not None:
            put(writer, collection, item, old)
        new = f"{word} {new_word(context)}"
        writer.handle.worker.call_plugin("kill_at_step", step)
        allowed = {old, new}
        with contextlib.suppress(WorkerLost):
            put(writer, collection, item, new)
            allowed = {new}
        writer.handle.worker.kill()
        where = f"a kill at step {step} of a put"
        _expect_agreement(context, collection, item, word, allowed, where)


def _open_writer(context: CaseContext) -> Client:
    return context.open_in_process(plugin=FaultyDisk(context.workspace, python=True))


def _expect_agreement(
    context: CaseContext,
    collection: str,
    item: str,
    word: str,
    allowed: set[str | None],
    after: str,
) -> None:
    reader = context.open_in_process()
    text = reader.ask("get_item", collection, item)
    proof = f"after {after}, {item!r} gives {text!r}, which is none of {allowed}"
    context.expect(text in allowed, "lost item", proof, session=collection)
    found = [each for name, each in find(reader, collection, word) if name == item]
    proof = f"after {after}, {item!r} gives {text!r}, and a search finds {found}"
    right = found == ([] if text is None else [text])
    context.expect(right, "index and item differ", proof, session=collection)
    reader.close()


@case(
    "recall",
    catches="an item that is gone because its vector could not be computed",
    needs=["search", "embedder"],
)
def failing_embedder_loses_nothing(context: CaseContext) -> None:
    """Put and search while the embedder fails: what was acknowledged is found, then or later."""
    store, other, collection = context.open(), context.open_elsewhere(), context.new_session()
    word = new_word(context)
    kept = [("before", f"{word} {new_word(context)}")]
    put(store, collection, *kept[0])
    store.ask("fail_embedder", True)
    during = ("during", f"{word} {new_word(context)}")
    # It may be refused: then nothing was promised. So may a search.
    with contextlib.suppress(Exception):
        put(store, collection, *during)
        kept.append(during)
    with contextlib.suppress(Exception):
        find(store, collection, word)
    store.ask("fail_embedder", False)
    readers, where = (store, other), "the embedder had failed"
    expect_found(context, readers, collection, word, there=kept, after=where)
    for item, text in kept:
        given = other.ask("get_item", collection, item)
        proof = f"{item!r} was put as {text!r}, and its id gives {given!r}"
        context.expect(given == text, "lost item", proof, session=collection)


@case("recall", catches="hits that change places from one search to the next", needs=["search"])
def same_query_same_order(context: CaseContext) -> None:
    """Search for a word that many items hold alike, several times: the order is the same."""
    store, other, collection = context.open(), context.open_elsewhere(), context.new_session()
    word = new_word(context)
    for number in range(12):
        put(store, collection, f"i{number}", f"{word} {LETTERS[number]}")
    first = find(store, collection, word)
    for reader in (store, store, other, other):
        again = find(reader, collection, word)
        proof = f"one search gives {first}, and the same one gives {again}"
        context.expect(again == first, "another order", proof, session=collection)
