"""An `Embeddings` of LangChain as the embedder of a store."""

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

import indelible

FACTS = ("users", "ana", "facts")


def test_a_blocking_store_takes_them(tmp_path):
    embedder = DeterministicFakeEmbedding(size=8)
    with indelible.open(tmp_path / "agent.db", embedder=embedder) as store:
        store.remember(FACTS, "drinks tea", id="drink")
        store.remember(FACTS, "has a dog", id="pet")
        memory = store.get_memory(FACTS, "pet")
        assert memory.embedder == "DeterministicFakeEmbedding"
        assert memory.vector == pytest.approx(embedder.embed_query("has a dog"))
        assert store.search("has a dog")[0].ranks == {"text": 1, "vector": 1}


async def test_an_async_store_awaits_their_twins(tmp_path):
    class Awaited(DeterministicFakeEmbedding):
        model: str = "m-1"

        def embed_documents(self, texts):
            raise AssertionError

        def embed_query(self, text):
            raise AssertionError

        async def aembed_documents(self, texts):
            return [[float(len(text)), 1.0] for text in texts]

        async def aembed_query(self, text):
            return [float(len(text)), 1.0]

    async with indelible.open_async(tmp_path / "agent.db", embedder=Awaited(size=2)) as store:
        await store.add_summary("s", "so far")
        await store.remember("s", "has a dog", id="pet")
        memory = await store.get_memory("s", "pet")
        assert (memory.vector, memory.embedder) == ((9.0, 1.0), "Awaited:m-1")
        (match,) = await store.search_summaries("s", "so far")
        assert match.score == pytest.approx(1.0)
