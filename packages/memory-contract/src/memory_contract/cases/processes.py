"""Processes that are killed, stopped or forked in the middle of a call, or whose clock is set."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, Literal

from memory_contract.adapter import Refused
from memory_contract.calls import (
    Call,
    Log,
    Program,
    ask,
    build_failure,
    build_success,
    format_error,
)
from memory_contract.case_context import (
    CaseContext,
    CaseNotClaimed,
    CaseUnknown,
    Client,
    RemoteHandle,
)
from memory_contract.cases.case import case
from memory_contract.cases.disk_recording import forget_outcome
from memory_contract.cases.workload import build_append, build_call, repeat_until_ok
from memory_contract.faults.clocks import JumpingClock
from memory_contract.history import Operation
from memory_contract.workers.pool import StoreRaised, Worker, WorkerLost

WRITERS: Final = 3
KILLS: Final = 8
FIRST_OPENS: Final = 5
# How long a store without a declared bound may be unusable after a kill. A store that holds a lock
# for longer by design does not fail; one that cannot be read does.
RECOVERY_S: Final = 8.0
# How long the kernel may take to end a process that was killed.
ENDING_S_MAX: Final = 10.0
# Assumed duration of an append before any was timed.
APPEND_S: Final = 0.005


class PendingCall:
    """A call that a worker was told to make, and whose answer was not read yet."""

    def __init__(self, client: Client, call: Call) -> None:
        self._client = client
        self._call = call
        self._began = time.monotonic_ns()
        ask(RemoteHandle(client.worker, client.worker.tell), call, client.context.names)

    def finish(self) -> Operation:
        """Wait for the answer and record the call; if the worker ended, the outcome is unknown."""
        context, name = self._client.context, self._client.name
        try:
            answer = self._client.worker.answer()
        except Exception as error:  # noqa: BLE001 -- whatever a store raises is an outcome
            return context.record(build_failure(name, self._call, self._began, error), error)
        return context.record(build_success(name, self._call, self._began, answer, context.names))


def _list_append_s(operations: Sequence[Operation]) -> list[float]:
    """How long acknowledged appends took."""
    return [
        (op.complete_ns - op.invoke_ns) / 1e9
        for op in operations
        if op.outcome == "ok" and op.complete_ns is not None and op.op == "append"
    ] or [APPEND_S]


def _kill_process(context: CaseContext, worker: Worker) -> None:
    """Kill a process and wait until it is gone. What it answered can still be read."""
    with context.fault("kill -9"):
        worker.strike()
        until = time.monotonic() + ENDING_S_MAX
        # Its files and locks are released before its process id is.
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < until:
                os.kill(worker.pid, 0)
                time.sleep(0.001)


@contextmanager
def _pause_process(context: CaseContext, worker: Worker) -> Iterator[None]:
    """Stop a process during the block."""
    with context.fault("SIGSTOP"):
        os.kill(worker.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGCONT)


@case(
    "crash",
    catches="an acknowledged entry that is lost with its writer, or half a batch",
)
def kill9_under_load(context: CaseContext) -> None:
    """Kill writers in the middle of appends; the next process finds all acknowledged entries."""
    sessions = [context.new_session(), context.new_session()]
    writers = [context.open_in_process() for _ in range(WRITERS)]
    for number in range(KILLS):
        victim = number % WRITERS
        # Alternate between a crowd, where a call mostly waits, and a single writer.
        at_once = writers if number % 2 else [writers[victim]]
        _append_in_parallel(at_once, sessions)
        if not _append_in_parallel(at_once, sessions, writers[victim]):
            break
        writers[victim] = _reopen(context)
    _expect_recovery(context, sessions)


def _append_in_parallel(
    writers: list[Client], sessions: list[str], victim: Client | None = None
) -> bool:
    """Let every writer append a batch at the same time, and kill the victim.

    Gives whether anyone can still write, as far as is known.
    """
    context, alone = writers[0].context, len(writers) == 1
    last = context.history[-len(writers) :]
    took_s = min(_list_append_s(context.history)) if alone else 1.4 * median(_list_append_s(last))
    chance, pending = context.random, []
    for writer in writers:
        count = chance.choice((1, 2, 3))
        call = build_append(context, chance.choice(sessions), count)
        pending.append(PendingCall(writer, call))
    if victim is not None:
        # Before the call begins, in the middle of it, or right after the answer.
        time.sleep(chance.uniform(0.0, 1.0) * took_s)
        _kill_process(context, victim.worker)
    done = [call.finish() for call in pending]
    return alone or any(op.outcome == "ok" for op in done)


@case(
    "crash",
    catches="a store that cannot be opened after its creation was interrupted",
)
def kill9_in_first_open(context: CaseContext) -> None:
    """Kill a process while it opens a store that nobody opened before; the next one can."""
    worker, where = _start_warm_worker(context), context.create_sibling_workspace()
    began = time.monotonic()
    worker.ask("open", where, context.flavour, None)
    took_s = time.monotonic() - began
    worker.end()
    for _ in range(FIRST_OPENS):
        where, session = context.create_sibling_workspace(), context.new_session()
        worker = _start_warm_worker(context)
        client = context.attach_client(worker)
        worker.tell("open", where, context.flavour, None)
        append = PendingCall(client, build_append(context, session, 2))
        time.sleep(context.random.uniform(0.0, 1.1) * took_s)
        _kill_process(context, worker)
        with contextlib.suppress(Exception):
            # If the store could not be opened, the append says the same.
            worker.answer()
        append.finish()
        worker.kill()
        _expect_recovery(context, [session], where)


def _start_warm_worker(context: CaseContext) -> Worker:
    """Start a process that has imported what the store needs, with nothing open."""
    worker = context.start_worker()
    worker.ask("open", context.workspace, context.flavour, None)
    worker.ask("close")
    return worker


def _reopen(context: CaseContext, where: Path | None = None) -> Client:
    """Open the store in a fresh process, within its recovery time."""
    until = time.monotonic() + (context.adapter.patience_s or RECOVERY_S)
    while True:
        try:
            return context.open_in_process(workspace=where)
        except WorkerLost as lost:
            raise CaseUnknown(f"the store did not open after a kill: {lost}") from lost
        except (StoreRaised, Refused) as error:
            if time.monotonic() > until:
                words = "a process was killed, and no other can open the store since"
                context.fail("unusable after a kill", f"{words}: {format_error(error)}")
            time.sleep(0.05)


def _expect_recovery(context: CaseContext, sessions: list[str], where: Path | None = None) -> None:
    """Expect that a fresh process can read every session and append."""
    next_one = _reopen(context, where)
    for session in sessions:
        _retry(next_one, "read", session)
        _retry(next_one, "append", session)
        _retry(next_one, "read", session)
    next_one.close()


def _retry(client: Client, op: Literal["append", "read"], session: str) -> None:
    """Repeat a call until it succeeds, within the recovery time."""
    context, patience_s = client.context, client.context.adapter.patience_s
    # A new entry each time, since an unanswered one may have landed.
    last = repeat_until_ok(
        client, lambda: build_call(context, op, session), patience_s or RECOVERY_S
    )
    if last.outcome != "ok":
        error = context.raised[-1]
        words = f"a process was killed, and {op} raises ever since: {format_error(error)}"
        if isinstance(error, WorkerLost):
            raise CaseUnknown(f"{words}; it was not answered")
        # A lock that outlives its holder may expire later.
        if op == "append" and patience_s is None:
            raise CaseUnknown(f"{words}; claim in `patience_s` when a dead process's lock runs out")
        context.fail("unusable after a kill", words, session=session)


PAUSES: Final = 5
# Longer than usual short leases on locks.
PAUSE_S: Final = 0.8
TAKEOVERS_MAX: Final = 4


@case(
    "crash",
    catches="a writer whose lease ran out while it was stopped, and that overwrites later entries",
    modes=("processes",),
)
def paused_writer(context: CaseContext) -> None:
    """Stop a writer in the middle of an append, let another take over, and wake the first."""
    sleeper, other = context.open_in_process(), context.open_in_process()
    session = context.new_session()
    for _ in range(3):
        sleeper.append(session)
        other.append(session)
    took_s = min(_list_append_s(context.history))
    for _ in range(PAUSES):
        asleep = PendingCall(sleeper, build_append(context, session))
        time.sleep(context.random.uniform(0.2, 0.8) * took_s)
        with _pause_process(context, sleeper.worker):
            meanwhile = _append_meanwhile(other, session)
        # A writer that waited for the stopped process can finish now.
        for pending in (asleep, meanwhile):
            if pending is not None:
                pending.finish()
        for reader in (sleeper, other):
            reader.attempt(Call(op="read", session=session))
    context.read_with_fresh_client([session])


def _append_meanwhile(other: Client, session: str) -> PendingCall | None:
    """Append while the other is stopped; returns an append that still waits at the end."""
    until = time.monotonic() + PAUSE_S
    for _ in range(TAKEOVERS_MAX):
        pending = PendingCall(other, build_append(other.context, session))
        if not other.worker.has_answered(max(0.0, until - time.monotonic())):
            return pending
        pending.finish()
    return None


FORKS: Final = 3
APPENDS: Final = 6
# A parent that lost its connection may fail before it reconnects.
TRIES: Final = 3


@case(
    "crash",
    catches="a file, socket or lock that two processes share after a fork",
)
def fork_safety(context: CaseContext) -> None:
    """Fork with an open store: the child writes or raises, and the parent still works."""
    parent, session = context.open_in_process(), context.new_session()
    parent.append(session)
    for number in range(FORKS):
        ours, childs = (
            Program(name, tuple(build_call(context, op, session) for op in OPS * APPENDS))
            for name in (parent.name, f"child{number}")
        )
        began = time.monotonic_ns()
        with context.fault("fork"):
            try:
                log, childs_log = parent.worker.ask("fork", ours, childs, context.names)
            except WorkerLost as lost:
                raise CaseUnknown(f"the process that forked is not heard of: {lost}") from lost
        context.add_log(log)
        context.add_log(childs_log or _build_unknown_log(childs, began))
        _expect_parent_goes_on(parent, session)
        if childs_log is None:
            # It waits for a thread or a lock that only the parent has: so would the next one.
            break
    context.read_with_fresh_client([session])


OPS: Final[tuple[Literal["append", "read"], ...]] = ("append", "read")


def _build_unknown_log(program: Program, began_ns: int) -> Log:
    """The log of a child that never answered: every append may have happened."""
    return Log(
        [
            forget_outcome(
                build_failure(f"{program.worker}-{call.ids[0]}", call, began_ns, Exception())
            )
            for call in program.calls
            if call.op == "append"
        ]
    )


def _expect_parent_goes_on(parent: Client, session: str) -> None:
    """Expect that the parent can write and read, whatever the child did."""
    context = parent.context
    for op in OPS:
        tries = (parent.attempt(build_call(context, op, session)) for _ in range(TRIES))
        if not any(each.outcome == "ok" for each in tries):
            raised = format_error(context.raised[-1])
            words = f"a process forked, and its own {op} raises since: {raised}"
            context.fail("harmed by a fork", words, session=session)


HOUR_S: Final = 3600.0
# Ahead, behind, and right again.
JUMPS: Final[tuple[float, ...]] = (-HOUR_S, 3 * HOUR_S, -24 * HOUR_S, 0.0)


@case(
    "faults",
    catches="entries that are lost or reordered because a clock was set",
)
def clock_jumps(context: CaseContext) -> None:
    """Set a process's clock back and forth; afterwards all entries are there, in order."""
    store = context.open_in_process(plugin=JumpingClock())
    kept, mortal = context.new_session(), context.new_session()
    # With a wrong clock, a read that renews a session may end it.
    mortals = context.claims("ttl") and context.adapter.ttl_refreshed_by != "read"
    store.append(kept, 2)
    mine = store.append(mortal, 2, ttl_s=HOUR_S) if mortals else ()
    for ahead_s in JUMPS:
        with context.fault(f"the clock is {ahead_s / HOUR_S:+g} h off"):
            store.worker.call_plugin("jump", ahead_s)
            store.attempt(Call(op="append", session=kept, ids=store.draw()))
            store.attempt(Call(op="read", session=kept))
            if mortals:
                # It may have expired by such a clock, but must not be deleted.
                with contextlib.suppress(Exception):
                    store.look(mortal)
    if not store.worker.call_plugin("times_asked"):
        raise CaseNotClaimed("the store never asks this process for the time")
    context.read_with_fresh_client([kept])
    if mortals:
        seen = context.open_elsewhere().look(mortal)
        proof = f"{mortal} had an hour to live, its clock was set to and fro, and it shows {seen}"
        right = seen == context.keep_newest(mine)
        context.expect(right, "early expiry", proof, session=mortal)
