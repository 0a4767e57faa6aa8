"""Storage of memories that CrewAI ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crewai.memory.storage.lancedb_storage import LanceDBStorage


def lancedb(workspace: Path) -> Any:
    """A folder of LanceDB, which is its default."""
    return LanceDBStorage(path=str(workspace / "lancedb"))
