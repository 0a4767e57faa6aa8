"""Goldfish that trust what somebody else hands in: cursors, and files to import."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from memory_contract.goldfish.lives import EVERYTHING, Life, Messages, copy_messages
from memory_contract.goldfish.registry import goldfish
from memory_contract.goldfish.stores import ListStore


@goldfish("class: a cursor that says which session it opens", caught_by="edited_cursor_is_refused")
class TrustingCursor(ListStore):
    """Puts the session into the cursor, and reads whichever session a cursor names."""

    capabilities = EVERYTHING | {"pages"}

    def page(self, session: str, limit: int, cursor: str | None = None) -> tuple[Messages, Any]:
        """A page, of the session and from the position that the cursor says."""
        start = 0
        if cursor is not None:
            session, start = json.loads(base64.urlsafe_b64decode(cursor))
        shown = self.read(session)
        found, stop = shown[start : start + limit], start + limit
        more = json.dumps([session, stop]).encode() if stop < len(shown) else None
        return found, None if more is None else base64.urlsafe_b64encode(more).decode()


@goldfish(
    "class: numbers of a file that are taken for positions",
    caught_by="edited_export_stays_inside",
)
class TrustingImport(ListStore):
    """Keeps all sessions in one log, and shows of it what an imported file says."""

    capabilities = EVERYTHING | {"export"}
    _logs: ClassVar[dict[Path, Messages]] = {}

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self._log = self._logs.setdefault(workspace, [])

    def append(self, session: str, messages: Messages, **options: Any) -> None:
        """Add messages to the log of all, too."""
        super().append(session, messages, **options)
        self._log += copy_messages(messages)

    def export(self, session: str) -> str:
        """The messages, and where they begin and end behind the log of whoever imports them."""
        shown = self.read(session)
        return json.dumps({"session": session, "from": 0, "to": len(shown), "messages": shown})

    def import_session(self, text: str) -> None:
        """Put the messages behind the log, and show the stretch that the file names."""
        fields = json.loads(text)
        with self._locked():
            end = len(self._log)
            self._log += fields["messages"]
            life = Life()
            life.add(copy_messages(self._log[end + fields["from"] : end + fields["to"]]))
            self._save(fields["session"], life)

    @classmethod
    def discard(cls, workspace: Path, sessions: Iterable[str]) -> None:
        """Let go of a workspace."""
        super().discard(workspace, sessions)
        cls._logs.pop(workspace, None)
