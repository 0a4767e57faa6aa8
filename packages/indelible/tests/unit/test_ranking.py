"""Words, ranks and snippets."""

from indelible.core import ranking
from indelible.core.ranking import (
    Document,
    Statistics,
    choose_leading,
    compute_statistics,
    order_matches,
)
from indelible.core.words import (
    build_snippet,
    choose_words,
    count_terms,
    find_name_terms,
    tokenize,
)
from indelible.model import Kind


def document(text, session="s", position=0, author="", similarity=None, terms=()):
    length, counts = count_terms(text, frozenset(terms))
    return Document(
        session=session,
        position=position,
        kind=Kind.MESSAGE,
        order=position,
        length=length,
        counts=counts,
        authors=find_name_terms(author),
        similarity=similarity,
    )


def terms_of(text):
    return [token.term for token in tokenize(text)]


def rank(documents, terms):
    return ranking.rank(documents, frozenset(terms), compute_statistics(documents))


def ranked(texts, query):
    terms = terms_of(query)
    documents = [
        document(text, session=str(n), position=n, terms=terms) for n, text in enumerate(texts)
    ]
    return [each.document.position for each in rank(documents, terms)]


def test_words_lose_case_accents_and_endings():
    assert terms_of("Running DOGS, cafés") == ["run", "dog", "cafe"]
    assert terms_of("") == []
    assert [(token.start, token.stop) for token in tokenize("é dog")] == [(0, 2), (3, 6)]


def test_a_rare_word_counts_for_more():
    assert ranked(["the cat", "the dog", "the bird", "the cat"], "the dog")[0] == 1


def test_more_of_a_word_and_a_shorter_text_count_for_more():
    assert ranked(["tea with a lot of other words in it", "tea tea", "tea", "x"], "tea") == [
        1,
        2,
        0,
    ]


def test_what_has_no_word_is_left_out_and_ties_keep_their_order():
    assert ranked(["a", "tea", "b", "tea"], "tea") == [1, 3]
    assert ranked([], "tea") == []
    assert ranked(["tea"], "") == []


def test_neighbours_of_one_place_count():
    terms = ["wed"]
    documents = [
        document(text, position=n, terms=terms)
        for n, text in enumerate(["x", "wedding", "Lisbon", "y", "z"])
    ]
    assert [each.document.position for each in rank(documents, terms)] == [1, 2, 0, 3]
    apart = [document("wedding", "a", terms=terms), document("Lisbon", "b", 1, terms=terms)]
    assert len(rank(apart, terms)) == 1


def test_a_word_that_neighbours_repeat_counts_for_less_than_another_word():
    terms = ["wed", "lisbon"]
    documents = [
        document(text, session, position=n, terms=terms)
        for session, texts in (("a", ["wedding", "Lisbon"]), ("b", ["wedding", "wedding"]))
        for n, text in enumerate(texts)
    ]
    found = rank([*documents, document("Lisbon", "c", terms=terms)], terms)
    first = [(each.document.session, each.document.position) for each in found][:2]
    assert set(first) == {("a", 0), ("a", 1)}


def test_a_match_comes_before_its_neighbours_however_long_it_is():
    terms = ["wed"]
    texts = ["x " * 1000, "x", "wedding " + "x " * 1000, "x", "x"]
    documents = [document(text, position=n, terms=terms) for n, text in enumerate(texts)]
    assert [each.document.position for each in rank(documents, terms)] == [2, 3, 1, 4, 0]


def test_ranks_are_fused():
    terms = ["tea"]
    documents = [
        document("tea", "a", 0, similarity=0.1, terms=terms),
        document("nothing", "b", 1, similarity=0.9, terms=terms),
        document("tea tea", "c", 2, terms=terms),
    ]
    found = rank(documents, terms)
    assert [each.document.position for each in found] == [0, 2, 1]
    assert [each.ranks for each in found] == [
        {"text": 2, "vector": 2},
        {"text": 1},
        {"vector": 1},
    ]


def test_a_snippet_never_cuts_a_character():
    text = "é" * 500 + " tea " + "猫" * 500
    snippet = build_snippet(text, ["tea"])
    assert "[tea]" in snippet
    assert "\ufffd" not in snippet
    assert build_snippet("no match", ["tea"]) == "no match"
    assert build_snippet("", ["tea"]) == ""


def test_the_words_of_a_query_are_kept_as_they_were_written():
    assert choose_words("Dogs, dog and Cafés") == {"dog": "Dogs", "and": "and", "cafe": "Cafés"}


def test_matches_of_rare_words_come_first_and_of_equal_ones_the_newest():
    ids = {"rare": [3, 9], "common": range(500)}
    ordered = order_matches(ids, Statistics(1000, 5.0, {"rare": 2, "common": 500}))
    assert (ordered[:3], len(ordered)) == ([9, 3, 499], 500)


def lead(limit, **counts):
    return "".join(sorted(choose_leading(Statistics(10**6, 5.0, counts), limit)))


def test_words_lead_until_enough_entries_cannot_be_outdone():
    assert lead(20, x=20, y=300, z=30_000) == "xy"
    assert lead(300, x=20, y=300, z=30_000) == "xy"
    assert lead(301, x=20, y=300, z=30_000) == "xyz"
    # Two words together may count for more than a rarer one.
    assert lead(10, x=50, y=60, z=70) == "xy"
    assert lead(10, x=50) == "x"
    assert lead(10, x=0) == "x"
    assert lead(10) == ""


def test_function_words_count_for_little_even_if_they_are_rare():
    statistics = Statistics(100, 5.0, {"where": 2, "museum": 10})
    assert 0 < statistics.weigh("where") < statistics.weigh("museum")
    assert ranked(["where is it", "x"], "where") == [0]


def test_statistics_of_two_parts_are_those_of_the_whole():
    one, other = Statistics(2, 4.0, {"a": 1}), Statistics(6, 8.0, {"a": 2, "b": 3})
    assert one.add(other) == Statistics(8, 7.0, {"a": 3, "b": 3})
    assert one.add(other).weigh("b") > Statistics(8, 7.0, {"b": 4}).weigh("b")
    assert Statistics(0, 0.0, {}).add(Statistics(0, 0.0, {})).average == 0.0
