"""Snapshots, rollback, undo and branches for the history of one session."""

from __future__ import annotations

from typing import Self

from indelible import Snapshot, ViewChange
from indelible.adapters.store_variants import (
    Store,
    check_store,
    run_blocking,
    to_async,
    to_blocking,
)


class Branches:
    """One session on a store, for sync and async code."""

    def __init__(self, session_id: str, store: Store) -> None:
        self.session_id = session_id
        self._store = check_store(store)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_id!r}, {self._store!r})"

    def snapshot(self, label: str | None = None) -> Snapshot:
        """Save the current view of the session."""
        return run_blocking(to_blocking(self._store).save_snapshot(self.session_id, label=label))

    async def asnapshot(self, label: str | None = None) -> Snapshot:
        """Save the current view of the session."""
        return await to_async(self._store).save_snapshot(self.session_id, label=label)

    def rollback(self, snapshot_id: str) -> ViewChange:
        """Restore the view of a snapshot."""
        store = to_blocking(self._store)
        return run_blocking(store.rollback_to_snapshot(self.session_id, snapshot_id))

    async def arollback(self, snapshot_id: str) -> ViewChange:
        """Restore the view of a snapshot."""
        return await to_async(self._store).rollback_to_snapshot(self.session_id, snapshot_id)

    def undo(self) -> ViewChange:
        """Undo the newest change of what the session shows: a rollback, a clear, a trim."""
        return run_blocking(to_blocking(self._store).undo(self.session_id))

    async def aundo(self) -> ViewChange:
        """Undo the newest change of what the session shows: a rollback, a clear, a trim."""
        return await to_async(self._store).undo(self.session_id)

    def branch(self, session_id: str, *, at: str | None = None) -> Self:
        """Fork the session, or a snapshot of it, into a new one."""
        run_blocking(to_blocking(self._store).fork(self.session_id, session_id, at=at))
        return type(self)(session_id, self._store)

    async def abranch(self, session_id: str, *, at: str | None = None) -> Self:
        """Fork the session, or a snapshot of it, into a new one."""
        await to_async(self._store).fork(self.session_id, session_id, at=at)
        return type(self)(session_id, self._store)
