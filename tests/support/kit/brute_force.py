"""A model checker that is too simple to be wrong: try every order of at most six operations.

It shares no code with the checker, whose verdicts it is compared with. A session is a list. An
operation takes effect at one moment between its two times; one with an unknown outcome at any
moment after it was invoked, or never; attempts with one key take effect once. A history is legal if
there is an order in which every answer is the one that the list gives.
"""

from dataclasses import dataclass
from itertools import combinations, permutations

from memory_contract import NOT_FOUND

NEVER = float("inf")


@dataclass
class Effect:
    """One effect: the operation that says what it answered, and the moments at which it can lie."""

    op: object
    begin: float
    end: float
    sure: bool


def effects(history):
    """Everything that took effect, or may have; a failure only if it says what it did not find."""
    found, keyed = [], {}
    for op in history:
        if op.outcome == "fail" and op.value != NOT_FOUND:
            continue
        if op.op == "read" and op.outcome == "info":
            continue
        sure = op.outcome != "info"
        effect = Effect(op, op.invoke_ns, op.complete_ns if sure else NEVER, sure)
        first = keyed.setdefault((op.op, op.key), effect) if op.key is not None else effect
        if first is effect:
            found.append(effect)
            continue
        first.begin = min(first.begin, effect.begin)
        if effect.end < first.end:
            first.op, first.end, first.sure = effect.op, effect.end, True
    return found


def is_legal(history):
    """Whether some order of the operations explains every answer."""
    all_ = effects(history)
    sure = [effect for effect in all_ if effect.sure]
    unsure = [effect for effect in all_ if not effect.sure]
    return any(
        explains(order)
        for count in range(len(unsure) + 1)
        for some in combinations(unsure, count)
        for order in permutations([*sure, *some])
        if respects_time(order)
    )


def respects_time(order):
    return not any(
        later.end < earlier.begin
        for place, earlier in enumerate(order)
        for later in order[place + 1 :]
    )


def explains(order):
    """Whether a list answers as the operations say, in this order; trims leave some choice."""
    states = [((), ())]
    for effect in order:
        states = [after for state in states for after in perform(effect, *state, order)]
        if not states:
            return False
    return True


def perform(effect, shown, snapshots, order):  # noqa: PLR0911 -- one answer for each kind
    """All pairs of what is shown and frozen after the operation; none if its answer is wrong."""
    op, frozen = effect.op, dict(snapshots)
    match op.op:
        case "append":
            return [(shown + op.ids, snapshots)]
        case "read":
            source = shown if op.snapshot is None else frozen.get(op.snapshot)
            if op.outcome == "fail":
                return [(shown, snapshots)] if source is None else []
            if source is not None and op.limit is not None:
                source = source[len(source) - min(op.limit, len(source)) :]
            return [(shown, snapshots)] if source == op.value else []
        case "pop":
            took = shown[-1] if shown else None
            return [(shown[:-1], snapshots)] if not effect.sure or took == op.value else []
        case "clear":
            return [((), snapshots)]
        case "trim":
            return [
                (shown[-keep:] if keep else (), snapshots) for keep in kept(effect, shown, order)
            ]
        case "snapshot":
            right = not isinstance(op.value, tuple) or op.value == shown
            return [(shown, tuple({**frozen, op.snapshot: shown}.items()))] if right else []
        case "rollback":
            return rolled_back(effect, shown, snapshots)


def rolled_back(effect, shown, snapshots):
    op, found = effect.op, dict(snapshots).get(effect.op.snapshot)
    if op.outcome == "fail":
        return [(shown, snapshots)] if found is None else []
    if found is None:
        # A call with an unknown outcome may have been refused.
        return [] if effect.sure else [(shown, snapshots)]
    right = not isinstance(op.value, tuple) or op.value == found
    return [(found, snapshots)] if right else []


def kept(effect, shown, order):
    """How many entries a trim may leave: those that came while it ran may stay beside the rest."""
    meanwhile = {
        id_
        for other in order
        if other.op.op == "append" and other.begin <= effect.end and other.end >= effect.begin
        for id_ in other.op.ids
    }
    more = 0
    while more < len(shown) and shown[-1 - more] in meanwhile:
        more += 1
    return [effect.op.keep + extra for extra in range(more + 1)]
