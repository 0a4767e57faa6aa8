"""What cases do with a store: all operations that it claims, large batches, as time allows."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Final, Literal, TypeVar, get_args

from memory_contract.adapter import CAPABILITIES
from memory_contract.calls import Call, format_error
from memory_contract.case_context import CaseContext, Client
from memory_contract.history import Ids, Operation, OpName

Verb = Literal[
    "append", "batch", "pop", "trim", "clear", "undo", "snapshot", "rollback", "fork", "read"
]
VERBS: Final[tuple[Verb, ...]] = get_args(Verb)
# What must come before some operations.
LEADS: Final[dict[str, tuple[OpName, ...]]] = {
    "undo": ("clear",),
    "rollback": ("snapshot", "append"),
}
# The size of a batch, so that it can be torn.
BATCH: Final = 3
# Between two attempts.
PAUSE_S: Final = 0.02


def list_verbs(context: CaseContext) -> list[Verb]:
    """The operations that the store claims, including read."""
    return [verb for verb in VERBS if context.claims(*_list_needs(verb))]


def _list_needs(verb: Verb) -> list[str]:
    """The capabilities that an operation needs, with what leads to it."""
    return [each for each in (verb, *LEADS.get(verb, ())) if each in CAPABILITIES]


def list_changes(context: CaseContext) -> list[Verb]:
    """The operations that change something."""
    return [verb for verb in list_verbs(context) if verb != "read"]


def build_calls(context: CaseContext, verb: Verb) -> tuple[Call, ...]:
    """Calls on a new session; the last one is the operation, the others lead to it."""
    session, taken = context.new_session(), context.new_name("s")
    calls = [build_append(context, session), build_append(context, session, BATCH)]
    calls += [build_call(context, op, session, snapshot=taken) for op in LEADS.get(verb, ())]
    if verb == "batch":
        return (*calls, build_append(context, session, BATCH))
    return (*calls, build_call(context, verb, session, snapshot=taken))


def build_call(
    context: CaseContext,
    op: OpName,
    session: str,
    *,
    count: int = 1,
    keep: int = 2,
    snapshot: str | None = None,
) -> Call:
    """A call of any operation: an append of `count` entries, a fork into a new session."""
    if op == "append":
        return build_append(context, session, count)
    return Call(
        op=op,
        session=session,
        keep=keep if op == "trim" else None,
        snapshot=snapshot if op in ("snapshot", "rollback") else None,
        target=context.new_session() if op == "fork" else None,
    )


def build_append(context: CaseContext, session: str, count: int = 1, *, worker: str = "v") -> Call:
    """An append of new entries; of one turn, where a store takes a turn at a time."""
    ids = context.draw_ids(worker, context.adapter.batch_size(count))
    return Call(op="append", session=session, ids=ids)


def append_many(store: Client, session: str, count: int) -> Ids:
    """Append a batch; if it is too large for the store, in smaller ones.

    A store may say no to a large batch, as long as it says so each time and keeps nothing of it.
    """
    ids: Ids = ()
    size, left, refusal = count, count, ""
    while left:
        size = min(size, left)
        try:
            ids += store.append(session, size)
        except Exception as error:
            if size == 1 or not _is_refused_again(store, session, size, error):
                raise
            size, refusal = (size + 1) // 2, format_error(error)
        else:
            left -= size
    told = f"a batch of {count} is refused ({refusal}); smaller ones are taken"
    if refusal and told not in store.context.notes:
        store.context.note(told)
    return ids


def _is_refused_again(store: Client, session: str, size: int, error: Exception) -> bool:
    """Whether the same size is refused again; nothing of either batch may be there."""
    for _ in range(2):
        refused, seen = store.context.history[-1].ids, store.read(session)
        kept = [id_ for id_ in refused if id_ in seen]
        proof = f"a batch of {size} was refused ({format_error(error)}), and yet the session"
        proof += f" shows {len(kept)} of its entries"
        store.context.expect(not kept, "refused and changed", proof, session=session)
        with contextlib.suppress(Exception):
            store.append(session, size)
            return False
    return True


def repeat_until_ok(client: Client, build_call: Callable[[], Call], within_s: float) -> Operation:
    """Make calls, built anew each time, until one succeeds or the time is over; the last one."""
    began = time.monotonic()
    while (last := client.attempt(build_call())).outcome != "ok":
        if time.monotonic() - began > within_s:
            break
        time.sleep(PAUSE_S)
    return last


T = TypeVar("T")

# For one part of a case.
FEW_S: Final = 4.0


def pace(
    context: CaseContext,
    items: Iterable[T],
    what: str,
    *,
    within_s: float = FEW_S,
    least: int = 1,
) -> Iterator[T]:
    """Yield items until the time is over; a note then says how many were left out."""
    began = time.monotonic()
    for done, item in enumerate(items):
        if done >= least and time.monotonic() - began > within_s:
            total = f" of {len(items)}" if isinstance(items, Sized) else ""
            context.note(f"{what}: {done}{total} only, since the store is slow")
            return
        yield item
