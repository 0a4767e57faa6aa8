"""Completes memories that have no vector of the store's embedder.

An entry never changes, so a memory is completed by another version of it, unless another writer has
added one meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from indelible.core.clock import to_datetime
from indelible.core.embedding import Vector
from indelible.core.ids import MADE_PREFIX
from indelible.core.operations import ReadHead
from indelible.core.plan import Plan, perform
from indelible.core.plans.memories import (
    Collection,
    NewMemory,
    build_collection_id,
    list_memories,
    remember,
)
from indelible.core.plans.sessions import list_all_sessions
from indelible.core.settings import Settings
from indelible.errors import ConflictError
from indelible.model import Memory, MemoryList, StoredMemory

# Texts that an embedder gets at once.
_BATCH: Final = 100


def has_text(text: str | None) -> bool:
    """Return whether there is something to embed."""
    return text is not None and bool(text.strip())


def list_collections(collection: Collection | None) -> Plan[list[str]]:
    """List the sessions that may hold memories: one, or all."""
    if collection is not None:
        return [build_collection_id(collection)]
    return (yield from list_all_sessions(None))


def find_missing(session: str, embedder: str, cursor: str | None) -> Plan[MemoryList]:
    """Find memories with a text that have no vector of an embedder, on one page of the list."""
    page = yield from list_memories(session, where=None, limit=_BATCH, cursor=cursor)
    missing = [each for each in page if has_text(each.text) and each.embedder != embedder]
    return MemoryList(missing, page.cursor)


def complete_memories(
    settings: Settings, found: MemoryList, embedder: str, vectors: Mapping[str, Vector]
) -> Plan[int]:
    """Append memories with the vectors of their texts; return how many had not changed."""
    completed = 0
    for memory in found:
        assert memory.text is not None
        completed += yield from _complete(settings, memory, embedder, vectors[memory.text])
    return completed


def _complete(settings: Settings, memory: Memory, embedder: str, vector: Vector) -> Plan[bool]:
    ttl_s: float | None = None
    if memory.expires_at is not None:
        # It keeps its time of expiry.
        head = yield from perform(ReadHead(memory.collection))
        ttl_s = (memory.expires_at - to_datetime(head.now_ms)).total_seconds()
        if ttl_s <= 0:
            return False
    stored = StoredMemory(
        id=memory.id,
        text=memory.text,
        value=memory.value,
        vector=vector,
        embedder=embedder,
        source=memory.source,
        ttl_s=ttl_s,
        metadata=memory.metadata,
    )
    key = MADE_PREFIX + settings.ids()
    version = NewMemory(memory.collection, stored, key, fresh=True, expected=memory.position)
    try:
        yield from remember(settings, version)
    except ConflictError as error:
        if error.details.get("reason") != "item":
            raise
        return False
    return True
