"""The view's arithmetic against the plainest model there is: a list of the positions that show."""

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indelible import FormatError, view
from indelible.view import View


def laid_out(steps):
    """Extents from gaps and lengths."""
    at = 0
    extents = []
    for gap, length in steps:
        extents.append((at + gap, at + gap + length))
        at += gap + length
    return tuple(extents)


POSITIONS = st.integers(0, 40)
# Runs of positions, so that extents have more than one of them.
POSITION_SETS = st.lists(st.tuples(POSITIONS, st.integers(1, 8)), max_size=8).map(
    lambda runs: {position for start, length in runs for position in range(start, start + length)}
)
RAW_EXTENTS = st.lists(st.tuples(POSITIONS, POSITIONS), max_size=12)
# Far apart too, so that every length of a stored integer occurs.
FAR_EXTENTS = st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**40)), max_size=20).map(
    laid_out
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("trim"), POSITION_SETS),
        st.tuples(st.just("clear"), st.none()),
        st.tuples(st.just("snapshot"), st.none()),
        st.tuples(st.just("rollback"), st.integers(0, 5)),
        st.tuples(st.just("undo"), st.none()),
    ),
    max_size=25,
)


def positions_of(extents):
    """The positions of extents that may overlap, touch, be empty or stand in any order."""
    return {position for start, stop in extents for position in range(start, stop)}


def is_normal(extents):
    """Sorted, none empty, none touching the next."""
    return all(start < stop for start, stop in extents) and all(
        before[1] < after[0] for before, after in pairwise(extents)
    )


class Model:
    """A session as two lists: what shows, and what showed before each change."""

    def __init__(self):
        self.end = 0
        self.shown = []
        self.snapshots = []
        self.changes = []

    def append(self, count):
        self.shown = [*self.shown, *range(self.end, self.end + count)]
        self.end += count

    def change(self, after):
        self.changes.append((self.shown, self.end))
        self.shown = after

    def undo(self):
        before, end_then = self.changes.pop()
        self.shown = before + list(range(end_then, self.end))


class Session:
    """The same session on the module under test."""

    def __init__(self):
        self.end = 0
        self.view = View()
        self.snapshots = []
        self.changes = []

    def change(self, after):
        self.changes.append(self.view)
        self.view = after

    @property
    def shown(self):
        return list(view.iter_positions(view.freeze(self.view, self.end)))


def do(change, argument, session, model):
    """One operation on both; what cannot be done now is passed over on both."""
    if change == "append":
        session.end += argument
        model.append(argument)
    elif change == "trim":
        session.change(view.remove(session.view, session.end, view.from_positions(argument)))
        model.change([position for position in model.shown if position not in argument])
    elif change == "clear":
        session.change(view.build_empty_view(session.end))
        model.change([])
    elif change == "snapshot":
        session.snapshots.append(view.freeze(session.view, session.end))
        model.snapshots.append(model.shown)
    elif change == "rollback" and model.snapshots:
        number = argument % len(model.snapshots)
        session.change(view.build_view(session.snapshots[number], session.end))
        model.change(model.snapshots[number])
    elif change == "undo" and model.changes:
        session.view = session.changes.pop()
        model.undo()


@given(CHANGES)
@settings(max_examples=300, deadline=None)
def test_every_sequence_of_changes_shows_what_the_list_shows(changes):
    session, model = Session(), Model()
    for change, argument in changes:
        do(change, argument, session, model)
        assert session.shown == model.shown
        assert is_normal(session.view.extents)
        assert not session.view.extents or session.view.extents[-1][1] < session.view.tail
        assert session.view.tail <= session.end
    frozen = [list(view.iter_positions(extents)) for extents in session.snapshots]
    assert frozen == model.snapshots


@given(CHANGES, st.integers(1, 5))
@settings(deadline=None)
def test_an_append_shows_under_every_view(changes, count):
    session, model = Session(), Model()
    for change, argument in changes:
        do(change, argument, session, model)
    added = list(range(session.end, session.end + count))
    session.end += count
    assert session.shown[-count:] == added


@given(CHANGES)
@settings(deadline=None)
def test_what_was_frozen_does_not_grow_with_the_log(changes):
    session, model = Session(), Model()
    for change, argument in changes:
        do(change, argument, session, model)
    frozen = view.freeze(session.view, session.end)
    session.end += 7
    assert frozen == view.freeze(session.view, session.end - 7)
    assert set(view.iter_positions(frozen)) == set(model.shown)


@given(RAW_EXTENTS)
@example([(5, 3), (3, 3), (0, 2), (2, 4), (1, 3)])
@settings(deadline=None)
def test_normal_extents_hold_the_same_positions_in_order_and_apart(extents):
    normal = view.normalize(extents)
    assert is_normal(normal)
    assert set(view.iter_positions(normal)) == positions_of(extents)
    assert view.normalize(normal) == normal


@given(RAW_EXTENTS, st.integers(0, 10))
@settings(deadline=None)
def test_a_view_in_normal_form_shows_the_same(extents, behind):
    # A tail may begin where the last extent ends, never before it.
    end = 60
    tail = max((stop for _, stop in extents), default=0) + behind
    built = view.build_view(extents, tail)
    assert set(view.iter_positions(view.freeze(built, end))) == positions_of(
        [*extents, (tail, end)]
    )
    assert is_normal((*built.extents, (built.tail, end)))


@given(POSITION_SETS)
@settings(deadline=None)
def test_extents_of_positions_hold_exactly_these(positions):
    extents = view.from_positions(positions)
    assert is_normal(extents)
    assert list(view.iter_positions(extents)) == sorted(positions)
    assert view.count(extents) == len(positions)


@given(POSITION_SETS, st.integers(0, 50))
@example({1, 2, 3, 5, 6}, 1)
@example({1, 2, 3, 5, 6}, 3)
@settings(deadline=None)
def test_the_last_of_extents_are_the_last_of_the_list(positions, n):
    last = view.take_last(view.from_positions(positions), n)
    assert is_normal(last)
    assert (
        list(view.iter_positions(last))
        == sorted(positions)[len(positions) - n if n < len(positions) else 0 :]
    )


@given(POSITION_SETS, st.tuples(POSITIONS, POSITIONS).map(sorted))
@settings(deadline=None)
def test_the_part_between_two_positions_is_a_slice_of_the_list(positions, bounds):
    start, stop = bounds
    part = view.clip(view.from_positions(positions), start, stop)
    inside = [position for position in sorted(positions) if start <= position < stop]
    assert list(view.iter_positions(part)) == inside
    assert view.count(part) == len(inside)


@given(POSITION_SETS, POSITIONS, POSITIONS)
@example({1, 2, 4}, 1, 5)
@example({1, 2, 3}, 1, 4)
@example({1, 2}, 3, 3)
@settings(deadline=None)
def test_extents_hold_a_range_if_they_hold_each_of_it(positions, start, stop):
    held = view.contains(view.from_positions(positions), start, stop)
    assert held == all(position in positions for position in range(start, stop))


@given(POSITION_SETS, RAW_EXTENTS)
@settings(max_examples=300, deadline=None)
def test_subtracting_leaves_what_is_not_dropped(positions, dropped):
    left = view.subtract(view.from_positions(positions), tuple(dropped))
    assert is_normal(left)
    assert list(view.iter_positions(left)) == sorted(positions - positions_of(dropped))


class Torn(NamedTuple):
    """What shows, what a trim would drop, and how many pieces may be left."""

    shown: set
    dropped: set
    extents_max: int


TORN = st.builds(Torn, POSITION_SETS, POSITION_SETS, st.integers(1, 6))


@given(TORN)
@settings(max_examples=300, deadline=None)
def test_a_coarser_trim_drops_nothing_more(torn):
    shown = view.from_positions(torn.shown)
    dropped = view.from_positions(torn.dropped)
    coarser = view.coarsen(shown, dropped, extents_max=torn.extents_max)
    assert set(view.iter_positions(coarser)) <= torn.dropped


@given(TORN)
@settings(deadline=None)
def test_a_trim_that_leaves_few_pieces_is_as_it_was_asked_for(torn):
    shown = view.from_positions(torn.shown)
    dropped = view.from_positions(torn.dropped)
    if len(view.subtract(shown, dropped)) <= torn.extents_max:
        assert view.coarsen(shown, dropped, extents_max=torn.extents_max) == dropped


@given(TORN)
@example(Torn({0, 2, 3, 4}, {3}, 2))
@settings(max_examples=300, deadline=None)
def test_a_coarser_trim_leaves_no_more_pieces_than_allowed(torn):
    shown = view.from_positions(torn.shown)
    extents_max = max(torn.extents_max, len(shown))
    dropped = view.from_positions(torn.dropped)
    coarser = view.coarsen(shown, dropped, extents_max=extents_max)
    assert len(view.subtract(shown, coarser)) <= extents_max


@given(st.integers(1, 40), POSITION_SETS, st.integers(1, 6))
@settings(deadline=None)
def test_a_coarser_trim_of_one_piece_spares_the_smallest_gaps(length, dropped, extents_max):
    shown = ((0, length),)
    dropped = view.from_positions(dropped)
    left = view.subtract(shown, dropped)
    gaps = sorted(after[0] - before[1] for before, after in pairwise(left))
    coarser = view.coarsen(shown, dropped, extents_max=extents_max)
    spared = view.count(view.subtract(shown, coarser)) - view.count(left)
    assert spared == sum(gaps[: max(0, len(left) - extents_max)])
    assert len(view.subtract(shown, coarser)) <= extents_max


@given(st.one_of(FAR_EXTENTS, POSITION_SETS.map(view.from_positions)))
@settings(deadline=None)
def test_stored_extents_read_back_equal(extents):
    assert view.decode(view.encode(extents)) == extents


def test_a_thousand_extents_fit_into_a_page():
    extents = tuple((i * 100, i * 100 + 50) for i in range(view.EXTENTS_MAX))
    assert len(view.encode(extents)) <= 4096


@given(FAR_EXTENTS.filter(bool))
@settings(deadline=None)
def test_stored_extents_that_were_cut_short_are_refused(extents):
    with pytest.raises(FormatError):
        view.decode(view.encode(extents)[:-1])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x01", id="a gap without a length"),
        pytest.param(b"\x00\x01\x05", id="three numbers"),
        pytest.param(b"\x80", id="an integer that does not end"),
        pytest.param(b"\x00\x01\x01\x80", id="a length that does not end"),
        pytest.param(b"\x03\x00", id="an empty extent"),
        pytest.param(b"\x00\x02\x00\x02", id="extents that touch"),
    ],
)
def test_damaged_extents_are_refused(data):
    with pytest.raises(FormatError) as caught:
        view.decode(data)
    assert caught.value.data == data


@given(st.binary(max_size=12))
@example(b"\x80\x00\x01")
@settings(max_examples=300, deadline=None)
def test_only_what_was_encoded_is_decoded(data):
    try:
        extents = view.decode(data)
    except FormatError:
        return
    assert is_normal(extents)
    assert view.encode(extents) == data
