"""Session stores that the Claude Agent SDK ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from claude_agent_sdk import InMemorySessionStore

STORES: Final[dict[Path, Any]] = {}


def in_memory(workspace: Path) -> Any:
    """One object for the whole program."""
    return STORES.setdefault(workspace, InMemorySessionStore())
