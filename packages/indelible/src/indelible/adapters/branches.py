"""Snapshots, rollback, undo and branches for the history of one session."""

from __future__ import annotations

from typing import Self

from indelible import AsyncMemoryStore, Snapshot, ViewChange
from indelible.adapters.store_variants import Store, StoreVariants, check_store, make_pair


class Branches(StoreVariants):
    """One session on a store, for sync and async code."""

    def __init__(self, session_id: str, store: Store) -> None:
        self.session_id = session_id
        self._store = check_store(store)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_id!r}, {self._store!r})"

    async def _snapshot(self, store: AsyncMemoryStore, label: str | None = None) -> Snapshot:
        """Save the current view of the session."""
        return await store.save_snapshot(self.session_id, label=label)

    snapshot, asnapshot = make_pair(_snapshot)

    async def _rollback(self, store: AsyncMemoryStore, snapshot_id: str) -> ViewChange:
        """Restore the view of a snapshot."""
        return await store.rollback_to_snapshot(self.session_id, snapshot_id)

    rollback, arollback = make_pair(_rollback)

    async def _undo(self, store: AsyncMemoryStore) -> ViewChange:
        """Undo the newest change of what the session shows: a rollback, a clear, a trim."""
        return await store.undo(self.session_id)

    undo, aundo = make_pair(_undo)

    async def _branch(
        self, store: AsyncMemoryStore, session_id: str, *, at: str | None = None
    ) -> Self:
        """Fork the session, or a snapshot of it, into a new one."""
        await store.fork(self.session_id, session_id, at=at)
        return type(self)(session_id, self._store)

    branch, abranch = make_pair(_branch)
