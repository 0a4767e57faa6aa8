"""Appends that wait at the same time share one statement, and each gets its own answer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from indelible.backends.postgres.statements import LOCK_WAIT_S, lock_wait_s
from indelible.core.patience import Patience
from indelible.core.waist import Append
from indelible.errors import BusyError

# Groups under way at once: the second travels while the first is being committed. More would only
# make the groups smaller.
LEADERS_MAX: Final = 2
# A group is one statement with some parameters for each, and one transaction.
GROUP_MAX: Final = 128
GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
# How long a group waits for the row of one of its sessions. Then it is given up, and each of its
# appends goes alone: nobody waits long for a stranger's lock.
GROUP_WAIT_S: Final = 0.25


class Job:
    """An append that waits for its commit."""

    __slots__ = ("append", "error", "leads", "patience", "settle", "version", "wake")

    def __init__(self, append: Append, patience: Patience, settle: Any = None) -> None:
        self.append = append
        self.patience = patience
        self.version: str | None = None
        self.error: Exception | None = None
        self.wake: threading.Event | None = None
        self.leads = False
        # Whom to tell, where the caller does not wait in a thread.
        self.settle = settle

    def outcome(self) -> str | None:
        """The function's answer, or the error."""
        if self.error is not None:
            raise self.error
        return self.version


def take(waiting: deque[Job], group: list[Job]) -> list[Job]:
    """Fill a group from those who wait."""
    size = sum(map(_size_of, group))
    while waiting and len(group) < GROUP_MAX:
        size += _size_of(waiting[0])
        if group and size > GROUP_BYTES_MAX:
            break
        group.append(waiting.popleft())
    return group


def _size_of(job: Job) -> int:
    return sum(len(draft.envelope) for draft in job.append.drafts)


def in_order(group: list[Job]) -> list[Job]:
    """Rows are taken in one order by everyone, so that two groups never wait for each other."""
    if len(group) == 1:
        return group
    return sorted(group, key=lambda job: job.append.session.encode())


def soonest(group: list[Job]) -> Patience:
    """The deadline of a group: its earliest."""
    if len(group) == 1:
        return group[0].patience
    return min((job.patience for job in group), key=Patience.left_s)


def wait_s_of(patience: Patience, *, alone: bool) -> float:
    """How long to wait for a row, before a pause and the next attempt."""
    return lock_wait_s(patience.left_s(), longest_s=LOCK_WAIT_S if alone else GROUP_WAIT_S)


def waited_too_long() -> BusyError:
    """A job was still in the queue at its deadline."""
    return BusyError(
        "other appends of this process were before it until the deadline; nothing was written, so"
        " it is safe to try again"
    )


class Groups:
    """Threads that append: one leads a group, the others wait for its answer."""

    def __init__(self, perform: Callable[[list[Job]], None]) -> None:
        self._perform = perform
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._leading = 0

    def run(self, job: Job) -> None:
        """Append, together with whoever else is waiting; then the job has its outcome."""
        with self._lock:
            leads = self._leading < LEADERS_MAX
            if leads:
                self._leading += 1
                group = take(self._waiting, [job])
            else:
                job.wake = threading.Event()
                self._waiting.append(job)
        if not leads:
            group = self._wait(job)
        if group:
            try:
                self._perform(group)
            finally:
                self._hand_over(group)

    def _wait(self, job: Job) -> list[Job]:
        """Wait for an answer, or for the lead: then the group to perform is returned."""
        assert job.wake is not None
        try:
            job.wake.wait(job.patience.left_s())
            late = not job.wake.is_set() and self._withdraw(job)
            if not late:
                # It is on its way; whoever leads it has a deadline too.
                job.wake.wait()
        except BaseException:
            # Interrupted while waiting: nobody may append it later, for a caller who is gone.
            if not self._withdraw(job) and job.leads:
                self._hand_over([])
            raise
        if late:
            job.error = waited_too_long()
        if late or not job.leads:
            return []
        with self._lock:
            return take(self._waiting, [job])

    def _withdraw(self, job: Job) -> bool:
        """Take a job out of the queue; says whether it was still there."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(job)
            return True
        return False

    def _hand_over(self, group: list[Job]) -> None:
        """Tell a group that its outcome is there, and let the next in line lead."""
        with self._lock:
            if self._waiting:
                following = self._waiting.popleft()
                following.leads = True
                assert following.wake is not None
                following.wake.set()
            else:
                self._leading -= 1
        for job in group:
            if job.wake is not None:
                job.wake.set()

    def after_fork(self) -> None:
        """In a forked child: nobody waits, and nobody leads."""
        self._lock = threading.Lock()
        self._waiting.clear()
        self._leading = 0
