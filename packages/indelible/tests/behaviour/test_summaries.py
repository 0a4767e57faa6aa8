"""Summaries: found by exact cosine among what shows, one embedder at a time."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import indelible
from indelible import ConflictError, Status, Summary, UsageError
from tests.support.stores import Clock, message, say


class Letters:
    """An embedder that counts the letters a, b and c."""

    def __init__(self, name="letters"):
        self.name = name

    def embed(self, text):
        return [float(text.count(letter)) for letter in "abc"]


def cosine(a, b):
    """The textbook's formula, with sums that do not round."""
    norm = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(x * x for x in b))
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / norm


def found(store, query, session="s", **options):
    return [match.summary.text for match in store.search_summaries(session, query, **options)]


def test_a_summary_reads_back_as_it_was_added(store):
    say(store, "s", "one", "two", "three")
    store.add_summary(
        "s", "two things", [0.1, 2.0], covers=[0, 2], embedder="e", metadata={"by": "me"}
    )
    (stored,) = store.get_summaries("s")
    assert stored.position == 3
    assert stored.summary == Summary(
        text="two things",
        vector=(0.1, 2.0),
        embedder="e",
        covers=((0, 1), (2, 3)),
        metadata={"by": "me"},
    )


@pytest.mark.parametrize(
    ("covers", "extents"),
    [
        (None, ()),
        (range(2, 5), ((2, 5),)),
        (range(0, 5, 2), ((0, 1), (2, 3), (4, 5))),
        ([3, 1, 2, 7], ((1, 4), (7, 8))),
        ([(0, 2), (2, 4), (6, 7)], ((0, 4), (6, 7))),
        ([], ()),
    ],
)
def test_what_a_summary_covers_may_be_said_in_many_ways(store, covers, extents):
    store.add_summary("s", "text", covers=covers)
    assert store.get_summaries("s")[0].summary.covers == extents


def test_what_is_no_position_cannot_be_covered(store):
    for covers in (
        5,
        "ab",
        ["a"],
        [1.5],
        [(1, 2, 3)],
        [None],
        [(1.5, 3)],
        [("1", "2")],
        [-1],
        [(-2, 1)],
    ):
        with pytest.raises(UsageError):
            store.add_summary("s", "text", covers=covers)
        assert store.session("s").status is Status.NEW


def test_a_range_is_covered_without_counting_through_it(store):
    try:
        store.add_summary("s", "all", covers=range(2**62))
    except UsageError:
        assert store.session("s").status is Status.NEW
    else:
        assert store.get_summaries("s")[0].summary.covers == ((0, 2**62),)


def test_what_is_no_vector_is_refused(store):
    for vector in (5, [math.nan], [math.inf], ["x"], [None], [[1.0]]):
        with pytest.raises(UsageError):
            store.add_summary("s", "text", vector)
        assert store.session("s").status is Status.NEW


def test_search_gives_the_nearest_first(store):
    vectors = {"east": [1, 0], "north": [0, 1], "north-east": [1, 1], "west": [-1, 0]}
    for text, vector in vectors.items():
        store.add_summary("s", text, vector)
    matches = store.search_summaries("s", [2, 0.1])
    assert [match.summary.text for match in matches] == ["east", "north-east", "north", "west"]
    for match in matches:
        assert match.score == pytest.approx(cosine([2, 0.1], match.summary.vector))
    assert [match.position for match in matches] == [0, 2, 1, 3]
    assert found(store, [2, 0.1], k=2) == ["east", "north-east"]
    assert found(store, [2, 0.1], k=99) == ["east", "north-east", "north", "west"]


def test_equally_near_summaries_come_in_the_order_of_the_log(store):
    for text, vector in [("b", [2, 0]), ("a", [1, 0]), ("c", [0.5, 0])]:
        store.add_summary("s", text, vector)
    assert found(store, [3, 0]) == ["b", "a", "c"]


VECTORS = st.lists(st.integers(-9, 9).map(float), min_size=3, max_size=3).filter(any)


@given(st.lists(VECTORS, min_size=1, max_size=8), VECTORS)
@settings(deadline=None)
def test_the_order_is_that_of_exact_cosine(vectors, query):
    with indelible.open("memory:", clock=Clock()) as store:
        for number, vector in enumerate(vectors):
            store.add_summary("s", str(number), vector)
        matches = store.search_summaries("s", query, k=len(vectors))
    exact = {str(number): cosine(query, vector) for number, vector in enumerate(vectors)}
    scores = [exact[match.summary.text] for match in matches]
    assert len(matches) == len(vectors)
    assert all(a >= b - 1e-12 for a, b in pairwise(scores))
    assert [match.score for match in matches] == pytest.approx(scores)


def test_a_vector_of_zeros_is_like_nothing(store):
    store.add_summary("s", "nothing", [0, 0])
    store.add_summary("s", "against", [-1, 0])
    assert [(m.summary.text, m.score) for m in store.search_summaries("s", [1, 0])] == [
        ("nothing", 0.0),
        ("against", -1.0),
    ]


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_length_of_a_vector_does_not_matter(store, scale):
    store.add_summary("s", "scaled", [scale, 0.0])
    store.add_summary("s", "aslant", [1.0, 1.0])
    store.add_summary("s", "against", [-scale, -scale])
    for query in ([1.0, 0.1], [scale, scale / 10]):
        matches = store.search_summaries("s", query)
        assert [match.summary.text for match in matches] == ["scaled", "aslant", "against"]
        exact = [cosine([1.0, 0.1], v) for v in ([1.0, 0.0], [1.0, 1.0], [-1.0, -1.0])]
        assert [match.score for match in matches] == pytest.approx(exact)


def test_vectors_of_different_embedders_are_never_compared(store):
    store.add_summary("s", "one's", [1, 0], embedder="one")
    store.add_summary("s", "two's", [1, 0], embedder="two")
    store.add_summary("s", "nobody's", [1, 0])
    assert found(store, [1, 0], embedder="one") == ["one's"]
    assert found(store, [1, 0], embedder="two") == ["two's"]
    assert found(store, [1, 0]) == ["nobody's"]


def test_vectors_of_different_dimensions_are_never_compared(store):
    store.add_summary("s", "flat", [1, 0])
    store.add_summary("s", "deep", [1, 0, 0])
    assert found(store, [1, 0]) == ["flat"]
    assert found(store, [1, 0, 0]) == ["deep"]


def test_nothing_to_compare_with_is_said_and_not_an_empty_list(store):
    store.add_summary("s", "no vector")
    store.add_summary("s", "other", [1, 0], embedder="other")
    for query, options in [([1, 0, 0], {"embedder": "other"}), ([1, 0], {}), ([1], {})]:
        with pytest.raises(UsageError) as caught:
            store.search_summaries("s", query, **options)
        assert "other (2 dimensions)" in str(caught.value)
        assert caught.value.dimension == len(query)


def test_a_session_without_summaries_finds_nothing(store):
    assert store.search_summaries("nobody", [1, 0]) == []
    say(store, "s", "one")
    assert store.search_summaries("s", [1, 0]) == []


def test_a_summary_that_does_not_show_is_not_found(store):
    store.add_summary("s", "early", [1, 0])
    snapshot = store.save_snapshot("s")
    store.add_summary("s", "late", [1, 0])
    assert found(store, [1, 0]) == ["early", "late"]
    store.rollback_to_snapshot("s", snapshot.id)
    assert found(store, [1, 0]) == ["early"]
    assert [stored.summary.text for stored in store.get_summaries("s")] == ["early"]
    store.undo("s")
    assert found(store, [1, 0]) == ["early", "late"]
    store.clear("s")
    assert found(store, [1, 0]) == []


def test_an_expired_summary_is_not_found(store, clock):
    store.add_summary("s", "old", [1, 0], ttl=5)
    clock.advance(5)
    assert found(store, [1, 0]) == []
    store.add_summary("s", "new", [1, 0])
    assert found(store, [1, 0]) == ["new"]


def test_text_needs_an_embedder(store):
    store.add_summary("s", "text", [1, 0])
    with pytest.raises(UsageError, match="embedder"):
        store.search_summaries("s", "text")


class Nameless:
    def embed(self, text):
        return [1.0]


def test_what_is_no_embedder_is_refused_at_once(make_store):
    for embedder in (Nameless(), "letters", len, dict, lambda text: [1.0]):
        with pytest.raises(UsageError, match="It needs a `name`"):
            make_store(embedder=embedder)


def test_what_is_iterable_need_not_be_a_vector(store):
    for vector in ({"a": 1}, {0: 1.0}, "12", b"12"):
        with pytest.raises(UsageError, match="not a vector"):
            store.add_summary("s", "text", vector, embedder="e")


def test_a_store_with_an_embedder_makes_and_searches_vectors(make_store):
    store = make_store(embedder=Letters())
    for text in ("aab", "bbc", "cca"):
        store.add_summary("s", text)
    (first, *_) = store.get_summaries("s")
    assert (first.summary.vector, first.summary.embedder) == ((2.0, 1.0, 0.0), "letters")
    assert found(store, "a", k=2) == ["aab", "cca"]
    assert found(store, [0.0, 1.0, 0.0], k=1) == ["bbc"]


def test_a_vector_that_is_given_is_not_made(make_store):
    store = make_store(embedder=Letters())
    store.add_summary("s", "aaa", [0, 0, 1])
    store.add_summary("s", "other", [1, 0, 0], embedder="other")
    assert [s.summary.vector for s in store.get_summaries("s")] == [(0, 0, 1), (1, 0, 0)]
    assert found(store, "c") == ["aaa"]
    assert found(store, [1, 0, 0], embedder="other") == ["other"]


def test_a_text_is_compared_by_the_embedder_of_the_store_alone(make_store):
    store = make_store(embedder=Letters())
    store.add_summary("s", "aaa")
    store.add_summary("s", "bbb", [1, 0, 0], embedder="other")
    assert found(store, "a", embedder="letters") == ["aaa"]
    with pytest.raises(UsageError, match="'letters'"):
        store.search_summaries("s", "a", embedder="other")
    with pytest.raises(UsageError, match="'letters'"):
        store.add_summary("s", "ccc", embedder="other")


def test_a_new_embedder_does_not_find_what_the_old_one_made(make_store, reopened):
    store = make_store(embedder=Letters())
    store.add_summary("s", "aaa")
    store.add_summary("s", "bbb", [1, 0, 0], embedder="new letters")
    assert found(store, "a") == ["aaa"]
    assert found(store, [1, 0, 0], embedder="new letters") == ["bbb"]


def test_what_is_no_vector_cannot_be_searched_for(store):
    store.add_summary("s", "text", [1, 0])
    for query in ([], [math.nan], [math.inf, 1.0], ["x"], [10**400], 5, None):
        with pytest.raises(UsageError):
            store.search_summaries("s", query)


def test_what_is_no_number_of_matches_is_refused(store):
    store.add_summary("s", "text", [1, 0])
    for k in (0, -1, 1.5, "5", None):
        with pytest.raises(UsageError):
            store.search_summaries("s", [1, 0], k)


def test_a_summary_is_appended_once_per_key(store):
    first = store.add_summary("s", "text", [0.1], covers=[0], key="k")
    assert store.add_summary("s", "text", [0.1], covers=[0], key="k") == first._replace(
        replayed=True
    )
    for other in ({"vector": [0.2]}, {"vector": [0.1], "covers": [1]}, {}):
        with pytest.raises(ConflictError):
            store.add_summary("s", "text", key="k", **{"covers": [0], **other})
    assert len(store.get_summaries("s")) == 1


def test_a_thousand_dimensions_read_back_equal(store, reopened):
    vector = [math.sin(number) for number in range(1536)]
    store.add_summary("s", "text", vector)
    store = reopened(store)
    assert store.get_summaries("s")[0].summary.vector == tuple(vector)
    (match,) = store.search_summaries("s", vector)
    assert match.score == pytest.approx(1.0)


class AsyncLetters(Letters):
    """An embedder that is awaited, for several texts at once."""

    def __init__(self):
        super().__init__()
        self.calls = []

    async def embed(self, text):
        self.calls.append(text)
        return super().embed(text)

    async def embed_many(self, texts):
        self.calls.append(list(texts))
        return [Letters.embed(self, text) for text in texts]


def test_an_embedder_may_be_awaited(make_store):
    embedder = AsyncLetters()
    store = make_store(embedder=embedder)
    store.add_summary("s", "aab")
    assert found(store, "aab") == ["aab"]
    assert embedder.calls == ["aab", "aab"]


def test_several_summaries_take_one_call_of_the_embedder(make_store):
    embedder = AsyncLetters()
    store = make_store(embedder=embedder)
    given = Summary(text="given", vector=(0.0, 0.0, 1.0), embedder="letters")
    store.add_entries("s", [Summary(text="aa"), given, message("hi"), Summary(text="b")])
    assert embedder.calls == [["aa", "b"]]
    assert [each.summary.vector for each in store.get_summaries("s")] == [
        (2.0, 0.0, 0.0),
        (0.0, 0.0, 1.0),
        (0.0, 1.0, 0.0),
    ]
    assert {each.summary.embedder for each in store.get_summaries("s")} == {"letters"}


def test_without_embed_many_each_summary_is_embedded(make_store):
    store = make_store(embedder=Letters())
    store.add_entries("s", [Summary(text="aa"), Summary(text="b")])
    assert found(store, "b") == ["b", "aa"]


class Wrong(Letters):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def embed(self, text):
        return self.answer

    def embed_many(self, texts):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([[1.0, 2.0]], "a list of 1 vectors for one text"),
        ([], "an empty vector"),
        ([float("nan")], "not finite"),
        ("abc", "'abc' for one text"),
        (None, "None for one text"),
    ],
)
def test_a_wrong_shape_is_refused_and_named(make_store, answer, told):
    store = make_store(embedder=Wrong(answer))
    with pytest.raises(UsageError, match=f"'letters' returned .*{told}"):
        store.add_summary("s", "aab")
    with pytest.raises(UsageError, match="'letters' returned"):
        store.search_summaries("s", "aab")
    assert store.session("s").logged == 0


def test_what_is_no_list_of_entries_is_refused_beside_an_embedder_too(make_store):
    store = make_store(embedder=Letters())
    for values in (5, "text", Summary(text="one"), {"text": "one"}):
        with pytest.raises(UsageError, match="expected a list"):
            store.add_entries("s", values)
        with pytest.raises(UsageError, match="text cannot be stored"):
            store.add_summary("s", 5)
        assert store.session("s").logged == 0


def test_entries_may_come_from_a_generator_beside_an_embedder(make_store):
    store = make_store(embedder=Letters())
    store.add_entries("s", (Summary(text=text) for text in ("aa", "b")))
    assert found(store, "b") == ["b", "aa"]


def test_a_wrong_number_of_vectors_is_refused(make_store):
    store = make_store(embedder=Wrong([[1.0, 2.0]]))
    with pytest.raises(UsageError, match="1 vectors for 2 texts"):
        store.add_entries("s", [Summary(text="aa"), Summary(text="b")])
    assert store.session("s").logged == 0
