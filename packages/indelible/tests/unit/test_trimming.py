"""Which entries a trim lets go of, against a model that walks from link to link."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from indelible import Kind
from indelible.core.operations import Outline
from indelible.core.trim_rules import (
    find_cut_for_last,
    find_cut_for_position,
    find_dropped_before,
    find_over_budget,
    group_entries,
)

CALL_IDS = st.sampled_from(["c1", "c2", "c3", "c4"])
LINKS = st.lists(CALL_IDS, max_size=2, unique=True).map(tuple)
# Mostly entries without links, as conversations are.
SOME_LINKS = st.one_of(st.just(()), LINKS)


def outline_of(*entries):
    """An outline from `(kind, fields)` pairs, at positions that are not indexes."""
    return tuple(
        Outline(
            position=10 + 3 * index,
            kind=kind,
            size_bytes=fields.get("size", 40),
            keep=fields.get("keep", False),
            opens=fields.get("opens", ()),
            answers=fields.get("answers", ()),
        )
        for index, (kind, fields) in enumerate(entries)
    )


OUTLINES = st.lists(
    st.tuples(
        st.sampled_from(list(Kind)),
        st.fixed_dictionaries(
            {
                "size": st.integers(0, 60),
                "keep": st.sampled_from([False, False, False, True]),
                "opens": SOME_LINKS,
                "answers": SOME_LINKS,
            }
        ),
    ),
    max_size=14,
).map(lambda entries: outline_of(*entries))
CUTS = st.integers(0, 15)
BUDGETS = st.integers(0, 400)


def message(**fields):
    return Kind.MESSAGE, fields


def calling(call_id):
    return Kind.TOOL_CALL, {"opens": (call_id,)}


def answering(call_id):
    return Kind.TOOL_RESULT, {"answers": (call_id,)}


def indexes(outline, positions):
    """Positions as indexes into the outline."""
    return [index for index, entry in enumerate(outline) if entry.position in set(positions)]


def answered(outline):
    """Call and answer of each pair, by the rule in words: the oldest open call of its id before."""
    calls = [(index, call_id) for index, entry in enumerate(outline) for call_id in entry.opens]
    pairs = {}
    for index, entry in enumerate(outline):
        for call_id in entry.answers:
            still_open = [
                number
                for number, (at, its_id) in enumerate(calls)
                if its_id == call_id and at < index and number not in pairs
            ]
            if still_open:
                pairs[still_open[0]] = index
    done = [(calls[number][0], index) for number, index in pairs.items()]
    dangling = {at for number, (at, _) in enumerate(calls) if number not in pairs}
    return done, dangling


def tied_to(outline, index):
    """All that a pair, or a chain of them, ties to an entry: the model of a group."""
    pairs, _ = answered(outline)
    tied, todo = set(), {index}
    while todo:
        at = todo.pop()
        tied.add(at)
        ends = {end for pair in pairs if at in pair for end in pair}
        todo |= ends - tied
    return tied


def must_stay(outline, index):
    """Whether something in the entry's group is kept, or is a call that nobody answered."""
    _, dangling = answered(outline)
    group = tied_to(outline, index)
    return bool(group & dangling) or any(outline[member].keep for member in group)


def size(outline):
    return lambda index: outline[index].size_bytes


@given(OUTLINES)
@settings(max_examples=200, deadline=None)
def test_groups_are_what_call_ids_tie_together(outline):
    groups = group_entries(outline)
    assert sorted(index for group in groups for index in group.members) == list(range(len(outline)))
    for group in groups:
        assert set(group.members) == tied_to(outline, group.members[0])
        assert group.must_stay == must_stay(outline, group.members[0])
        assert list(group.members) == sorted(group.members)


@given(OUTLINES, CUTS)
@settings(max_examples=300, deadline=None)
def test_a_cut_drops_every_group_before_it_and_nothing_else(outline, cut):
    dropped = set(indexes(outline, find_dropped_before(outline, cut)))
    for index in range(len(outline)):
        whole_group_is_before = all(member < cut for member in tied_to(outline, index))
        expected = whole_group_is_before and not must_stay(outline, index)
        assert (index in dropped) == expected


@given(OUTLINES, CUTS, BUDGETS)
@settings(max_examples=300, deadline=None)
def test_no_trim_ever_splits_a_call_from_its_result(outline, cut, budget):
    for dropped in (
        set(find_dropped_before(outline, cut)),
        set(find_over_budget(outline, budget, size(outline))),
    ):
        pairs, dangling = answered(outline)
        for call, answer in pairs:
            assert (outline[call].position in dropped) == (outline[answer].position in dropped)
        assert not {outline[call].position for call in dangling} & dropped


@given(OUTLINES, CUTS, BUDGETS)
@settings(max_examples=300, deadline=None)
def test_no_trim_drops_what_must_stay(outline, cut, budget):
    dropped = {
        *find_dropped_before(outline, cut),
        *find_over_budget(outline, budget, size(outline)),
    }
    answered = {call_id for entry in outline for call_id in entry.answers}
    for entry in outline:
        dangling = any(call_id not in answered for call_id in entry.opens)
        assert not ((entry.keep or dangling) and entry.position in dropped)


@given(OUTLINES, BUDGETS)
@settings(max_examples=300, deadline=None)
def test_what_a_budget_leaves_fits_it_or_had_to_stay(outline, budget):
    dropped = set(indexes(outline, find_over_budget(outline, budget, size(outline))))
    kept = [index for index in range(len(outline)) if index not in dropped]
    if any(not must_stay(outline, index) for index in kept):
        assert sum(outline[index].size_bytes for index in kept) <= budget


@given(OUTLINES, BUDGETS)
@settings(max_examples=300, deadline=None)
def test_a_budget_keeps_the_newest_groups_and_as_many_as_fit(outline, budget):
    dropped = set(indexes(outline, find_over_budget(outline, budget, size(outline))))
    optional = [group for group in group_entries(outline) if not group.must_stay]
    optional.sort(key=lambda group: group.members[-1])
    gone = [group for group in optional if dropped & set(group.members)]
    assert gone == optional[: len(gone)], "an old turn outlived a newer one"
    if gone:
        kept = sum(entry.size_bytes for index, entry in enumerate(outline) if index not in dropped)
        newest = sum(outline[index].size_bytes for index in gone[-1].members)
        assert kept + newest > budget, "one more would have fitted"


@given(OUTLINES, st.integers(0, 15))
@example(outline_of(message(), calling("c1"), message()), 1)
@settings(deadline=None)
def test_keep_last_counts_messages_alone(outline, keep_last):
    cut = find_cut_for_last(outline, keep_last)
    messages = [index for index, entry in enumerate(outline) if entry.kind is Kind.MESSAGE]
    behind = [index for index in messages if index >= cut]
    assert len(behind) == min(keep_last, len(messages))
    if keep_last and len(messages) >= keep_last:
        assert cut == messages[-keep_last]
    elif keep_last:
        assert cut == 0
    else:
        assert cut == len(outline)


@given(OUTLINES, st.integers(0, 80))
@settings(deadline=None)
def test_a_cut_at_a_position_leaves_all_from_it_on(outline, before):
    cut = find_cut_for_position(outline, before)
    assert all(entry.position < before for entry in outline[:cut])
    assert all(entry.position >= before for entry in outline[cut:])


def test_a_result_behind_the_cut_keeps_its_call_before_it():
    outline = outline_of(message(), calling("c1"), message(), answering("c1"), message())
    assert find_dropped_before(outline, 3) == [outline[0].position, outline[2].position]


def test_calls_of_one_message_stay_together_with_all_their_results():
    outline = outline_of(
        message(opens=("c1", "c2")), answering("c1"), message(), answering("c2"), message()
    )
    assert find_dropped_before(outline, 2) == []
    assert find_dropped_before(outline, 3) == [outline[2].position]
    assert find_dropped_before(outline, 4) == [entry.position for entry in outline[:4]]


def test_a_call_without_its_result_stays():
    outline = outline_of(message(), calling("c1"), message())
    assert find_dropped_before(outline, 3) == [outline[0].position, outline[2].position]


def test_a_result_without_its_call_may_go():
    outline = outline_of(answering("c1"), message())
    assert find_dropped_before(outline, 2) == [entry.position for entry in outline]


def test_a_pinned_message_keeps_the_call_that_it_answers():
    outline = outline_of(calling("c1"), message(answers=("c1",), keep=True), message())
    assert find_dropped_before(outline, 3) == [outline[2].position]


def test_what_must_stay_is_paid_from_the_budget_first():
    outline = outline_of(message(size=60, keep=True), message(size=30), message(size=40))
    assert find_over_budget(outline, 100, size(outline)) == [outline[1].position]
    assert find_over_budget(outline, 99, size(outline)) == [
        outline[1].position,
        outline[2].position,
    ]


def test_a_turn_that_does_not_fit_ends_the_taking():
    outline = outline_of(message(size=1), message(size=90), message(size=10))
    assert find_over_budget(outline, 50, size(outline)) == [
        outline[0].position,
        outline[1].position,
    ]


def test_an_empty_outline_has_nothing_to_drop():
    assert group_entries(()) == []
    assert find_dropped_before((), 0) == []
    assert find_over_budget((), 0, size(())) == []
    assert find_cut_for_last((), 3) == 0
    assert find_cut_for_position((), 3) == 0
