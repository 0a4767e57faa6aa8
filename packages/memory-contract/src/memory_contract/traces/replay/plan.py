"""The plan of a replay: the operations of a trace as calls on any store.

Sessions, workers, order and overlaps are the trace's. Where the trace has only hashes, texts are
made up: as long as the recorded ones, and equal where those were equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Final

from memory_contract.adapter import Adapter, Flavour, Message
from memory_contract.calls import Call, Program
from memory_contract.history import OpName
from memory_contract.runner import StoreUnderTest
from memory_contract.traces.diagnosis.history_builder import merge_announced
from memory_contract.traces.diagnosis.trace_reader import TraceMetadata
from memory_contract.traces.format import FIELD, TraceCall, TraceOperation, WorkerKind, strip_fields
from memory_contract.traces.recorder.hasher import Hasher, Policy
from memory_contract.traces.recorder.methods import read_fields

# The name of a worker in a recorded trace: process, store, and thread or task.
_WORKER: Final = re.compile(r"(?P<group>(?P<pid>\d+)\.\d+)-(?P<kind>[ta])\d+(?:\*.*)?")
_WORDS: Final = ("order", "refund", "train", "name", "coffee", "delay", "garden", "parcel", "night")
# Operations that a store may lack; all have append and read.
_NEEDED: Final = frozenset({"pop", "trim", "clear", "snapshot", "rollback", "fork", "undo"})
# Session ids that a store of files could take for a way out of its folder: absolute paths, home
# folders, drives, and parent folders. A trace may come from anybody.
_LEADS_OUT: Final = re.compile(r"[/\\~]|[A-Za-z]:|(?:.*[/\\])?\.\.(?:[/\\]|\Z)", re.DOTALL)
# The time to live that a replay gives, where the trace's was longer: nobody waits for an hour.
TTL_S: Final = 1.0
# Of a made-up text, so that no two are alike.
TEXT_CHARS_MIN: Final = 12
# Workers of a replay that are in no trace.
SETUP: Final = "before"
FINAL: Final = "final"
# Nothing is secret: the texts are made up, or stand in the trace as they are.
_HASHER: Final = Hasher(Policy(), b"replay")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStep:
    """One call to make, and what the trace says about it."""

    number: int
    # Workers of one group share a handle: a process and a store in it.
    group: str
    program: Program
    recorded: TraceOperation
    # The line of the replay, without the result.
    line: TraceOperation

    @property
    def lane(self) -> str:
        """The worker that makes the call."""
        return self.program.worker

    @property
    def call(self) -> Call:
        """The only call of the program."""
        return self.program.calls[0]


@dataclass(slots=True)
class ReplayPlan:
    """All steps in the order of invocation, and what cannot be replayed."""

    steps: list[ReplayStep] = field(default_factory=list)
    # Appends that come first: of what sessions held before the trace began.
    setup: list[ReplayStep] = field(default_factory=list)
    # A read of every session that was written to.
    final: list[ReplayStep] = field(default_factory=list)
    # Capabilities that the store lacks, and words about what is left out.
    lacking: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    # The factor by which time passes faster than in the trace, where sessions expire.
    speed: float = 1.0
    expiring: set[str] = field(default_factory=set)


def build_plan(
    lines: Iterable[TraceCall],
    metadata: TraceMetadata,
    adapter: Adapter,
    *,
    seed: int,
) -> ReplayPlan:
    """Plan the calls that repeat a trace on this store."""
    operations, _ = merge_announced(lines)
    plan = ReplayPlan()
    operations = _rename_unsafe_sessions(operations, plan)
    _set_speed(plan, operations, metadata, adapter)
    build = partial(_build_step, adapter=adapter, speed=plan.speed, seed=seed)
    skipped = 0
    for op in operations:
        names = [op.session]
        if op.every:
            names = list(dict.fromkeys(each.session for each in operations if not each.every))
        if op.op == "expire":
            continue
        if op.op in _NEEDED and op.op not in adapter.capabilities:
            plan.lacking.add(op.op)
            continue
        if op.op == "trim" and op.unsure:
            skipped += 1
            continue
        plan.steps += [
            build(replace(op, session=name), number=number)
            for number, name in enumerate(names, start=len(plan.steps))
        ]
    if skipped:
        plan.notes.append(f"{skipped} trims whose extent is not in the trace were left out")
    plan.setup = [
        build(_invent(SETUP, session, "append", f"older {number} {session}"))
        for session, count in _count_older(operations, metadata).items()
        for number in range(count)
    ]
    written = [step.call.session for step in plan.steps if step.call.op == "append"]
    written += [step.call.target or "" for step in plan.steps if step.call.op == "fork"]
    plan.final = [build(_invent(FINAL, session, "read")) for session in dict.fromkeys(written)]
    return plan


def _invent(worker: str, session: str, op: OpName, *ids: str) -> TraceOperation:
    """Build a call that is not in the trace."""
    return TraceOperation(
        worker=worker, session=session, op=op, ids=ids, invoke_ns=0, complete_ns=0, outcome="ok"
    )


def _rename_unsafe_sessions(
    operations: list[TraceOperation], plan: ReplayPlan
) -> list[TraceOperation]:
    """Replace session ids that could lead out of a store's folder."""
    named = dict.fromkeys(
        each for op in operations for each in (op.session, op.target) if each is not None
    )
    renamed: dict[str, str] = {}
    for session in named:
        if _LEADS_OUT.match(session):
            number = len(renamed) + 1
            while (name := f"session-{number}") in named or name in renamed.values():
                number += len(named)
            renamed[session] = name
    if not renamed:
        return operations
    plan.notes.append(
        f"{len(renamed)} session ids that look like paths out of a folder were replaced"
    )
    return [
        replace(
            op,
            session=renamed.get(op.session, op.session),
            target=None if op.target is None else renamed.get(op.target, op.target),
        )
        for op in operations
    ]


def identify(message: Any) -> str:
    """Return the id of a message of a replay: its hash, as in any trace."""
    return _HASHER.hash_message(read_fields(message)).token


def _build_step(
    op: TraceOperation, *, adapter: Adapter, speed: float, seed: int, number: int = -1
) -> ReplayStep:
    """Build the call that repeats an operation, as far as the store offers it."""
    appends, claimed = op.op == "append", adapter.capabilities
    messages = _build_messages(op, adapter, seed) if appends else []
    hashed = [_HASHER.hash_message(message) for message in messages]
    asked: dict[str, Any] = {
        "op": op.op,
        "session": op.session,
        "ids": tuple(each.token for each in hashed),
        "limit": op.limit if op.op == "read" and "limit" in claimed else None,
        "keep": op.keep or 0 if op.op == "trim" else None,
        "snapshot": op.snapshot if op.op in ("snapshot", "rollback") else None,
        "target": op.target,
        "key": op.key if appends and "keys" in claimed else None,
        "ttl_s": op.ttl_s / speed if op.ttl_s is not None and "ttl" in claimed else None,
    }
    line = TraceOperation(
        worker=op.worker,
        invoke_ns=0,
        complete_ns=None,
        outcome="info",
        verb=op.op,
        sizes=tuple(each.size for each in hashed),
        roles=tuple(each.role for each in hashed),
        structured=any(each.structured for each in hashed),
        contents=op.contents,
        **asked,
    )
    found = _WORKER.fullmatch(op.worker)
    return ReplayStep(
        number=number,
        group=found["group"] if found else op.worker,
        program=Program(op.worker, (Call(**asked, messages=messages),), identify),
        recorded=op,
        line=line,
    )


def _list_processes(steps: Sequence[ReplayStep]) -> set[str]:
    """Return the processes that occur in a trace."""
    found = [_WORKER.fullmatch(step.lane) for step in steps]
    return {each["pid"] for each in found if each is not None}


def _has_tasks(steps: Sequence[ReplayStep]) -> bool:
    """Return whether tasks of an event loop made some of the calls."""
    found = [_WORKER.fullmatch(step.lane) for step in steps]
    return any(each is not None and each["kind"] == "a" for each in found)


def _count_older(operations: Sequence[TraceOperation], metadata: TraceMetadata) -> dict[str, int]:
    """Count the entries of each session that are older than the trace."""
    if metadata.own_ids or metadata.fresh:
        return {}
    appended = {strip_fields(token) for op in operations if op.op == "append" for token in op.ids}
    found: dict[str, int] = {}
    for op in operations:
        if op.op == "read" and isinstance(op.value, tuple) and op.session not in found:
            found[op.session] = sum(strip_fields(token) not in appended for token in op.value)
    return {session: count for session, count in found.items() if count}


def _set_speed(
    plan: ReplayPlan,
    operations: Sequence[TraceOperation],
    metadata: TraceMetadata,
    adapter: Adapter,
) -> None:
    named = [op.ttl_s for op in operations if op.op == "append" and op.ttl_s is not None]
    if not named or "ttl" not in adapter.capabilities or metadata.own_ids:
        return
    plan.speed = max(1.0, min(named) / max(TTL_S, adapter.ttl_s_min))
    plan.expiring = {op.session for op in operations if op.ttl_s is not None}


def _build_messages(op: TraceOperation, adapter: Adapter, seed: int) -> list[Message]:
    """Make up the messages of an append; for a store of turns, each becomes a turn."""
    made = [_build_message(op, place, adapter, seed) for place in range(len(op.ids))]
    turns = [each["role"] for each in made] == ["user", "assistant"] * (len(made) // 2)
    if turns or not adapter.pairs:
        return made
    return [
        {"role": role, "content": f"{prefix}{message['content']}"}
        for message in made
        for role, prefix in (("user", ""), ("assistant", "to "))
    ]


def _build_message(op: TraceOperation, place: int, adapter: Adapter, seed: int) -> Message:
    kept = op.contents[place] if place < len(op.contents) else None
    if isinstance(kept, dict) and "content" in kept:
        return dict(kept)
    role = op.roles[place] if place < len(op.roles) else ("user", "assistant")[place % 2]
    size = op.sizes[place] if place < len(op.sizes) else 0
    token = op.ids[place]
    message = {
        "role": role if role in ("user", "assistant", "system") else "user",
        "content": _build_text(f"{seed} {strip_fields(token)}", size),
    }
    if FIELD in token and "fields" in adapter.capabilities:
        message["name"] = f"name-{token.partition(FIELD)[2][:8]}"
    return message


def _build_text(seed: str, size: int) -> str:
    """Make up a text of the recorded length, long enough to be unique."""
    random = Random(seed)  # noqa: S311 -- made-up words
    words, length = [f"{random.getrandbits(48):012x}"], TEXT_CHARS_MIN
    while length < size:
        words.append(random.choice(_WORDS))
        length += 1 + len(words[-1])
    return " ".join(words)[: max(TEXT_CHARS_MIN, size)]


# How workers run


@dataclass(frozen=True, slots=True)
class WorkerMode:
    """The kind of workers of a replay, and how they call the store."""

    workers: WorkerKind
    flavour: Flavour


def choose_worker_mode(
    subject: StoreUnderTest, steps: list[ReplayStep], asked: WorkerKind | None
) -> WorkerMode:
    """Choose how workers run: as in the trace, or as close to it as the store allows."""
    adapter, flavours = subject.adapter, subject.flavours
    wanted = asked
    if wanted is None and len(_list_processes(steps)) > 1:
        wanted = "processes"
    elif wanted is None and _has_tasks(steps):
        wanted = "tasks"
    elif wanted is None and not _list_processes(steps) and subject.worker_pool is not None:
        # A history that does not say how it ran.
        wanted = "processes"
    if wanted == "processes" and subject.worker_pool is not None:
        awaited = _has_tasks(steps) or "blocking" not in flavours
        return WorkerMode("processes", "async" if awaited and "async" in flavours else "blocking")
    if "async" in flavours and (wanted == "tasks" or "blocking" not in flavours):
        return WorkerMode("tasks", "async")
    if adapter.reach == "handle" and not adapter.thread_safe and "async" in flavours:
        return WorkerMode("tasks", "async")
    return WorkerMode("threads", "blocking")
