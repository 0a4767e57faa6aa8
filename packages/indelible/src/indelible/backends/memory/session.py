"""What the in-memory store keeps of a session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from indelible import view
from indelible.core.codec import parse_checksum
from indelible.core.operations import JournalLine, LogRow, Read, SnapshotRecord, StoredEntry
from indelible.core.rules import SessionState
from indelible.view import View


@dataclass(slots=True)
class Life:
    """One life of a session."""

    token: str
    born: int
    staged: bool
    created_at_ms: int
    deadline_ms: int | None
    view: View
    forked_from: str | None = None
    generation: int = 0
    metadata: bytes = b"{}"
    # First position, checksums of the entries, and generation, of every append by its key.
    keys: dict[str, tuple[int, list[bytes], int]] = field(default_factory=dict)
    snapshots: dict[str, SnapshotRecord] = field(default_factory=dict)
    journal: list[JournalLine] = field(default_factory=list)


@dataclass(slots=True)
class Session:
    """A log that outlives the lives that are written into it."""

    log: dict[int, LogRow]
    end: int
    life: Life
    vacuums: int = 0
    quarantine: dict[int, tuple[int, str, bytes]] = field(default_factory=dict)

    def build_state(self) -> SessionState:
        """Return the state that the rules decide by."""
        life = self.life
        return SessionState(
            life.token,
            life.born,
            self.end,
            life.generation,
            life.deadline_ms,
            life.staged,
        )


def iterate_positions(extents: view.Extents, op: Read) -> Iterator[int]:
    """Yield the positions that a read goes over, in its direction."""
    if op.newest:
        stop = op.start if op.start is not None else extents[-1][1] if extents else 0
        for start, end in reversed(view.clip(extents, 0, stop)):
            yield from range(end - 1, start - 1, -1)
    else:
        start = op.start or 0
        stop = extents[-1][1] if extents else 0
        yield from view.iter_positions(view.clip(extents, start, stop))


def to_extent(row: LogRow) -> tuple[int, int]:
    """Return the extent of one entry."""
    return row.position, row.position + 1


def find_keys(session: Session) -> Iterator[tuple[str, tuple[int, list[bytes], int]]]:
    """Yield the keys of a copied log, from its entries."""
    for row in session.log.values():
        if row.key is not None and row.position >= session.life.born:
            batch = range(row.position, min(row.position + row.batch, session.end))
            checksums = [parse_checksum(session.log[p].envelope) for p in batch if p in session.log]
            yield row.key, (row.position, checksums, row.generation)


def to_log_order(rows: list[StoredEntry], op: Read) -> tuple[StoredEntry, ...]:
    """Return what was read in the order of the log."""
    return tuple(reversed(rows)) if op.newest else tuple(rows)
