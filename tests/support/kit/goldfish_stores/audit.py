"""Stores with an audit: a correct one, and goldfish whose lines say less than they should."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from memory_contract.goldfish.lives import EVERYTHING, Life
from memory_contract.goldfish.registry import goldfish, right
from memory_contract.goldfish.stores import SqliteStore

KEY = b"no secret of anybody"
Lines = list[dict[str, str]]


@right
class AuditStore(SqliteStore):
    """Writes a line with each change, whose hash depends on the line before."""

    # What no change leaves a line for: a life that ends by itself.
    capabilities: ClassVar[frozenset[str]] = EVERYTHING - {"ttl"} | {"audit"}

    def _create(self) -> None:
        super()._create()
        with self._locked():
            self._db.execute("CREATE TABLE IF NOT EXISTS audit (session, line, hash)")

    def _save(self, session: str, life: Life) -> None:
        super()._save(session, life)
        self._add_line(session, life)

    def _add_line(self, session: str, life: Life) -> None:
        before = self._lines(session)[-1:]
        line = f"{life.moves} {len(life.shown)} {len(life.snapshots)}"
        row = (session, line, self._hash(before, line))
        self._db.execute("INSERT INTO audit VALUES (?, ?, ?)", row)

    def _lines(self, session: str) -> Lines:
        query = "SELECT line, hash FROM audit WHERE session = ? ORDER BY rowid"
        rows = self._db.execute(query, (session,))
        return [{"line": line, "hash": hash_} for line, hash_ in rows]

    def _hash(self, before: Lines, line: str) -> str:
        chained = f"{[each['hash'] for each in before]} {line}"
        return hmac.new(KEY, chained.encode(), hashlib.sha256).hexdigest()

    def start_audit(self) -> None:
        """Every change has a line anyway."""

    def audit(self, session: str) -> Lines:
        return self._lines(session)

    def verify_audit(self, session: str, head: Any = None, lines: Lines | None = None) -> bool:
        lines = self._lines(session) if lines is None else lines
        for at, line in enumerate(lines):
            if line["hash"] != self._hash(lines[max(0, at - 1) : at], line["line"]):
                return False
        return head is None or any(line["hash"] == head for line in lines)


@goldfish("class: verbs that were added later", caught_by="every_change_leaves_a_line")
class SnapshotsWithoutALine(AuditStore):
    """Writes no line for a snapshot."""

    def _add_line(self, session: str, life: Life) -> None:
        line = self._lines(session)[-1:]
        if not line or line[0]["line"].split()[0] != str(life.moves):
            super()._add_line(session, life)


@goldfish("class: a chain of each writer", caught_by="every_change_leaves_a_line")
class ChainOfEachHandle(AuditStore):
    """Takes the hash of the line before from its own memory."""

    def _add_line(self, session: str, life: Life) -> None:
        line = f"{life.moves} {len(life.shown)} {len(life.snapshots)}"
        self._last = [{"hash": self._hash(getattr(self, "_last", []), line)}]
        row = (session, line, self._last[0]["hash"])
        self._db.execute("INSERT INTO audit VALUES (?, ?, ?)", row)


@goldfish("class: signed lines that are no chain", caught_by="edited_audit_is_noticed")
class SignsEachLineAlone(AuditStore):
    """Computes a hash of each line, and of nothing before it."""

    def _hash(self, before: Lines, line: str) -> str:
        return super()._hash([], line)


@goldfish("class: a chain without its end", caught_by="edited_audit_is_noticed")
class IgnoresTheHead(AuditStore):
    """Verifies the lines that are there, and not that the one that was kept is among them."""

    def verify_audit(self, session: str, head: Any = None, lines: Lines | None = None) -> bool:
        return super().verify_audit(session, None, lines)


@goldfish("class: a log that is written afterwards", caught_by="audit_agrees_after_a_kill")
class LineAfterTheChange(AuditStore):
    """Commits the change, and then its line."""

    def _save(self, session: str, life: Life) -> None:
        SqliteStore._save(self, session, life)
        self._saved = session, life

    @contextmanager
    def _changing(self, session: str) -> Iterator[Life]:
        with super()._changing(session) as life:
            yield life
        with self._locked():
            self._add_line(*self._saved)
