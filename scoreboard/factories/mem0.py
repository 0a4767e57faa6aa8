"""mem0 with its default vector store, Qdrant in a folder, and no model."""

from __future__ import annotations

import atexit
import logging
import os
from pathlib import Path
from typing import Any, Final

# Before it is imported: it writes to the home folder, and asks the network.
os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=os.environ.get("TMPDIR", "/tmp"))

from mem0 import Memory

from memory_contract import Adapter
from memory_contract.targets.items import embed_words

# What it says of optional packages, it says for each call.
logging.getLogger("mem0").setLevel(logging.ERROR)
STORES: Final[dict[Path, Any]] = {}


class WordEmbedder:
    """Stands in for a model."""

    def embed(self, text: str, memory_action: str = "") -> list[float]:
        """The vector of a text."""
        del memory_action
        return embed_words(text)


def open_qdrant(workspace: Path) -> Any:
    """One object for the whole program: Qdrant lets one process at a time open a folder."""
    if workspace not in STORES:
        STORES[workspace] = Memory.from_config(
            {
                "vector_store": {
                    "provider": "qdrant",
                    "config": {
                        "path": str(workspace / "qdrant"),
                        "on_disk": True,
                        "embedding_model_dims": len(embed_words("")),
                    },
                },
                # Never called.
                "llm": {"provider": "openai", "config": {"api_key": "none"}},
                "embedder": {"provider": "openai", "config": {"api_key": "none"}},
                "history_db_path": str(workspace / "history.db"),
            }
        )
        STORES[workspace].embedding_model = WordEmbedder()
        # It complains if the interpreter is already ending.
        atexit.register(STORES[workspace].vector_store.client.close)
    return STORES[workspace]


qdrant = Adapter(open="scoreboard.factories.mem0:open_qdrant", reach="process")
