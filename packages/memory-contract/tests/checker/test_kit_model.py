"""The checker's model says in ids what `indelible.view` says in positions."""

from hypothesis import given
from hypothesis import strategies as st

from indelible import view
from memory_contract import Operation
from memory_contract.model import EMPTY, apply_operation


def operation(kind, **more):
    return Operation(
        worker="w", session="s", op=kind, invoke_ns=0, complete_ns=1, outcome="ok", **more
    )


class Positions:
    """The same operations on a view of a log."""

    def __init__(self):
        self.log, self.view = [], view.View()
        self.snapshots, self.journal = {}, []

    def perform(self, op):
        """Move the view as the operation says; False if there is nothing to return to."""
        end, shown = len(self.log), view.freeze(self.view, len(self.log))
        if op.op == "append":
            self.log += op.ids
            return True
        if op.op == "snapshot":
            self.snapshots[op.snapshot] = shown
            return True
        if op.op == "undo":
            if self.journal:
                self.view = self.journal.pop()
                return True
            return False
        moved = self.moved(op, shown, end)
        if moved is None:
            return False
        if op.op != "pop" or shown:
            self.journal.append(self.view)
        self.view = moved
        return True

    def moved(self, op, shown, end):
        if op.op == "clear":
            return view.build_empty_view(end)
        if op.op == "pop":
            return view.remove(self.view, end, view.take_last(shown, 1))
        if op.op == "trim":
            dropped = view.subtract(shown, view.take_last(shown, op.keep))
            return view.remove(self.view, end, dropped)
        frozen = self.snapshots.get(op.snapshot)
        return None if frozen is None else view.build_view(frozen, end)

    def shown(self):
        frozen = view.freeze(self.view, len(self.log))
        return tuple(self.log[position] for position in view.iter_positions(frozen))


OPERATIONS = st.one_of(
    st.sampled_from(["append", "pop", "clear", "undo"]).map(lambda kind: (kind, {})),
    st.integers(0, 4).map(lambda keep: ("trim", {"keep": keep})),
    st.tuples(st.sampled_from(["snapshot", "rollback"]), st.sampled_from("ab")).map(
        lambda drawn: (drawn[0], {"snapshot": drawn[1]})
    ),
)


@given(st.lists(OPERATIONS, max_size=30))
def test_ids_and_positions_tell_the_same_story(drawn):
    state, positions = EMPTY, Positions()
    for number, (kind, more) in enumerate(drawn):
        ids = (f"e{number}", f"f{number}") if kind == "append" else ()
        op = operation(kind, ids=ids, **more)
        after = apply_operation(state, op, journal=True)
        assert positions.perform(op) == (after is not None)
        state = after or state
        assert state.shown == positions.shown()
