"""A process that forks while it has the store open, as servers of many workers do."""

from __future__ import annotations

import time
from typing import Final

from memory_contract.calls import Call, Log, Program, format_error
from memory_contract.case_context import CaseContext, CaseUnknown
from memory_contract.cases.case import case
from memory_contract.client import Client
from memory_contract.faults.process_faults import get_worker
from memory_contract.history import Operation
from memory_contract.workers.pool import WorkerLost

FORKS: Final = 3
APPENDS: Final = 6
# A parent that lost its connection may notice once or twice before it has another.
TRIES: Final = 3


@case(
    "crash",
    catches="one file, socket or lock in the hands of two processes after a fork",
    reach="machine",
)
def fork_safety(context: CaseContext) -> None:
    """Fork with an open store; the child writes or refuses, and the parent takes no harm."""
    parent, session = context.open_in_process(), context.new_session()
    parent.append(session)
    for number in range(FORKS):
        ours = Program(parent.name, _calls(parent, session))
        childs = Program(f"child{number}", _calls(parent, session))
        began = time.monotonic_ns()
        try:
            log, childs_log = get_worker(parent).ask("fork", ours, childs, context.names)
        except WorkerLost as lost:
            raise CaseUnknown(f"the process that forked is not heard of any more: {lost}") from lost
        context.record_fault("fork", began, time.monotonic_ns())
        context.add_log(log)
        context.add_log(childs_log or _unknown(childs, began))
        _goes_on(context, parent, session)
    context.read_with_fresh_client([session])


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


def _goes_on(context: CaseContext, parent: Client, session: str) -> None:
    """The parent can write and read, whatever the child did."""
    for op in ("append", "read"):
        for _ in range(TRIES):
            ids = parent.draw() if op == "append" else ()
            if parent.attempt(Call(op=op, session=session, ids=ids)).outcome == "ok":
                break
        else:
            raised = format_error(context.raised[-1])
            words = f"a process forked, and its own {op} raises since: {raised}"
            context.fail("harmed by a fork", words, session=session)
