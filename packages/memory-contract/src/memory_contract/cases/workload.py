"""What cases do with a store: all operations that it claims, large batches, as time allows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sized
from typing import Final, Literal, TypeVar

from memory_contract.calls import Call, format_error
from memory_contract.case_context import CaseContext, Client
from memory_contract.entries import EntryIds
from memory_contract.history import Ids

Verb = Literal[
    "append", "batch", "pop", "trim", "clear", "undo", "snapshot", "rollback", "fork", "read"
]
# What each needs of a store beyond appending and reading.
NEEDS: Final[dict[Verb, frozenset[str]]] = {
    "append": frozenset(),
    "batch": frozenset(),
    "pop": frozenset({"pop"}),
    "trim": frozenset({"trim"}),
    "clear": frozenset({"clear"}),
    "undo": frozenset({"clear", "undo"}),
    "snapshot": frozenset({"snapshot"}),
    "rollback": frozenset({"snapshot", "rollback"}),
    "fork": frozenset({"fork"}),
    "read": frozenset(),
}
# The size of a batch, so that it can be torn.
BATCH: Final = 3


def list_verbs(context: CaseContext) -> list[Verb]:
    """The operations that the store claims, including read."""
    return [verb for verb, needs in NEEDS.items() if context.adapter.claims(needs)]


def list_changes(context: CaseContext) -> list[Verb]:
    """The operations that change something."""
    return [verb for verb in list_verbs(context) if verb != "read"]


def build_calls(context: CaseContext, verb: Verb) -> tuple[Call, ...]:
    """Calls on a new session; the last one is the operation, the others lead to it."""
    session = context.new_session()
    call: Call
    before = [build_append(context, session), build_append(context, session, BATCH)]
    match verb:
        case "append":
            call = build_append(context, session)
        case "batch":
            call = build_append(context, session, BATCH)
        case "trim":
            call = Call(op="trim", session=session, keep=2)
        case "undo":
            before.append(Call(op="clear", session=session))
            call = Call(op="undo", session=session)
        case "snapshot":
            call = Call(op="snapshot", session=session, snapshot=context.new_name("s"))
        case "rollback":
            taken = context.new_name("s")
            before.append(Call(op="snapshot", session=session, snapshot=taken))
            before.append(build_append(context, session))
            call = Call(op="rollback", session=session, snapshot=taken)
        case "fork":
            call = Call(op="fork", session=session, target=context.new_session())
        case "pop" | "clear" | "read":
            call = Call(op=verb, session=session)
    return (*before, call)


def build_append(context: CaseContext, session: str, count: int = 1) -> Call:
    """An append of new entries; of one turn, where a store takes a turn at a time."""
    pairs = context.adapter.pairs
    ids = EntryIds(context.new_name("v")).draw(context.adapter.at_once(count), pairs=pairs)
    return Call(op="append", session=session, ids=ids)


def append_many(context: CaseContext, store: Client, session: str, count: int) -> Ids:
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
            if size == 1:
                raise
            _expect_too_large(context, store, session, size, error)
            size, refusal = (size + 1) // 2, format_error(error)
        else:
            left -= size
    told = f"a batch of {count} is refused ({refusal}); smaller ones are taken"
    if refusal and told not in context.notes:
        context.note(told)
    return ids


def _expect_too_large(
    context: CaseContext, store: Client, session: str, size: int, error: Exception
) -> None:
    """Expect that nothing was stored, and that the same size is refused again."""
    _expect_none(context, store, session, context.history[-1].ids, error)
    try:
        store.append(session, size)
    except Exception as again:  # noqa: BLE001 -- so it is the size, and no whim
        _expect_none(context, store, session, context.history[-1].ids, again)
    else:
        raise error


def _expect_none(
    context: CaseContext, store: Client, session: str, ids: Ids, error: Exception
) -> None:
    seen = store.read(session)
    kept = [id_ for id_ in ids if id_ in seen]
    context.expect(
        not kept,
        "refused and changed",
        f"a batch of {len(ids)} was refused ({format_error(error)}), and yet the session shows "
        f"{len(kept)} of its entries",
        session=session,
    )


T = TypeVar("T")

# For one part of a case.
FEW_S: Final = 4.0


def pace(
    context: CaseContext,
    items: Iterable[T],
    what: str,
    *,
    count: int | None = None,
    within_s: float = FEW_S,
    least: int = 1,
) -> Iterator[T]:
    """Yield items until the time is over; a note then says how many were left out.

    Where they are made as they are asked for, `count` says how many there would be.
    """
    began = time.monotonic()
    for done, item in enumerate(items):
        if done >= least and time.monotonic() - began > within_s:
            total = len(items) if isinstance(items, Sized) else count
            context.note(f"{what}: {done} of {total} only, since the store is slow")
            return
        yield item
