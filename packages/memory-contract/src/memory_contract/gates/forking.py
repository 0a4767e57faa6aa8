"""A process that forks while it has the store open, as servers of many workers do."""

from __future__ import annotations

import time
from typing import Final

from memory_contract.calling import Call, Log, Program, said
from memory_contract.cases import case
from memory_contract.client import Client
from memory_contract.drivers.processes import WorkerLost
from memory_contract.faults.striking import worker_of
from memory_contract.history import Operation
from memory_contract.room import Room, Unsure

FORKS: Final = 3
APPENDS: Final = 6
# A parent that lost its connection may notice once or twice before it has another.
TRIES: Final = 3


@case(
    "crash",
    catches="one file, socket or lock in the hands of two processes after a fork",
    reach="machine",
)
def fork_safety(room: Room) -> None:
    """Fork with an open store; the child writes or refuses, and the parent takes no harm."""
    parent, session = room.elsewhere(), room.session()
    parent.append(session)
    for number in range(FORKS):
        ours = Program(parent.name, _calls(parent, session))
        childs = Program(f"child{number}", _calls(parent, session))
        began = time.monotonic_ns()
        try:
            log, childs_log = worker_of(parent).ask("fork", ours, childs, room.names)
        except WorkerLost as lost:
            raise Unsure(f"the process that forked is not heard of any more: {lost}") from lost
        room.struck("fork", began, time.monotonic_ns())
        room.keep(log)
        room.keep(childs_log or _unknown(childs, began))
        _goes_on(room, parent, session)
    room.read_afresh([session])


def _calls(client: Client, session: str) -> tuple[Call, ...]:
    appends = [Call(op="append", session=session, ids=client.draw()) for _ in range(APPENDS)]
    read = Call(op="read", session=session)
    return tuple(call for append in appends for call in (append, read))


def _unknown(program: Program, began_ns: int) -> Log:
    """What is known of a child that never told: that it may have done all of it."""
    log = Log()
    for call in program.calls:
        if call.op == "append":
            log.operations.append(
                Operation(
                    worker=f"{program.worker}-{call.ids[0]}",
                    session=call.session,
                    op=call.op,
                    invoke_ns=began_ns,
                    complete_ns=None,
                    outcome="info",
                    ids=call.ids,
                )
            )
    return log


def _goes_on(room: Room, parent: Client, session: str) -> None:
    """The parent can write and read, whatever the child did."""
    for op in ("append", "read"):
        for _ in range(TRIES):
            ids = parent.draw() if op == "append" else ()
            if parent.attempt(Call(op=op, session=session, ids=ids)).outcome == "ok":
                break
        else:
            words = f"a process forked, and its own {op} raises since: {said(room.raised[-1])}"
            room.fail("harmed by a fork", words, session=session)
