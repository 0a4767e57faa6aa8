"""Filters: which documents match, and which filters are refused."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from indelible.core.filters import OPERATORS, matches, parse_filter
from indelible.errors import UsageError

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
DOCUMENT = {
    "status": "active",
    "at": NOON,
    "metadata": {
        "team": "support",
        "score": 3,
        "ratio": 0.5,
        "open": True,
        "none": None,
        "tags": ["a"],
        "steps": [{"n": 1}],
        "user": {"name": "Ann", "id": {"n": 1}},
        "http.method": "GET",
        "a": {"b.c": "dotted"},
    },
}


def parsed(where):
    return parse_filter(where, fields=("status", "at"), documents=("metadata",))


@pytest.mark.parametrize(
    "where",
    [
        None,
        {},
        {"status": "active"},
        {"status": {"$ne": "expired"}},
        {"status": {"$in": ["expired", "active"]}},
        {"metadata.team": "support", "metadata.score": 3},
        {"metadata.score": {"$gt": 2, "$lt": 4}},
        {"metadata.score": {"$gte": 3.0, "$lte": 3}},
        {"metadata.score": 3.0},
        {"metadata.ratio": {"$lt": 1}},
        {"metadata.open": True},
        {"metadata.none": None},
        {"metadata.none": {"$exists": True}},
        {"metadata.other": {"$exists": False}},
        {"metadata.other": {"$ne": "x"}},
        {"metadata.user.name": "Ann"},
        {"metadata.user.id.n": 1},
        {"metadata.http.method": "GET"},
        {"metadata.a.b.c": "dotted"},
        {'metadata."http.method"': "GET"},
        {'metadata."user"."id"."n"': 1},
        {'metadata."user.name"': {"$exists": False}},
        {"metadata.team": {"$in": ("support", 5, None)}},
        {"metadata.team": {"$gt": "s"}},
        {"metadata.tags": {"$exists": True}},
        {"metadata.tags": ["a"]},
        {"metadata.steps": [{"n": 1.0}]},
        {"metadata.tags": {"$in": [["b"], ["a"]]}},
        {"at": NOON.astimezone(timezone(timedelta(hours=5)))},
        {"at": {"$gt": NOON - timedelta(days=1)}},
    ],
    ids=str,
)
def test_a_document_matches(where):
    assert matches(parsed(where), DOCUMENT)


@pytest.mark.parametrize(
    "where",
    [
        {"status": "expired"},
        {"status": {"$in": []}},
        {"metadata.team": "support", "metadata.score": 4},
        {"metadata.score": {"$gt": 2, "$lt": 3}},
        {"metadata.score": "3"},
        {'metadata."user.name"': "Ann"},
        {'metadata."http"."method"': "GET"},
        {"metadata.tags": ["a", "b"]},
        {"metadata.steps": [{"n": True}]},
        {"metadata.tags": {"$ne": ["a"]}},
        {"metadata.score": {"$gt": "2"}},
        {"metadata.open": 1},
        {"metadata.score": True},
        {"metadata.none": 0},
        {"metadata.other": None},
        {"metadata.other": {"$lt": 5}},
        {"metadata.other": {"$in": [None]}},
        {"metadata.tags": "a"},
        {"metadata.user": {"$lt": 5}},
        {"metadata.user.name.more": "Ann"},
        {"metadata.team.name": {"$exists": True}},
        {"at": "2030-01-31"},
    ],
    ids=str,
)
def test_a_document_does_not_match(where):
    assert not matches(parsed(where), DOCUMENT)


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ({"colour": "red"}, "colour"),
        ({"metadata": "x"}, "metadata"),
        ({"metadata.": "x"}, "metadata."),
        ({"status.a": "x"}, "status.a"),
        ({5: "x"}, "5"),
        ({"status": {}}, "status"),
        ({"status": {"$like": "a%"}}, "$like"),
        ({"status": {"eq": "a"}}, "eq"),
        ({"status": {5: "a"}}, "5"),
        ({"status": ["active"]}, "status"),
        ({"metadata.a": {"$in": "abc"}}, "metadata.a"),
        ({"metadata.a": {"$in": [{"a": 1}]}}, "metadata.a"),
        ({"metadata.a": {"$exists": 1}}, "metadata.a"),
        ({"metadata.a": {"$gt": None}}, "metadata.a"),
        ({"metadata.a": {"$gt": [1]}}, "metadata.a"),
        ({"metadata.a": {"$lte": True}}, "metadata.a"),
        ({"metadata.a": {"$eq": {"b": 1}}}, "metadata.a"),
        ({"metadata.a": b"x"}, "metadata.a"),
        ({"at": datetime(2030, 1, 1)}, "at"),  # noqa: DTZ001
        ({"at": datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))}, "at"),
    ],
    ids=str,
)
def test_a_filter_that_makes_no_sense_is_refused_by_name(where, named):
    with pytest.raises(UsageError) as caught:
        parsed(where)
    assert named in str(caught.value)


@pytest.mark.parametrize("where", ["status", 5, [("status", "active")]])
def test_what_is_no_mapping_is_refused(where):
    with pytest.raises(UsageError):
        parsed(where)


def test_the_order_in_which_a_filter_is_written_does_not_matter():
    one = parsed({"status": "active", "metadata.a": {"$gt": 1, "$in": {"b", "a", 3}}})
    two = parsed({"metadata.a": {"$in": [3, "a", "b"], "$gt": 1}, "status": {"$eq": "active"}})
    assert one == two


def test_an_unknown_operator_is_told_the_known_ones():
    with pytest.raises(UsageError) as caught:
        parsed({"status": {"$regex": "a"}})
    assert all(operator in str(caught.value) for operator in OPERATORS)
