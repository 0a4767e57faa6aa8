"""The two sides of the comparison: what both can do, and indelible's way of doing it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import indelible
from examples.demo.conversation import Line, Turn
from examples.demo.naive import NaiveFile, NaiveStore
from indelible import ChatMessage, Entry, MemoryStoreError, ToolCall

SESSION: Final = "demo"

# How either side says no. Anything else is a defect of the demo, and ends it with a traceback.
REFUSALS: Final = (MemoryStoreError, sqlite3.Error, LookupError, OSError)


class Transcript(Protocol):
    """A conversation that can grow and be read back."""

    def save_turn(self, turn: Turn) -> None:
        """Keep a question and its answer. Returning is the acknowledgement."""
        ...

    def lines(self) -> list[Line]:
        """Everything that the conversation shows, in order."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class Memory(Transcript, Protocol):
    """A conversation that can also be rolled back."""

    def save_call(self, tool: str, arguments: str) -> None:
        """Keep the record of a tool call."""
        ...

    def save_snapshot(self, label: str) -> str:
        """Write down the present state, and say its id."""
        ...

    def snapshots(self) -> list[str]:
        """The ids of the snapshots, oldest first."""
        ...

    def rollback(self, snapshot_id: str) -> None:
        """Show what the snapshot shows."""
        ...


class Ours:
    """indelible, on its embedded default: one file, every setting as it comes."""

    def __init__(self, path: Path) -> None:
        self._store = indelible.open(path)

    def save_turn(self, turn: Turn) -> None:
        """One append: the question and the answer are one batch."""
        self._store.save_context(SESSION, turn.human, turn.ai)

    def save_call(self, tool: str, arguments: str) -> None:
        """One append."""
        self._store.add_tool_call(SESSION, "call-1", tool, arguments)

    def lines(self) -> list[Line]:
        """All pages of what the session shows; the cursor keeps them in one state."""
        page = self._store.get_entries(SESSION)
        lines = [_to_line(entry) for entry in page]
        while page.cursor is not None:
            page = self._store.get_entries(SESSION, cursor=page.cursor)
            lines += [_to_line(entry) for entry in page]
        return lines

    def save_snapshot(self, label: str) -> str:
        """A few bytes: which positions show."""
        return self._store.save_snapshot(SESSION, label=label).id

    def snapshots(self) -> list[str]:
        """The ids, oldest first."""
        return [snapshot.id for snapshot in self._store.list_snapshots(SESSION)]

    def rollback(self, snapshot_id: str) -> None:
        """Move the view; nothing is rebuilt and nothing is deleted."""
        self._store.rollback_to_snapshot(SESSION, snapshot_id)

    def close(self) -> None:
        """Close the file."""
        self._store.close()


def _to_line(entry: Entry) -> Line:
    match entry.value:
        case ChatMessage(role=role, content=content):
            return Line(entry.position, role, str(content))
        case ToolCall(name=name, arguments=arguments):
            return Line(entry.position, "tool", f"{name}: {arguments}")
        case other:
            return Line(entry.position, entry.kind, repr(other))


@dataclass(frozen=True, kw_only=True, slots=True)
class Cast:
    """Who plays which part. The processes open the stores themselves: they get a path, no more."""

    naive: Callable[[Path], Memory] = NaiveStore
    naive_file: Callable[[Path], Transcript] = NaiveFile
    ours: Callable[[Path], Memory] = Ours
