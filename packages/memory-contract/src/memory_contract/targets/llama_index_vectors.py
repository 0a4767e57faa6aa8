"""Vector indexes of LlamaIndex (`VectorStoreIndex`): nodes that are inserted, deleted, retrieved.

All nodes are in one index, as its users have it; a collection is a field of their metadata.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any, Final

from memory_contract.targets.items import Fields, Hit, ItemsHandle
from memory_contract.targets.vocabulary import Vocabulary

_COLLECTION: Final = "kit_collection"
_ID: Final = "kit_item"


class IndexHandle(ItemsHandle):
    """Nodes of an index."""

    async def put_item(self, session: str, item: str, text: str, fields: Fields = None) -> None:
        if await self.get_item(session, item) is not None:
            await self.retract(session, item)
        metadata = {_COLLECTION: session, _ID: item, **(fields or {})}
        node = import_module("llama_index.core.schema").TextNode(
            id_=_node_id(session, item),
            text=text,
            metadata=metadata,
            excluded_embed_metadata_keys=list(metadata),
        )
        await self.call_twin(self.store, "insert_nodes", [node])

    async def get_item(self, session: str, item: str) -> Any:
        node = self.store.docstore.get_node(_node_id(session, item), raise_error=False)
        return None if node is None else node.get_content()

    async def list_items(self, session: str) -> dict[str, str]:
        nodes = self.store.docstore.docs.values()
        ours = [node for node in nodes if node.metadata[_COLLECTION] == session]
        return {node.metadata[_ID]: node.get_content() for node in ours}

    async def search(self, session: str, query: str, limit: int, where: Fields = None) -> list[Hit]:
        types = import_module("llama_index.core.vector_stores")
        wanted = {_COLLECTION: session, **(where or {})}
        filters = types.MetadataFilters(
            filters=[types.MetadataFilter(key=name, value=wanted[name]) for name in wanted]
        )
        retriever = self.store.as_retriever(similarity_top_k=limit, filters=filters)
        found = await self.call_twin(retriever, "retrieve", query)
        return [{"id": hit.metadata[_ID], "text": hit.node.get_content()} for hit in found]

    async def retract(self, session: str, item: str) -> None:
        ids = [_node_id(session, item)]
        await self.call_twin(self.store, "delete_nodes", ids, delete_from_docstore=True)


def _node_id(session: str, item: str) -> str:
    return json.dumps([session, item])


VOCABULARY: Final = Vocabulary(
    package="llama-index-core",
    module="llama_index.core",
    described="a VectorStoreIndex of LlamaIndex",
    methods=("insert_nodes", "delete_nodes", "as_retriever"),
    handle=IndexHandle,
    claims={"capabilities": ("fields", "search", "filter", "retract"), "ordered": False},
)
