"""Processes that end in the middle of something, and those that come after them."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Final, Literal

from memory_contract.adapter import Refused
from memory_contract.calls import Call, format_error
from memory_contract.case_context import CaseContext, CaseUnknown
from memory_contract.cases.case import case
from memory_contract.client import Client
from memory_contract.faults.process_faults import (
    PendingCall,
    fastest_append_s,
    get_worker,
    kill_process,
    median_append_s,
)
from memory_contract.workers.pool import StoreRaised, Worker, WorkerLost

WRITERS: Final = 3
KILLS: Final = 8
FIRST_OPENS: Final = 5
# How long a store that names no bound may be out of order after somebody died in it. What holds a
# lock for longer by design is not accused: only who cannot be read at all.
RECOVERY_S: Final = 8.0


@case(
    "crash",
    catches="an entry that was acknowledged and dies with its writer, or half of a batch",
    reach="machine",
)
def kill9_under_load(context: CaseContext) -> None:
    """Kill writers in the middle of appends, again and again; who comes after finds all of it."""
    sessions = [context.new_session(), context.new_session()]
    writers = [context.open_in_process() for _ in range(WRITERS)]
    for number in range(KILLS):
        victim = number % WRITERS
        # By turns in a crowd, where most of a call is waiting, and alone, where all of it is work.
        at_once = writers if number % 2 else [writers[victim]]
        _round(context, at_once, sessions)
        if not _round(context, at_once, sessions, writers[victim]):
            break
        writers[victim] = reopened(context)
    back_in_order(context, sessions)


def _round(
    context: CaseContext, writers: list[Client], sessions: list[str], victim: Client | None = None
) -> bool:
    """Every writer appends a batch at the same time; the victim does not live to tell.

    Gives whether anyone can still write, as far as is known.
    """
    chance, alone = context.random, len(writers) == 1
    took_s = (
        fastest_append_s(context.history)
        if alone
        else 1.4 * median_append_s(context.history[-len(writers) :])
    )
    pending = []
    for writer in writers:
        ids = writer.draw(context.adapter.at_once(chance.choice((1, 2, 3))))
        call = Call(op="append", session=chance.choice(sessions), ids=ids)
        pending.append(PendingCall(context, writer, call))
    if victim is not None:
        # Before it begins, in the middle of it, or when it has just been answered.
        time.sleep(chance.uniform(0.0, 1.0) * took_s)
        kill_process(context, get_worker(victim))
    done = [begun.finish() for begun in pending]
    return alone or any(op.outcome == "ok" for op in done)


@case(
    "crash",
    catches="a first start that was cut short, and no start ever after",
    reach="machine",
)
def kill9_in_first_open(context: CaseContext) -> None:
    """Kill a process while it opens a store that nobody opened before; the next one can."""
    took_s = _time_to_open(context)
    for _ in range(FIRST_OPENS):
        where, session = context.create_sibling_workspace(), context.new_session()
        worker = _warm(context)
        dying = DyingProcess(context, worker, where, session)
        time.sleep(context.random.uniform(0.0, 1.1) * took_s)
        kill_process(context, worker)
        dying.finish()
        worker.kill()
        back_in_order(context, [session], where)


class DyingProcess:
    """A process that was told to open a store and to append to it."""

    def __init__(self, context: CaseContext, worker: Worker, where: Path, session: str) -> None:
        client = context.attach_client(worker)
        worker.tell("open", where, context.flavour, None)
        ids = client.draw(context.adapter.at_once(2))
        self._pending = PendingCall(context, client, Call(op="append", session=session, ids=ids))

    def finish(self) -> None:
        """Record what came of the append, which nobody acknowledged if the store never opened."""
        with contextlib.suppress(Exception):
            # Of a store that could not be opened, the append says the same.
            get_worker(self._pending.client).answer()
        self._pending.finish()


def _warm(context: CaseContext) -> Worker:
    """A process that has imported all that the store needs, and holds nothing open."""
    worker = context.start_worker()
    worker.ask("open", context.workspace, context.flavour, None)
    worker.ask("close")
    return worker


def _time_to_open(context: CaseContext) -> float:
    worker, where = _warm(context), context.create_sibling_workspace()
    began = time.monotonic()
    worker.ask("open", where, context.flavour, None)
    took_s = time.monotonic() - began
    worker.end()
    return took_s


def reopened(context: CaseContext, where: Path | None = None) -> Client:
    """The store in a fresh process; it may take as long as it says to get over what happened."""
    until = time.monotonic() + _recovery_s(context)
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


def back_in_order(context: CaseContext, sessions: list[str], where: Path | None = None) -> None:
    """A fresh process can read all there is, and go on."""
    next_one = reopened(context, where)
    for session in sessions:
        _within(context, next_one, "read", session)
        _within(context, next_one, "append", session)
        _within(context, next_one, "read", session)
    next_one.close()


def _within(
    context: CaseContext, client: Client, op: Literal["append", "read"], session: str
) -> None:
    """Make a call until it is answered."""
    until = time.monotonic() + _recovery_s(context)
    while True:
        # A new entry each time: of one that was not answered nobody knows whether it is there.
        ids = client.draw() if op == "append" else ()
        if client.attempt(Call(op=op, session=session, ids=ids)).outcome == "ok":
            return
        error = context.raised[-1]
        if isinstance(error, WorkerLost):
            raise CaseUnknown(f"{op} after a kill was not answered: {error}")
        if time.monotonic() > until:
            words = f"a process was killed, and {op} raises ever since: {format_error(error)}"
            # A lock that outlives its holder may have an end that nobody told us.
            if op == "append" and context.adapter.patience_s is None:
                raise CaseUnknown(f"{words}; the store names no bound")
            context.fail("unusable after a kill", words, session=session)
        time.sleep(0.05)


def _recovery_s(context: CaseContext) -> float:
    return context.adapter.patience_s or RECOVERY_S
