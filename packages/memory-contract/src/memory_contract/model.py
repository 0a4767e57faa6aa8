"""The behaviour of a right store as pure functions on tuples of ids.

Tests compare this with `indelible.view`, which does the same with positions. Here states hold ids,
since a history shows ids, and a search must compare and remember states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from memory_contract.history import Ids, Operation


@dataclass(frozen=True, slots=True)
class ModelState:
    """The ids that a session shows, its snapshots by name, and what each undo would show."""

    shown: Ids = ()
    snapshots: tuple[tuple[str, Ids], ...] = ()
    journal: tuple[Ids, ...] = ()


EMPTY: Final = ModelState()


def get_snapshot(state: ModelState, name: str | None) -> Ids | None:
    """The ids of a snapshot; None if there is none of that name."""
    return dict(state.snapshots).get(name or "")


def apply_operation(  # noqa: PLR0911 -- one return for each operation is the table that it is
    state: ModelState, op: Operation, *, journal: bool = False
) -> ModelState | None:
    """The state after the operation took effect; None if a right store would have refused it.

    With `journal`, changes are kept for undo. Without, undo is refused: a search that does not need
    the journal finds more states equal.
    """
    shown = state.shown
    match op.op:
        case "append":
            # Later appends stay visible after an undo: they belong to every line of the journal.
            lines = tuple(keep_newest(line + op.ids, op.keep) for line in state.journal)
            return replace(state, shown=keep_newest(shown + op.ids, op.keep), journal=lines)
        case "pop":
            return _change(state, shown[:-1], journal=journal) if shown else state
        case "trim":
            return _change(state, take_last(shown, op.keep or 0), journal=journal)
        case "clear":
            return _change(state, (), journal=journal)
        case "expire":
            # Whether snapshots outlive it is the store's affair; what cannot be undone is not kept.
            return ModelState((), state.snapshots)
        case "snapshot":
            kept = {**dict(state.snapshots), op.snapshot or "": shown}
            return replace(state, snapshots=tuple(sorted(kept.items())))
        case "rollback":
            frozen = get_snapshot(state, op.snapshot)
            return None if frozen is None else _change(state, frozen, journal=journal)
        case "undo":
            if not state.journal:
                return None
            return replace(state, shown=state.journal[-1], journal=state.journal[:-1])
        case _:
            return state


def _change(state: ModelState, shown: Ids, *, journal: bool) -> ModelState:
    lines = (*state.journal, state.shown) if journal else ()
    return ModelState(shown, state.snapshots, lines)


def take_last(ids: Ids, n: int) -> Ids:
    """The last `n` ids."""
    return ids[-n:] if n else ()


def keep_newest(ids: Ids, keep: int | None) -> Ids:
    """The last `keep` ids, or all of them."""
    return ids if keep is None else take_last(ids, keep)


def is_consistent(state: ModelState, op: Operation) -> bool:
    """Whether an operation that was acknowledged saw what this state, just before it, shows."""
    match op.op:
        case "read" if op.snapshot is not None:
            return get_snapshot(state, op.snapshot) == op.value
        case "read":
            return keep_newest(state.shown, op.limit) == op.value
        case "pop":
            return op.value == (state.shown[-1] if state.shown else None)
        case "snapshot" if isinstance(op.value, tuple):
            return op.value == state.shown
        case "rollback":
            frozen = get_snapshot(state, op.snapshot)
            return frozen is not None and (not isinstance(op.value, tuple) or op.value == frozen)
        case _:
            return True
