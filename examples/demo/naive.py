"""Two stores of the kind that everybody writes: load the list, append, write it back.

Neither is made to fail. There is no sleep in them, and their tests, run in one process, are green.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Final

from examples.demo.conversation import Line, Turn

Message = dict[str, str]

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS history (id INTEGER PRIMARY KEY CHECK (id = 1), messages TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS snapshot (id INTEGER PRIMARY KEY, label TEXT, messages TEXT NOT NULL);
"""
# Generous, so that it loses by its design and not by an impatient lock.
LOCK_TIMEOUT_S: Final = 30.0


def _to_messages(turn: Turn) -> list[Message]:
    return [
        {"role": "user", "content": turn.human},
        {"role": "assistant", "content": turn.ai},
    ]


def _number_lines(messages: list[Message]) -> list[Line]:
    return [Line(n, message["role"], message["content"]) for n, message in enumerate(messages)]


class NaiveStore:
    """A session as one JSON list in SQLite. Every single write is a proper transaction."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S)
        self._db.executescript(SCHEMA)

    def save_turn(self, turn: Turn) -> None:
        """Load, append, write back: whatever others wrote in between is overwritten."""
        messages = self._load()
        messages += _to_messages(turn)
        with self._db:
            self._write(messages)

    def save_call(self, tool: str, arguments: str) -> None:
        """Like a turn, with one message."""
        messages = self._load()
        messages.append({"role": "tool", "content": f"{tool}: {arguments}"})
        with self._db:
            self._write(messages)

    def lines(self) -> list[Line]:
        """The list, numbered from 0."""
        return _number_lines(self._load())

    def save_snapshot(self, label: str) -> str:
        """A copy of the list."""
        with self._db:
            row = self._db.execute(
                "INSERT INTO snapshot (label, messages) VALUES (?, ?) RETURNING id",
                (label, json.dumps(self._load())),
            ).fetchone()
        return str(row[0])

    def snapshots(self) -> list[str]:
        """The ids, oldest first."""
        return [str(row[0]) for row in self._db.execute("SELECT id FROM snapshot ORDER BY id")]

    def rollback(self, snapshot_id: str) -> None:
        """Rebuild the session from a snapshot's copy, so that no reader sees half of it.

        Here is the bug. Emptying the history and filling it again used to be two transactions, and
        a crash in between left nothing. The refactoring that made them one calls `_reset`, which
        existed already and empties every table of the session: the snapshots too.
        """
        row = self._db.execute(
            "SELECT messages FROM snapshot WHERE id = ?", (snapshot_id,)
        ).fetchone()
        if row is None:
            raise LookupError(f"no snapshot {snapshot_id}")
        with self._db:
            self._reset()
            self._write(json.loads(row[0]))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _reset(self) -> None:
        self._db.execute("DELETE FROM history")
        self._db.execute("DELETE FROM snapshot")

    def _load(self) -> list[Message]:
        row = self._db.execute("SELECT messages FROM history").fetchone()
        messages: list[Message] = json.loads(row[0]) if row else []
        return messages

    def _write(self, messages: list[Message]) -> None:
        self._db.execute("INSERT OR REPLACE INTO history VALUES (1, ?)", (json.dumps(messages),))


class NaiveFile:
    """A session as one JSON file, rewritten in place for each turn."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save_turn(self, turn: Turn) -> None:
        """Opening the file to write empties it; until the dump is complete, the history is gone."""
        messages = self._load()
        messages += _to_messages(turn)
        with self._path.open("w", encoding="utf-8") as file:
            json.dump(messages, file)

    def lines(self) -> list[Line]:
        """The list, numbered from 0. A file that is not JSON raises a ValueError."""
        return _number_lines(self._load())

    def close(self) -> None:
        """Nothing is held between calls."""

    def _load(self) -> list[Message]:
        if not self._path.exists():
            return []
        messages: list[Message] = json.loads(self._path.read_text(encoding="utf-8"))
        return messages
