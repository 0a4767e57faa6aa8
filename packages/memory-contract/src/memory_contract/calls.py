"""Calls on a handle, and the records of their outcomes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from memory_contract.adapter import Message, NotFound, Refused
from memory_contract.entries import build_messages, parse_id, parse_ids
from memory_contract.history import NOT_FOUND, Ids, Operation, OpName, Outcome
from memory_contract.redaction import redact

# Fields that a call and its record share.
_ASKED: Final = ("session", "op", "ids", "limit", "keep", "snapshot", "target", "key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operation that a worker is to make. Snapshots go by names that the kit gives."""

    op: OpName
    session: str
    ids: Ids = ()
    limit: int | None = None
    keep: int | None = None
    snapshot: str | None = None
    target: str | None = None
    key: str | None = None
    expected: Any = None
    ttl_s: float | None = None
    # The messages to append, if they are not the ones built from `ids`.
    messages: Sequence[Message] | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """What one worker does, call by call."""

    worker: str
    calls: tuple[Call, ...]
    # Finds the id of a message that came back.
    identify: Callable[[Any], str] = parse_id
    # How long it waits before its first call; in a task, `race_tasks` waits for it.
    delay_s: float = 0.0


@dataclass(slots=True)
class Log:
    """What one worker recorded: operations, and the errors of those that raised, by place."""

    operations: list[Operation] = field(default_factory=list)
    errors: list[tuple[int, str, bool]] = field(default_factory=list)
    # The store's ids of the snapshots that it took, by the kit's names.
    names: dict[str, Any] = field(default_factory=dict)

    def add(self, operation: Operation, error: BaseException | None) -> None:
        """Add an operation, with its error and whether that says that nothing was written."""
        if error is not None:
            refused = operation.outcome == "fail"
            self.errors.append((len(self.operations), format_error(error), refused))
        self.operations.append(operation)


def format_error(error: BaseException) -> str:
    """An error in one line."""
    # A store may name its server in an error, with the password.
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {redact(text[0])}" if text else type(error).__name__


def ask(handle: Any, call: Call, names: dict[str, Any]) -> Any:
    """Make the call; returns the answer, or an awaitable of it."""
    match call.op:
        case "append":
            options = {"key": call.key, "expected": call.expected, "ttl_s": call.ttl_s}
            given = {name: value for name, value in options.items() if value is not None}
            messages = build_messages(call.ids) if call.messages is None else call.messages
            return handle.append(call.session, list(messages), **given)
        case "read" if call.limit is not None:
            return handle.read(call.session, limit=call.limit)
        case "trim":
            return handle.trim(call.session, call.keep)
        case "rollback":
            return handle.rollback(call.session, names[call.snapshot or ""])
        case "fork":
            return handle.fork(call.session, call.target)
        case _:
            return getattr(handle, call.op)(call.session)


def classify_outcome(error: BaseException) -> Outcome:
    """The outcome of a call that raised: `fail` if the store promises that nothing happened.

    Beside `Refused`, an error whose `landed` is "no" promises that.
    """
    promised = isinstance(error, Refused) or str(getattr(error, "landed", "")) == "no"
    return "fail" if promised else "info"


def is_not_found(error: BaseException) -> bool:
    """Whether the store says that it knows no such snapshot or session."""
    return isinstance(error, NotFound) or type(error).__name__.endswith("NotFoundError")


def is_missing_key(error: BaseException, snapshot: Any) -> bool:
    """Whether a snapshot is not in the dict of its store: `KeyError: 'its id'`."""
    return isinstance(error, LookupError) and str(snapshot) in map(str, error.args)


def _to_operation(
    worker: str, call: Call, began: int, outcome: Outcome, value: Ids | str | None
) -> Operation:
    """The record of a call that is over now."""
    asked = {name: getattr(call, name) for name in _ASKED}
    return Operation(
        worker=worker,
        invoke_ns=began,
        complete_ns=time.monotonic_ns(),
        outcome=outcome,
        value=value,
        **asked,
    )


def build_success(
    worker: str,
    call: Call,
    began: int,
    answer: Any,
    names: dict[str, Any],
    identify: Callable[[Any], str] = parse_id,
) -> Operation:
    """The record of a call that came back."""
    done = _to_operation(worker, call, began, "ok", None)
    if call.op == "read":
        return replace(done, value=parse_ids(answer, identify))
    if call.op == "pop" and answer is not None:
        return replace(done, value=identify(answer))
    if call.op == "snapshot":
        names[call.snapshot or ""] = answer
    return done


def build_failure(worker: str, call: Call, began: int, error: BaseException) -> Operation:
    """The record of a call that raised."""
    # A read changes nothing: whatever it raised, it is over.
    outcome = "fail" if call.op == "read" else classify_outcome(error)
    lost = call.op == "rollback" and outcome == "fail" and is_not_found(error)
    return _to_operation(worker, call, began, outcome, NOT_FOUND if lost else None)


def run(handle: Any, program: Program, names: dict[str, Any], log: Log) -> None:
    """Make the calls of a program, one after the other, blocking."""
    log.names = names
    if program.delay_s:
        time.sleep(program.delay_s)
    for call in program.calls:
        began = time.monotonic_ns()
        try:
            answer = ask(handle, call, names)
        except BaseException as error:  # noqa: BLE001 -- whatever a store raises is an outcome
            log.add(build_failure(program.worker, call, began, error), error)
        else:
            done = build_success(program.worker, call, began, answer, names, program.identify)
            log.add(done, None)


def _is_cancelled() -> bool:
    """Whether somebody cancelled this very task; a store may raise the same error by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def run_async(handle: Any, program: Program, names: dict[str, Any], log: Log) -> None:
    """Make the calls of a program, one after the other, awaiting; `race_tasks` has waited."""
    log.names = names
    for call in program.calls:
        began = time.monotonic_ns()
        try:
            answer = ask(handle, call, names)
            if inspect.isawaitable(answer):
                answer = await answer
        except BaseException as error:
            log.add(build_failure(program.worker, call, began, error), error)
            if _is_cancelled() or isinstance(error, GeneratorExit):
                raise
        else:
            done = build_success(program.worker, call, began, answer, names, program.identify)
            log.add(done, None)
