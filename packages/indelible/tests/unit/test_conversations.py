"""What of a list is kept, added and let go when a framework replaces it."""

from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indelible import ChatMessage, Entry, Kind
from indelible.adapters.conversations import compute_difference
from indelible.adapters.forms import get_form, keep_form, parse_parts, to_content

# A busy machine is no reason to fail.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
NOW = datetime(2026, 11, 15, tzinfo=UTC)


def messages(words):
    return [ChatMessage(role="user", content=word) for word in words]


def entries(words):
    return [
        Entry(position, Kind.MESSAGE, value, NOW) for position, value in enumerate(messages(words))
    ]


@patient
@given(old=st.text("abc", max_size=8), new=st.text("abc", max_size=8))
def test_what_stays_and_what_is_added_is_what_was_wanted(old, new):
    unwanted, rest = compute_difference(entries(old), messages(new))
    stays = [word for position, word in enumerate(old) if position not in unwanted]
    assert stays + [message.content for message in rest] == list(new)


@pytest.mark.parametrize(
    ("old", "new", "unwanted", "added"),
    [
        ("abc", "abc", [], ""),
        ("abc", "abcd", [], "d"),
        ("abcd", "cd", [0, 1], ""),
        ("abcd", "scd", [0, 1, 2, 3], "scd"),
        ("abc", "", [0, 1, 2], ""),
    ],
)
def test_nothing_is_written_that_is_there_already(old, new, unwanted, added):
    assert compute_difference(entries(old), messages(new)) == (unwanted, messages(added))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a", "text"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)


@patient
@given(form=st.dictionaries(st.sampled_from(["content", "blocks", "name", "role", "x"]), JSON))
def test_a_form_comes_back_equal_whatever_is_understood_of_it(form):
    content = to_content(form.get("content", form.get("blocks")))
    message = keep_form("somewhere", form, {"role": "user", "content": content})
    assert get_form("somewhere", message) == form
    assert get_form("elsewhere", message) is None
    again = ChatMessage.model_validate_json(message.model_dump_json())
    assert get_form("somewhere", again) == form


def test_what_is_in_both_is_stored_once():
    text = "a long text"
    message = keep_form(
        "somewhere", {"content": text, "more": 1}, {"role": "user", "content": text}
    )
    assert message.model_dump_json().count(text) == 1


def test_a_call_without_a_name_gets_none():
    calls = [{"id": "a", "arguments": {}}]
    (parts,) = parse_parts([ChatMessage(role="assistant", tool_calls=calls)])
    assert [call.name for call in parts.calls] == [""]
