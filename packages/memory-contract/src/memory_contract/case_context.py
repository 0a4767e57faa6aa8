"""The context of one run of a case: workspace, clients, workers, and the recorded history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from memory_contract.adapter import Adapter, Flavour, Message, Refused
from memory_contract.calls import Call, Log, Program, ask, build_failure, build_success
from memory_contract.checker.verdict import Anomaly, quote_name
from memory_contract.entries import EntryIds, parse_ids
from memory_contract.gates import Mode
from memory_contract.handles import Loop, LoopFactory, close, open_handle
from memory_contract.history import Fault, Ids, Operation
from memory_contract.results import CaseVerdict, build_case_failure
from memory_contract.workers.pool import (
    ANSWER_S_MAX,
    StoreRaised,
    Worker,
    WorkerPlugin,
    WorkerPool,
)
from memory_contract.workers.races import race_processes, race_tasks, race_threads

T = TypeVar("T")
# What is blamed for an error before there is a handle.
OPENING: Final = "opening the store"


# How cases end. None is an `Exception`: cases that let a store raise catch those.


class CaseFailed(BaseException):
    """The store broke a promise that the case holds it to."""

    def __init__(self, failure: Anomaly) -> None:
        super().__init__(failure.proof)
        self.failure = failure


class Inconclusive(BaseException):
    """The case ends without a verdict on the store; the message is the reason."""

    verdict: ClassVar[CaseVerdict]


class CaseVacuous(Inconclusive):
    """The case could not do what it is for, so nothing is proved."""

    verdict = "VACUOUS"


class CaseUnknown(Inconclusive):
    """The machine may be the cause as well as the store."""

    verdict = "UNKNOWN"


class CaseNotClaimed(Inconclusive):
    """The case found that the store does not offer what it is about."""

    verdict = "NOT CLAIMED"


class CaseNotRun(Inconclusive):
    """This machine lacks what the case needs."""

    verdict = "NOT RUN"


class RemoteHandle:
    """A handle in another process, called as if it were here; `send` sends it a job."""

    def __init__(self, worker: Worker, send: Callable[..., Any]) -> None:
        self.worker = worker
        self._send = send

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self._send("call", method, arguments, options)

    def close(self) -> None:
        """Close the handle there; the process ends."""
        self.worker.end()


class Client:
    """One caller of the store. Every call is recorded; what the store raises comes through."""

    def __init__(
        self,
        context: CaseContext,
        name: str,
        handle: Any,
        settle: Callable[[Any], Any],
        close: Callable[[], None],
    ) -> None:
        self.name = name
        self.handle = handle
        self.context = context
        self.is_open = True
        self._settle = settle
        self._close = close

    def append(self, session: str, count: int = 1, *, ids: Ids = (), **options: Any) -> Ids:
        """Append a batch of new entries (of `count` turns, where a store takes only turns).

        A store that takes no batches is given its entries one by one. `options` are fields of the
        call: `key`, `expected`, `ttl_s`.
        """
        ids = ids or self.draw(count)
        for batch in [ids] if self.context.adapter.batches else [(id_,) for id_ in ids]:
            self.make(Call(op="append", session=session, ids=batch, **options))
        return ids

    def draw(self, count: int = 1) -> Ids:
        """Ids of new entries (of `count` turns, where a store takes only turns)."""
        return self.context.draw_ids(self.name, count)

    @property
    def worker(self) -> Worker:
        """The process that the handle is in."""
        worker: Worker = self.handle.worker
        return worker

    def read(self, session: str, *, limit: int | None = None) -> Ids:
        """The ids that the session shows."""
        seen = self.make(Call(op="read", session=session, limit=limit)).value
        assert isinstance(seen, tuple)
        return seen

    def pop(self, session: str) -> str | None:
        """The id that was taken away; None if there was none."""
        value = self.make(Call(op="pop", session=session)).value
        assert not isinstance(value, tuple)
        return value

    def trim(self, session: str, keep: int) -> None:
        """Keep the newest `keep` entries."""
        self.make(Call(op="trim", session=session, keep=keep))

    def clear(self, session: str) -> None:
        """Show nothing any more."""
        self.make(Call(op="clear", session=session))

    def snapshot(self, session: str) -> str:
        """The kit's name for a new snapshot."""
        name = self.context.new_name("s")
        self.make(Call(op="snapshot", session=session, snapshot=name))
        return name

    def rollback(self, session: str, snapshot: str) -> None:
        """Show what the snapshot showed."""
        self.make(Call(op="rollback", session=session, snapshot=snapshot))

    def make(self, call: Call, around: Callable[[Any], Any] = lambda it: it) -> Operation:
        """Make one call and record it; `around` wraps the awaitable of an async store."""
        context, began = self.context, time.monotonic_ns()
        try:
            answer = self._settle(around(ask(self.handle, call, context.names)))
        except BaseException as error:
            context.record(build_failure(self.name, call, began, error), error)
            raise
        return context.record(build_success(self.name, call, began, answer, context.names))

    def attempt(self, call: Call, around: Callable[[Any], Any] = lambda it: it) -> Operation:
        """Make one call that may raise; its record has the outcome."""
        with suppress(Exception):
            self.make(call, around)
        return self.context.history[-1]

    # Not recorded: for contents that carry no id.

    def put(self, session: str, *messages: Message, **options: Any) -> Any:
        """Append messages as they are."""
        return self.ask("append", session, list(messages), **options)

    def get(self, session: str, **options: Any) -> list[Message]:
        """Read messages as they come back."""
        return list(self.ask("read", session, **options))

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call any method of the handle; what it raises is the store's doing."""
        about = f"{method} on {quote_name(str(arguments[0]))}" if arguments else method
        with self.context.blame_store(about):
            return self._settle(getattr(self.handle, method)(*arguments, **options))

    def look(self, session: str) -> Ids:
        """The ids that the session shows, by a read that is not recorded."""
        return parse_ids(self.get(session))

    def close(self) -> None:
        """Close the handle; again does nothing."""
        self.is_open = False
        close, self._close = self._close, lambda: None
        close()


class CaseContext:
    """One run of one case, in one mode, with one seed."""

    def __init__(
        self,
        adapter: Adapter,
        *,
        mode: Mode,
        flavours: tuple[Flavour, ...],
        workspace: Path,
        seed: int,
        worker_pool: WorkerPool | None,
        loop_factory: LoopFactory | None = None,
    ) -> None:
        self.adapter = adapter
        self.mode = mode
        self.flavours = flavours
        self.workspace = workspace
        self.random = Random(seed)  # noqa: S311 -- runs must repeat
        self.history: list[Operation] = []
        # Errors of the store: operation, message, and whether it says that nothing happened.
        self.errors: list[tuple[Operation, str, bool]] = []
        # What the store raised, and the call that raised each, by the identity of the error.
        self.raised: list[BaseException] = []
        self.raised_by: dict[int, str] = {}
        self.racers: set[str] = set()
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.sessions: set[str] = set()
        # Whether every answer was compared with the model: then the checker is not asked.
        self.is_compared = False
        # How often awaited calls of a race suspended. Without any, tasks cannot overlap.
        self.suspensions = 0
        self.names: dict[str, Any] = {}
        self._worker_pool = worker_pool
        self._loop_factory = loop_factory
        self._loop: Loop | None = None
        self._clients: list[Client] = []
        self._counters: dict[str, int] = {}
        self._entry_ids: dict[str, EntryIds] = {}
        self._held = ExitStack()

    # Names

    def new_name(self, stem: str) -> str:
        """A new name: `s1`, `s2`, ..."""
        self._counters[stem] = number = self._counters.get(stem, 0) + 1
        return f"{stem}{number}"

    def new_session(self) -> str:
        """A session that was not used yet."""
        name = self.new_name("c-")
        self.sessions.add(name)
        return name

    def draw_ids(self, worker: str, count: int = 1) -> Ids:
        """Ids of new entries (of `count` turns, where a store takes only turns)."""
        source = self._entry_ids.setdefault(worker, EntryIds(worker))
        return source.draw(count, pairs=self.adapter.pairs)

    def claims(self, *capabilities: str) -> bool:
        """Whether the store claims all of these."""
        return self.adapter.claims(capabilities)

    # Callers

    @property
    def flavour(self) -> Flavour:
        """Whether clients here block or await: as the mode says, else as the store can."""
        if self.mode in ("async", "tasks"):
            return "async"
        return "blocking" if self.mode in ("blocking", "threads") else self.flavours[0]

    @property
    def clients(self) -> list[Client]:
        """The callers whose handles are open."""
        return [client for client in self._clients if client.is_open]

    def open(self, workspace: Path | None = None, *, server: str | None = None) -> Client:
        """Open a handle in this process; `server` replaces that of the adapter."""
        loop = self._get_loop() if self.flavour == "async" else None
        handle = self._open_handle(workspace or self.workspace, loop, server)
        settle = loop.settle if loop is not None else _return_unchanged
        return self._new_client(handle, settle, lambda: close(handle, loop))

    def _open_handle(self, workspace: Path, loop: Loop | None, server: str | None) -> Any:
        with self.blame_store(OPENING):
            return open_handle(self.adapter, workspace, self.flavour, loop, server)

    @contextmanager
    def blame_store(self, call: str) -> Iterator[None]:
        """Record what is raised in the block as an error of the store, not of the kit."""
        try:
            yield
        except BaseException as error:
            self.add_error(error, call)
            raise

    def add_error(self, error: BaseException, call: str) -> None:
        """Record what a call to the store raised."""
        self.raised.append(error)
        self.raised_by.setdefault(id(error), call)

    def open_in_process(
        self,
        *,
        wait_s: float = ANSWER_S_MAX,
        plugin: WorkerPlugin | None = None,
        server: str | None = None,
        workspace: Path | None = None,
    ) -> Client:
        """Open a handle in a fresh process; a call longer than `wait_s` is `WorkerLost`.

        `plugin` is installed there before the store is opened.
        """
        worker = self.start_worker()
        try:
            with self.blame_store(OPENING):
                if plugin is not None:
                    worker.ask("install_plugin", plugin)
                worker.ask("open", workspace or self.workspace, self.flavour, server)
        except BaseException:
            worker.kill()
            raise
        return self.attach_client(worker, wait_s=wait_s)

    def attach_client(self, worker: Worker, *, wait_s: float = ANSWER_S_MAX) -> Client:
        """A client of the handle that a process has open, or will open."""
        remote = RemoteHandle(worker, partial(worker.ask, wait_s=wait_s))
        return self._new_client(remote, _return_unchanged, remote.close)

    def start_worker(self) -> Worker:
        """Start a process that has opened nothing; the caller ends it."""
        if self._worker_pool is None:
            raise CaseVacuous("there are no other processes to work in")
        return self._worker_pool.start_worker()

    def open_elsewhere(self) -> Client:
        """A client as far away as the store allows: another process, a new handle, or the first."""
        if self.adapter.reach == "machine" and self._worker_pool is not None:
            return self.open_in_process()
        if self.adapter.reach == "handle":
            return self._clients[0]
        return self.open()

    def create_sibling_workspace(self) -> Path:
        """Create another workspace, which shares nothing with this one."""
        beside = self.workspace.with_name(f"{self.workspace.name}-{self.new_name('beside')}")
        beside.mkdir()
        return beside

    def _new_client(self, handle: Any, settle: Any, close_it: Any) -> Client:
        client = Client(self, self.new_name("c"), handle, settle, close_it)
        self._clients.append(client)
        return client

    def _get_loop(self) -> Loop:
        if self._loop is None:
            self._loop = Loop(self._loop_factory)
        return self._loop

    # Workers

    def race(
        self,
        programs: Sequence[Program],
        *,
        own_handles: bool = False,
        server: str | None = None,
        ready: Callable[[], None] | None = None,
    ) -> None:
        """Run programs at the same time, as the mode says, and record their calls.

        Tasks share a handle. So do threads, if the store is thread-safe and `own_handles` is not
        set; without that, somebody has opened the store before. New handles connect to `server`.
        Errors of calls are recorded, not raised; a handle that cannot be opened raises. `ready` is
        called when all handles are open.
        """
        self.racers |= {program.worker for program in programs}
        if not self._clients and not own_handles:
            self.open()
        names = self.names
        try:
            if self.mode == "processes":
                assert self._worker_pool is not None
                where, flavours = self.workspace, self.flavours
                logs = race_processes(
                    self._worker_pool, where, programs, names, flavours, server=server, ready=ready
                )
            elif self.mode == "tasks":
                handle = self._get_first_client().handle
                if ready is not None:
                    ready()
                handles = [handle] * len(programs)
                count = self._count_suspension
                race = race_tasks(programs, names, handles, on_suspension=count)
                logs = self._get_loop().settle(race)
            elif self.adapter.thread_safe and not (own_handles and self.adapter.reach != "handle"):
                handle = self._get_first_client().handle
                handles = [handle] * len(programs)
                logs = race_threads(programs, names, handles=handles, ready=ready)
            else:
                open_own = partial(self._open_handle, self.workspace, None, server)
                logs = race_threads(programs, names, open_own=open_own, ready=ready)
        except (StoreRaised, Refused) as error:
            self.add_error(error, OPENING)
            raise
        for log in logs:
            self.add_log(log)

    def _count_suspension(self) -> None:
        self.suspensions += 1

    def _get_first_client(self) -> Client:
        return self._clients[0] if self._clients else self.open()

    def add_log(self, log: Log) -> None:
        """Add what a worker recorded to the history."""
        self.history += map(self._claim, log.operations)
        self.names |= log.names
        self.errors += [(log.operations[at], words, fair) for at, words, fair in log.errors]

    def read_with_fresh_client(self, sessions: Sequence[str]) -> None:
        """Read sessions at the end, in a fresh process where there can be one."""
        reader = self.open_elsewhere() if self._clients else self.open()
        for session in sessions:
            reader.read(session)

    # Judging

    def record(self, operation: Operation, error: BaseException | None = None) -> Operation:
        """Add an operation to the history, and the error that the store raised."""
        operation = self._claim(operation)
        self.history.append(operation)
        if error is not None:
            self.add_error(error, f"{operation.op} on {quote_name(operation.session)}")
        return operation

    def _claim(self, operation: Operation) -> Operation:
        """The operation with what the store claims to keep, for the checker."""
        keep = self.adapter.keeps_last
        return replace(operation, keep=keep) if keep and operation.op == "append" else operation

    def keep_newest(self, items: Sequence[T]) -> Sequence[T]:
        """What a session shows of all that was appended to it: everything, or what is kept."""
        return items if self.adapter.keeps_last is None else items[-self.adapter.keeps_last :]

    def require_room(self, count: int) -> None:
        """End the case if the store claims to keep fewer entries than that."""
        keeps = self.adapter.keeps_last
        if keeps is not None and keeps < count:
            raise CaseNotClaimed(f"the store keeps {keeps} entries, and the case needs {count}")

    def record_fault(self, name: str, began_ns: int, ended_ns: int | None = None) -> None:
        """Record a fault that was made; without an end, it lasts until the case ends."""
        self.faults.append(Fault(name=name, began_ns=began_ns, ended_ns=ended_ns))

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """Record a fault that lasts as long as the block."""
        began_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self.record_fault(name, began_ns, time.monotonic_ns())

    def note(self, text: str) -> None:
        """Add a note to the report; it does not affect the verdict."""
        self.notes.append(text)

    def expect(self, holds: bool, name: str, proof: str, *, session: str = "") -> None:
        """Fail with `name` and `proof` unless a condition holds."""
        if not holds:
            self.fail(name, proof, session=session)

    def expect_shown(
        self, session: str, expected: Ids, name: str = "wrong history", *, after: str = ""
    ) -> None:
        """Read a session by every open handle: it shows this, after something was done."""
        expected = tuple(self.keep_newest(expected))
        for client in self.clients:
            seen = client.read(session)
            differ = tuple(sorted({*seen} ^ {*expected}))
            proof = f"{session} shows [{' '.join(seen)}] instead of [{' '.join(expected)}]"
            if seen != expected:
                proof = f"after {after}, {proof}" if after else proof
                self.fail(name, proof, session=session, ids=differ)

    def fail(self, name: str, proof: str, *, session: str = "", ids: Ids = ()) -> NoReturn:
        """Report that the store broke a promise."""
        witness = tuple(op for op in self.history if op.session == session)[-5:]
        raise CaseFailed(build_case_failure(name, proof, session=session, ids=ids, witness=witness))

    def enter(self, needed: AbstractContextManager[T]) -> T:
        """Enter a context manager that handles depend on; it exits after they are closed."""
        return self._held.enter_context(needed)

    def close(self) -> None:
        """Close every handle, then what they depend on."""
        with self._held:
            for client in reversed(self._clients):
                with self.blame_store("closing the store"):
                    client.close()
            if self._loop is not None:
                self._loop.close()


def _return_unchanged(answer: Any) -> Any:
    return answer
