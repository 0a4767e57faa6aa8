"""Every operation that a store claims, as calls: what a bad day has to interrupt."""

from __future__ import annotations

from typing import Final, Literal

from memory_contract.calls import Call
from memory_contract.case_context import CaseContext

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
# In one append: more than one, so that it can be torn.
BATCH: Final = 3


def claimed(context: CaseContext) -> list[Verb]:
    """What this store offers, reading among it."""
    return [verb for verb, needs in NEEDS.items() if context.adapter.claims(needs)]


def changing(context: CaseContext) -> list[Verb]:
    """What of it changes something."""
    return [verb for verb in claimed(context) if verb != "read"]


def calls_of(context: CaseContext, verb: Verb) -> tuple[Call, ...]:
    """Calls on a session of its own; the last one is what it is about, the others lead to it."""
    session = context.new_session()
    call: Call
    before = [append(context, session), append(context, session, BATCH)]
    match verb:
        case "append":
            call = append(context, session)
        case "batch":
            call = append(context, session, BATCH)
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
            before.append(append(context, session))
            call = Call(op="rollback", session=session, snapshot=taken)
        case "fork":
            call = Call(op="fork", session=session, target=context.new_session())
        case "pop" | "clear" | "read":
            call = Call(op=verb, session=session)
    return (*before, call)


def append(context: CaseContext, session: str, count: int = 1) -> Call:
    """An append of new entries; of one turn, where a store takes a turn at a time."""
    pairs = context.adapter.pairs
    ids = context.new_ids(context.new_name("v")).draw(context.adapter.at_once(count), pairs=pairs)
    return Call(op="append", session=session, ids=ids)
