"""Memory storage of CrewAI (`StorageBackend`): records with vectors, in scopes.

A collection is a scope of one label. The backend is given vectors, which the kit makes of words.
"""

from __future__ import annotations

import uuid
from importlib import import_module
from typing import Any, Final
from urllib.parse import quote

from memory_contract.adapter import Refused
from memory_contract.targets.items import ALL, OWN_IDS, Fields, Hit, ItemsHandle, embed_words
from memory_contract.targets.vocabulary import Vocabulary

_ID: Final = "kit_item"


class BackendHandle(ItemsHandle):
    """Records of scopes."""

    async def put_item(self, session: str, item: str, text: str, fields: Fields = None) -> None:
        record = import_module("crewai.memory.types").MemoryRecord(
            id=_record_id(session, item),
            content=text,
            scope=_scope(session),
            metadata={_ID: item, **(fields or {})},
            embedding=embed_words(text),
        )
        if self.store.get_record(record.id) is None:
            self.store.save([record])
        else:
            self.store.update(record)

    async def get_item(self, session: str, item: str) -> Any:
        found = self.store.get_record(_record_id(session, item))
        return None if found is None else found.content

    async def list_items(self, session: str) -> dict[str, str]:
        found = self.store.list_records(_scope(session), limit=ALL)
        # A scope shows what is below it; a name that only begins like it is no such thing.
        return {r.metadata[_ID]: r.content for r in found if r.scope == _scope(session)}

    async def search(self, session: str, query: str, limit: int, where: Fields = None) -> list[Hit]:
        found = self.store.search(
            embed_words(query), scope_prefix=_scope(session), metadata_filter=where, limit=limit
        )
        return [{"id": r.metadata[_ID], "text": r.content} for r, _ in found]

    async def retract(self, session: str, item: str) -> None:
        self.store.delete(record_ids=[_record_id(session, item)])

    async def clear_items(self, session: str) -> None:
        self.store.reset(_scope(session))


def _scope(session: str) -> str:
    if not session:
        raise Refused("the scope without a name holds all others")
    return f"/{quote(session, safe='')}"


def _record_id(session: str, item: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{session}\0{item}"))


VOCABULARY: Final = Vocabulary(
    package="crewai",
    module="crewai.memory.storage.backend",
    described="a StorageBackend of CrewAI",
    methods=("save", "search", "get_record", "list_records"),
    handle=BackendHandle,
    # The async methods of its backends are the blocking ones.
    flavours=("blocking",),
    claims={
        "capabilities": ("clear", "fields", "search", "filter", "retract"),
        "ordered": False,
        "notes": (OWN_IDS,),
    },
)
