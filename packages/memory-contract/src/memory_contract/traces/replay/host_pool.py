"""The hosts of a replay: all lanes in this process, or each group in a process of its own."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memory_contract.adapter import Adapter, Flavour
from memory_contract.runner import StoreUnderTest
from memory_contract.traces.format import WorkerKind
from memory_contract.traces.replay.host import ANSWER_S_MAX, ReplayHost
from memory_contract.traces.replay.plan import ReplayStep, has_tasks, list_processes
from memory_contract.workers.pool import Worker, WorkerPool

# Calls of other processes begin together at a moment by which all have been told.
TOLD_NS: Final = {"processes": 1_000_000, "threads": 300_000, "tasks": 300_000}
TELLING_NS: Final = {"processes": 500_000, "threads": 200_000, "tasks": 100_000}


@dataclass(frozen=True, slots=True)
class WorkerMode:
    """How the workers of a replay run."""

    workers: WorkerKind
    flavour: Flavour


def choose_worker_mode(
    subject: StoreUnderTest, steps: list[ReplayStep], asked: WorkerKind | None
) -> WorkerMode:
    """Choose how workers run: as in the trace, or as close to it as the store allows."""
    adapter, flavours = subject.adapter, subject.flavours
    wanted = asked
    if wanted is None and len(list_processes(steps)) > 1:
        wanted = "processes"
    elif wanted is None and has_tasks(steps):
        wanted = "tasks"
    elif wanted is None and not list_processes(steps) and subject.worker_pool is not None:
        # A history that does not say how it ran.
        wanted = "processes"
    if wanted == "processes" and subject.worker_pool is not None:
        awaited = has_tasks(steps) or "blocking" not in flavours
        return WorkerMode("processes", "async" if awaited and "async" in flavours else "blocking")
    if "async" in flavours and (wanted == "tasks" or "blocking" not in flavours):
        return WorkerMode("tasks", "async")
    if adapter.reach == "handle" and not adapter.thread_safe and "async" in flavours:
        return WorkerMode("tasks", "async")
    return WorkerMode("threads", "blocking")


class HostPool:
    """Finds, opens and ends the hosts of one run."""

    def __init__(
        self,
        subject: StoreUnderTest,
        workspace: Path,
        way: WorkerMode,
        key: bytes,
    ) -> None:
        self._adapter: Adapter = subject.adapter
        self._worker_pool: WorkerPool | None = subject.worker_pool
        self._workspace = workspace
        self.way = way
        self._key = key
        # Hosts in this process, or processes with a host each.
        self._hosts: dict[str, ReplayHost | Worker] = {}
        # The host of each open lane.
        self._lanes: dict[str, str] = {}

    def open(self, lane: str, group: str) -> None:
        """Open the handle of a lane, unless it is open."""
        if lane in self._lanes:
            return
        where = group if self.way.workers == "processes" else ""
        # Everybody shares a handle where a store has only one.
        group = "" if self._adapter.reach == "handle" else group
        if where not in self._hosts:
            self._hosts[where] = self._create(remote=self.way.workers == "processes")
        self._lanes[lane] = where
        self.call(lane, "open", lane, group)

    def call(self, lane: str, method: str, *arguments: Any) -> Any:
        """Call a method of the host of an open lane."""
        return _call_host(self._hosts[self._lanes[lane]], method, *arguments)

    def _create(self, *, remote: bool) -> ReplayHost | Worker:
        host = ReplayHost(
            self._adapter,
            self._workspace,
            self.way.flavour,
            key=self._key,
            preempted=self.way.workers == "threads",
        )
        if remote:
            assert self._worker_pool is not None
            worker = self._worker_pool.start_worker()
            worker.ask("install_plugin", host)
            return worker
        host.install()
        return host

    def open_fresh(self, lane: str) -> None:
        """Open a lane for the last reads, in a fresh process where the store allows it."""
        if self._adapter.reach == "handle" and self._hosts:
            self.open(lane, "")
            return
        remote = self._adapter.reach == "machine" and self._worker_pool is not None
        self._hosts[lane] = self._create(remote=remote)
        self._lanes[lane] = lane
        self.call(lane, "open", lane, lane)

    def leave(self, lane: str) -> None:
        """End a lane."""
        # Where one handle is all there is, it stays open for the last reads.
        if lane in self._lanes and self._adapter.reach != "handle":
            self.call(lane, "leave", lane)
        self._lanes.pop(lane, None)

    def kill(self, lane: str) -> bool:
        """Kill the process of a lane; False if it has none of its own."""
        where = self._lanes[lane]
        host = self._hosts[where]
        if not isinstance(host, Worker):
            return False
        host.kill()
        del self._hosts[where]
        self._lanes = {name: at for name, at in self._lanes.items() if at != where}
        return True

    def plan_moment(self, calls: int) -> int:
        """Choose a moment to start so many calls: by then all hosts have received theirs."""
        ahead = TOLD_NS[self.way.workers] + calls * TELLING_NS[self.way.workers]
        return time.monotonic_ns() + ahead if calls > 1 else 0

    def end(self) -> None:
        """Close everything."""
        for host in self._hosts.values():
            with contextlib.suppress(Exception):
                _call_host(host, "end")
            if isinstance(host, Worker):
                host.kill()
        self._hosts = {}


def _call_host(host: ReplayHost | Worker, method: str, *arguments: Any) -> Any:
    if isinstance(host, Worker):
        # One that hangs is lost; what the host itself raises is the store's doing.
        return host.ask("call_plugin", method, arguments, wait_s=ANSWER_S_MAX)
    return getattr(host, method)(*arguments)
