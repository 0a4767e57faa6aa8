"""indelible as the long-term memory of LangGraph: a `BaseStore` on memories and search.

    graph = builder.compile(store=IndelibleLangGraphStore(indelible.open("agent.db")))

A namespace is a collection, an item is a memory. So items have a history, are undone and rolled
back, and are found by the words in them; with `index=`, also by vectors.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from indelible import AsyncMemoryStore, Memory, UnavailableError, UsageError
from indelible.adapters.checkpoint_reader import THREAD_PREFIX
from indelible.adapters.conversations import iter_pages, iter_session_ids
from indelible.adapters.store_variants import (
    Store,
    check_store,
    run_blocking,
    to_async,
    to_blocking,
)
from indelible.core.embedding import NO_EMBEDDER, Vector, embed, embed_async, to_embedder
from indelible.core.extras import need_extra
from indelible.core.plans.append import validate
from indelible.core.plans.memories import build_collection_id, parse_collection_id
from indelible.core.settings import check_ttl_s
from indelible.model import StoredMemory

with need_extra("langgraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        IndexConfig,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        ensure_embeddings,
        get_text_at_path,
        tokenize_path,
        validate_op_namespace,
    )

# The key in a memory's metadata for the item's own created_at and updated_at. Renewing a TTL
# appends a version but must not change them.
_TIMES: Final = "langgraph"
_log: Final = logging.getLogger("indelible.langgraph")

Namespace = tuple[str, ...]


class IndelibleLangGraphStore(BaseStore):
    """A `BaseStore`: items with their history, in the collections of a store.

    With a store of `indelible.open` it works in sync and async code; with one of
    `indelible.open_async`, in async code only. The puts of a batch into one namespace are one
    append: they become visible together, or not at all. Reads of a batch come before its puts.
    """

    supports_ttl = True

    def __init__(
        self, store: Store, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None
    ) -> None:
        self._store = check_store(store)
        self.ttl_config = ttl
        self._fields = (index or {}).get("fields")
        given = (index or {}).get("embed")
        self._embedder = None if given is None else to_embedder(ensure_embeddings(given))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations."""
        return run_blocking(self._run(to_blocking(self._store), ops, blocks=True))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform operations."""
        return await self._run(to_async(self._store), ops, blocks=False)

    async def _run(
        self, store: AsyncMemoryStore, ops: Iterable[Op], *, blocks: bool
    ) -> list[Result]:
        ops = list(ops)
        for op in ops:
            validate_op_namespace(op)
        results = [await self._read(store, op, blocks=blocks) for op in ops]
        # The last of several puts of one item wins.
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        if puts:
            await self._put(store, list(puts.values()), blocks=blocks)
        return results

    async def _read(self, store: AsyncMemoryStore, op: Op, *, blocks: bool) -> Result:
        """Answer a read; None for a put."""
        match op:
            case GetOp():
                return await self._get(store, op)
            case SearchOp(query=str(query)) if query.strip():
                return await self._search(store, op, query, blocks=blocks)
            case SearchOp():
                return await _list_items(store, op)
            case ListNamespacesOp():
                return await _list_namespaces(store, op)
            case PutOp():
                return None
        raise UsageError(f"not an operation of a store: {op!r}", value=op)

    # Reading

    async def _get(self, store: AsyncMemoryStore, op: GetOp) -> Item | None:
        memory = await store.get_memory(op.namespace, op.key)
        if memory is None:
            return None
        if op.refresh_ttl and memory.expires_at is not None:
            await store.refresh_ttl(op.namespace, [op.key])
        return Item(**_build_fields(memory.collection, memory, memory.written_at))

    async def _search(
        self, store: AsyncMemoryStore, op: SearchOp, text: str, *, blocks: bool
    ) -> list[SearchItem]:
        """Rank the items by their words, and by vectors if there is an index."""
        if op.limit < 1:
            return []
        query: str | tuple[str, Vector] = text
        if (vectors := await self._embed([text], query=True, blocks=blocks)) is not None:
            query = text, vectors[0]
        hits = await store.search(
            query,
            under=op.namespace_prefix or None,
            kinds=["memory"],
            where=_build_filter(op.filter),
            k=op.limit,
            offset=op.offset,
        )
        expiring: dict[str, list[str]] = {}
        items: list[SearchItem] = []
        for hit in hits:
            stored = hit.entry.value
            assert isinstance(stored, StoredMemory)
            fields = _build_fields(hit.session_id, stored, hit.entry.written_at)
            items.append(SearchItem(**fields, score=hit.score))
            if stored.ttl_s is not None:
                expiring.setdefault(hit.session_id, []).append(stored.id)
        if op.refresh_ttl:
            for collection, ids in expiring.items():
                await store.refresh_ttl(collection, ids)
        return items

    # Writing

    async def _put(self, store: AsyncMemoryStore, ops: list[PutOp], *, blocks: bool) -> None:
        texts = [self._get_text(op) for op in ops]
        vectors = await self._compute_vectors(ops, texts, blocks=blocks)
        entries: dict[Namespace, list[StoredMemory]] = {}
        for op, text, vector in zip(ops, texts, vectors, strict=True):
            current = await store.get_memory(op.namespace, op.key)
            if op.value is not None:
                memory = _to_memory(op, current, text, vector)
            elif current is not None:
                memory = StoredMemory(id=op.key, retracted=True)
            else:
                continue
            entries.setdefault(op.namespace, []).append(memory)
        for namespace, batch in entries.items():
            await store.add_entries(build_collection_id(namespace), batch)

    def _get_text(self, op: PutOp) -> str | None:
        """Return the text to index: None for every text in the item, "" for none."""
        if op.index is False:
            return ""
        fields = self._fields if op.index is None else op.index
        if op.value is None or not fields or "$" in fields:
            return None
        found = [get_text_at_path(op.value, tokenize_path(field)) for field in fields]
        return "\n".join(text for texts in found for text in texts)

    async def _compute_vectors(
        self, ops: Sequence[PutOp], texts: Sequence[str | None], *, blocks: bool
    ) -> list[Vector | None]:
        """Compute a vector for each item; none if that fails: they are still found by words."""
        vectors: list[Vector | None] = [None] * len(ops)
        if self._embedder is None:
            return vectors
        # Without index fields, the whole item is embedded.
        wanted = {
            number: get_text_at_path(op.value, "$")[0] if text is None else text
            for number, (op, text) in enumerate(zip(ops, texts, strict=True))
            if op.value is not None and text != ""
        }
        computed = await self._embed(list(wanted.values()), blocks=blocks)
        if computed is not None:
            for number, vector in zip(wanted, computed, strict=True):
                vectors[number] = vector
        return vectors

    async def _embed(
        self, texts: Sequence[str], *, blocks: bool, query: bool = False
    ) -> list[Vector] | None:
        """Compute the vectors of texts; None, and a warning in the log, if the embedder fails."""
        if self._embedder is None:
            return None
        try:
            if blocks:
                return embed(self._embedder, texts, query=query)
            return await embed_async(self._embedder, texts, query=query)
        except UnavailableError as error:
            _log.warning("%s: words alone count", error)
            return None


def _to_memory(
    op: PutOp, current: Memory | None, text: str | None, vector: Vector | None
) -> StoredMemory:
    """Build the version of a memory that a put stores."""
    now = datetime.now(UTC).isoformat()
    created = now if current is None else _get_times(current).get("created_at", now)
    return validate(
        StoredMemory,
        {
            "id": op.key,
            "text": text,
            "value": dict(op.value or {}),
            "vector": vector,
            "embedder": None if vector is None else NO_EMBEDDER,
            "ttl_s": _to_ttl_s(op.ttl),
            "metadata": {_TIMES: {"created_at": created, "updated_at": now}},
        },
    )


def _to_ttl_s(minutes: float | None) -> float | None:
    if minutes is not None and not (isinstance(minutes, int | float) and minutes > 0):
        raise UsageError(f"ttl is a number of minutes above 0, not {minutes!r}", value=minutes)
    return None if minutes is None else check_ttl_s(minutes * 60)


def _get_times(stored: StoredMemory | Memory) -> dict[str, Any]:
    times = stored.metadata.get(_TIMES)
    return times if isinstance(times, dict) else {}


def _build_fields(
    collection: str, stored: StoredMemory | Memory, written_at: datetime
) -> dict[str, Any]:
    """Build the fields of an item; a memory that LangGraph did not write has its text as value."""
    times = _get_times(stored)
    return {
        "namespace": parse_collection_id(collection),
        "key": stored.id,
        "value": stored.value if isinstance(stored.value, dict) else {"text": stored.text},
        "created_at": times.get("created_at", written_at),
        "updated_at": times.get("updated_at", written_at),
    }


def _build_filter(wanted: Mapping[str, Any] | None, path: str = "value") -> dict[str, Any]:
    """Build the filter of a search. A mapping without operators holds conditions on its keys."""
    conditions: dict[str, Any] = {}
    for key, condition in (wanted or {}).items():
        quoted = key.replace('"', '""')
        name = f'{path}."{quoted}"'
        if not isinstance(condition, Mapping) or any(each.startswith("$") for each in condition):
            conditions[name] = condition
        else:
            conditions |= _build_filter(condition, name) or {name: {"$exists": True}}
    return conditions


async def _list_items(store: AsyncMemoryStore, op: SearchOp) -> list[SearchItem]:
    """List the items that match, by namespace and key."""
    where = _build_filter(op.filter)
    items: list[SearchItem] = []
    skipped = 0
    async for collection in _iter_collections(store, op.namespace_prefix):
        expiring: list[str] = []
        async for memory in _iter_memories(store, collection, where):
            if len(items) >= op.limit:
                break
            if skipped < op.offset:
                skipped += 1
                continue
            items.append(SearchItem(**_build_fields(collection, memory, memory.written_at)))
            if memory.expires_at is not None:
                expiring.append(memory.id)
        if expiring and op.refresh_ttl:
            await store.refresh_ttl(collection, expiring)
        if len(items) >= op.limit:
            break
    return items


async def _iter_memories(
    store: AsyncMemoryStore, collection: str, where: Mapping[str, Any]
) -> AsyncIterator[Memory]:
    async for page in iter_pages(partial(store.list_memories, collection, where=where)):
        for memory in page:
            yield memory


async def _iter_collections(store: AsyncMemoryStore, prefix: Namespace) -> AsyncIterator[str]:
    """Iterate over the sessions whose labels begin with these, in order, without threads."""
    root = build_collection_id(prefix) if prefix else ""
    async for session in iter_session_ids(store, root):
        is_below = not root or session == root or session.startswith(f"{root}/")
        if is_below and not session.startswith(THREAD_PREFIX):
            yield session


async def _list_namespaces(store: AsyncMemoryStore, op: ListNamespacesOp) -> list[Namespace]:
    """List the namespaces that have items; sessions without memories are left out."""
    found: set[Namespace] = set()
    async for session in _iter_collections(store, _find_common_prefix(op)):
        labels = parse_collection_id(session)
        # LangGraph refuses such labels, so no namespace of its own has them.
        if not all(label and "." not in label for label in labels):
            continue
        if all(_matches(condition, labels) for condition in op.match_conditions or ()) and (
            await store.list_memories(session, limit=1)
        ):
            found.add(labels[: op.max_depth])
    return sorted(found)[op.offset : op.offset + op.limit]


def _find_common_prefix(op: ListNamespacesOp) -> Namespace:
    """Return labels that every namespace of the answer begins with."""
    for condition in op.match_conditions or ():
        if condition.match_type == "prefix":
            path = condition.path
            return tuple(path[: path.index("*")] if "*" in path else path)
    return ()


def _matches(condition: MatchCondition, labels: Namespace) -> bool:
    path = condition.path
    if len(path) > len(labels):
        return False
    start = 0 if condition.match_type == "prefix" else len(labels) - len(path)
    beside = labels[start : start + len(path)]
    return all(wanted in ("*", label) for wanted, label in zip(path, beside, strict=True))
