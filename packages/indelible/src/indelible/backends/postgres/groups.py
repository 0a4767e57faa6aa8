"""Appends that wait at the same time share one statement, and each gets its own answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from indelible.backends.postgres.statements import LOCK_WAIT_S, lock_wait_s
from indelible.core.deadline import Deadline
from indelible.core.leases import Leaders, Lease, Queued, fill
from indelible.core.operations import Append
from indelible.errors import BusyError, OutcomeUnknownError

# Groups under way at once: the second travels while the first is being committed. More would only
# make the groups smaller.
LEADERS_MAX: Final = 2
# A group is one statement with some parameters for each, and one transaction.
GROUP_MAX: Final = 128
GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
# How long a group waits for the row of one of its sessions. Then it is given up, and each of its
# appends goes alone: nobody waits long for a stranger's lock.
GROUP_WAIT_S: Final = 0.25


class Job(Queued):
    """An append that waits for its commit."""

    __slots__ = ("answered", "append", "error", "patience", "settle", "version")

    def __init__(self, append: Append, patience: Deadline, settle: Any = None) -> None:
        super().__init__()
        self.append = append
        self.patience = patience
        self.version: str | None = None
        self.error: Exception | None = None
        # Whether there is a version or an error: not if whoever led it was interrupted.
        self.answered = False
        # Whom to tell, where the caller does not wait in a thread.
        self.settle = settle

    def answer(self, version: str | None) -> None:
        """Note the function's answer: None where somebody must look."""
        self.version = version
        self.answered = True

    def fail(self, error: Exception) -> None:
        """Note why there is no answer."""
        self.error = error
        self.answered = True

    def outcome(self) -> str | None:
        """The function's answer, or the error."""
        if self.error is not None:
            raise self.error
        if not self.answered:
            raise interrupted_write()
        return self.version


def take(group: list[Job], waiting: deque[Job], lease: Lease) -> None:
    """Fill a group from those who wait."""
    fill(group, waiting, lease, size_of=_size_of, jobs_max=GROUP_MAX, bytes_max=GROUP_BYTES_MAX)


def _size_of(job: Job) -> int:
    return sum(len(draft.envelope) for draft in job.append.drafts)


def in_order(group: list[Job]) -> list[Job]:
    """Rows are taken in one order by everyone, so that two groups never wait for each other."""
    if len(group) == 1:
        return group
    return sorted(group, key=lambda job: job.append.session.encode())


def soonest(group: list[Job]) -> Deadline:
    """The deadline of a group: its earliest."""
    if len(group) == 1:
        return group[0].patience
    return min((job.patience for job in group), key=Deadline.left_s)


def wait_s_of(patience: Deadline, *, alone: bool) -> float:
    """How long to wait for a row, before a pause and the next attempt."""
    return lock_wait_s(patience.left_s(), longest_s=LOCK_WAIT_S if alone else GROUP_WAIT_S)


def waited_too_long() -> BusyError:
    """A job was still in the queue at its deadline."""
    return BusyError(
        "other appends of this process were before it until the deadline; nothing was written, so"
        " it is safe to try again"
    )


def interrupted_write() -> OutcomeUnknownError:
    """Whoever sent a write, perhaps with others, was interrupted."""
    return OutcomeUnknownError(
        "it was interrupted while it was sent: it may have landed. The same call with the same key"
        " makes sure"
    )


class Groups:
    """Threads that append: one leads a group, the others wait for its answer."""

    def __init__(self, perform: Callable[[list[Job]], None]) -> None:
        self._leaders: Leaders[int, Job] = Leaders(
            range(1, LEADERS_MAX + 1), lambda _, group: perform(group), take
        )

    def run(self, job: Job) -> None:
        """Append, together with whoever else is waiting; then the job has its outcome."""
        if not self._leaders.run(job, job.patience.left_s):
            job.fail(waited_too_long())

    @property
    def waiting(self) -> int:
        """How many appends wait for a leader."""
        return len(self._leaders.waiting)

    @property
    def leading(self) -> int:
        """How many groups are under way."""
        return self._leaders.held

    def after_fork(self) -> None:
        """In a forked child: nobody waits, and nobody leads."""
        self._leaders.reset()
