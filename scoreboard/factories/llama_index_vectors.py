"""The vector index of LlamaIndex, on the store that it brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding

from memory_contract.targets.items import embed_words

STORES: Final[dict[Path, Any]] = {}


class WordEmbedder(BaseEmbedding):
    """Stands in for a model."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return embed_words(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return embed_words(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return embed_words(query)


def index(workspace: Path) -> Any:
    """One object for the whole program; to persist it is a call that its user makes."""
    return STORES.setdefault(workspace, VectorStoreIndex([], embed_model=WordEmbedder()))
