"""Session managers that Strands Agents ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strands.session.file_session_manager import FileSessionManager


def file(workspace: Path) -> Any:
    """A folder for each session, a file for each message."""
    return FileSessionManager(session_id="scoreboard", storage_dir=str(workspace))
