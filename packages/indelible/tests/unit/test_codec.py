"""A value reads back equal, or is refused before anything is written; damage is never a value."""

import base64
import datetime as dt
import json
import math
from contextlib import suppress

import pydantic_core
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indelible import (
    ChatMessage,
    CorruptEntryError,
    FormatError,
    Kind,
    LimitError,
    Summary,
    ToolCall,
    ToolResult,
    UsageError,
)
from indelible.core import codec
from indelible.core.codec import decode_row, encode, encode_json, encode_text
from indelible.core.limits import ENTRY_BYTES_MAX, JSON_DEPTH_MAX
from indelible.core.operations import StoredEntry
from indelible.core.plans import append
from indelible.core.plans.read import EntryDecoder

MIB = 1024 * 1024

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), JSON_VALUES, max_size=4)
# Fields of a version that is yet to come.
UNKNOWN = st.dictionaries(
    st.text(max_size=10).map(lambda name: "future_" + name), JSON_VALUES, max_size=3
)
ROLES = st.text(min_size=1, max_size=64)
MESSAGES = st.builds(
    lambda fields, unknown: ChatMessage(**fields, **unknown),
    st.fixed_dictionaries(
        {"role": ROLES, "content": st.none() | st.text() | st.lists(OBJECTS, max_size=3)},
        optional={
            "name": st.none() | st.text(),
            "pinned": st.booleans(),
            "tool_calls": st.none() | st.lists(OBJECTS, max_size=3),
            "tool_call_id": st.none() | st.text(),
            "metadata": OBJECTS,
        },
    ),
    UNKNOWN,
)
CALLS = st.builds(
    lambda unknown, **fields: ToolCall(**fields, **unknown),
    UNKNOWN,
    call_id=st.text(min_size=1),
    name=st.text(),
    arguments=JSON_VALUES,
    metadata=OBJECTS,
)
RESULTS = st.builds(
    lambda unknown, **fields: ToolResult(**fields, **unknown),
    UNKNOWN,
    call_id=st.text(min_size=1),
    content=JSON_VALUES,
    is_error=st.booleans(),
    metadata=OBJECTS,
)
SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)
DOUBLE = st.floats(allow_nan=False, allow_infinity=False)
SUMMARIES = st.builds(
    lambda unknown, **fields: Summary(**fields, **unknown),
    UNKNOWN,
    text=st.text(),
    vector=st.none() | st.lists(SINGLE, max_size=6) | st.lists(DOUBLE, max_size=6),
    embedder=st.none() | st.text(),
    covers=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=3),
    metadata=OBJECTS,
)
VALUES = MESSAGES | CALLS | RESULTS | SUMMARIES


def decode(kind, envelope):
    return decode_row(StoredEntry(7, kind, 0, envelope), session="s")


def read(draft):
    return decode(draft.kind, draft.envelope)


def read_back(value):
    return read(encode(value))


def nested(levels, innermost=1):
    value = innermost
    for _ in range(levels):
        value = [value]
    return value


def sealed(rest):
    """An envelope with a checksum that holds, whatever it says."""
    return b'{"sum":"' + codec.compute_digest(rest) + b'",' + rest


# Reads back equal


@given(VALUES)
@settings(max_examples=400, deadline=None)
def test_every_value_reads_back_equal(value):
    again = read_back(value)
    assert again == value
    assert repr(again) == repr(value), "equal, and of the same types: 1 is not 1.0 is not True"


@given(VALUES)
@settings(deadline=None)
def test_the_stored_form_is_plain_json_that_says_its_version_and_kind(value):
    draft = encode(value)
    fields = json.loads(draft.envelope)
    assert list(fields) == ["sum", "v", str(draft.kind)]
    assert fields["v"] == codec.ENVELOPE_VERSION
    assert codec.parse_checksum(draft.envelope).decode() == fields["sum"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "a\0b",
        "\N{GRINNING FACE}",
        "\N{FAMILY}\N{ZERO WIDTH JOINER}\N{GIRL}",
        "e\N{COMBINING ACUTE ACCENT}",
        "\N{LATIN SMALL LETTER E WITH ACUTE}",
        "\x7f\x80\x9f\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}",
        "\ufeff\uffff\U0010ffff",
        '"\\/</script>',
        "\r\n\t\b\f\v",
    ],
)
def test_any_text_reads_back_letter_by_letter(text):
    assert read_back(ChatMessage(role="user", content=text)).content == text
    assert read(encode_text("user", text)).content == text
    assert read_back(ToolResult(call_id="c", content={text: [text]})).content == {text: [text]}
    assert read_back(Summary(text=text)).text == text


def test_sixteen_mebibytes_of_text_read_back_equal():
    text = "naïve " + '"' * (16 * MIB)
    assert read(encode_text("user", text)).content == text


def test_an_entry_over_the_limit_is_refused():
    with pytest.raises(LimitError) as caught:
        encode_text("user", '"' * (ENTRY_BYTES_MAX // 2))
    assert caught.value.limit == ENTRY_BYTES_MAX
    assert caught.value.actual > ENTRY_BYTES_MAX
    assert str(caught.value.actual) in str(caught.value)


@pytest.mark.parametrize(
    "number",
    [2**53 + 1, -(2**53) - 1, 2**63, 2**64, 2**64 + 1, -(2**64), 10**100, 10**4299],
    ids=lambda number: f"{number:.3e}" if abs(number) < 10**300 else "4300 digits",
)
def test_big_whole_numbers_read_back_to_the_last_digit(number):
    assert read_back(ToolCall(call_id="c", name="f", arguments=number)).arguments == number
    again = read_back(ChatMessage(role="user", content="x", metadata={"n": [number]}))
    assert again.metadata == {"n": [number]}


@pytest.mark.parametrize("digits", [4301, 5000])
def test_a_whole_number_that_could_not_be_read_back_is_refused(digits):
    call = ToolCall(call_id="c", name="f", arguments={"n": 10 ** (digits - 1)})
    with pytest.raises(UsageError):
        encode(call)
    with pytest.raises(UsageError):
        encode_json({"n": 10 ** (digits - 1)}, what="metadata")


@pytest.mark.parametrize("number", [-0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e22, 1.0, 1e-7])
def test_numbers_with_a_point_read_back_with_every_bit(number):
    again = read_back(ToolResult(call_id="c", content=number)).content
    assert (type(again), repr(again)) == (float, repr(number))


def test_nested_tool_arguments_read_back_equal():
    arguments = {
        "where": {"and": [{"city": "Zürich"}, {"not": {"open": None}}]},
        "limit": 10,
        "exact": True,
        "": [[], {}, [[]], {"": ""}],
    }
    assert read_back(ToolCall(call_id="c", name="f", arguments=arguments)).arguments == arguments


def test_arguments_as_deep_as_allowed_read_back_equal():
    call = ToolCall(call_id="c", name="f", arguments=nested(JSON_DEPTH_MAX))
    assert read_back(call) == call
    inner = nested(JSON_DEPTH_MAX - 2)
    message = ChatMessage(role="tool", content=[{"x": inner}], metadata={"y": inner})
    assert read_back(message) == message


@given(VALUES)
@settings(deadline=None)
def test_unknown_fields_survive_reading_and_writing_again(value):
    draft = encode(value)
    assert encode(read(draft)) == draft


def test_fields_of_a_later_version_are_kept_and_written_back():
    rest = b'"v":1,"message":{"role":"user","content":"x","mood":{"joy":[0.5,null]},"seen":true}}'
    message = decode(Kind.MESSAGE, sealed(rest))
    assert message.mood == {"joy": [0.5, None]}
    assert encode(message).envelope == sealed(rest)


# The shortcut for plain text


@given(
    ROLES,
    st.text(st.characters(codec="utf-8") | st.characters(max_codepoint=0x9F), max_size=40),
)
@example("user", "".join(map(chr, range(0x100))))
@example("system", "be kind")
@example("developer", "")
@settings(max_examples=300, deadline=None)
def test_the_shortcut_writes_the_bytes_that_the_model_would(role, text):
    message = ChatMessage(role=role, content=text)
    assert encode_text(role, text) == encode(message)
    body = message.model_dump_json(exclude_defaults=True).encode()
    assert encode_text(role, text).envelope == sealed(b'"v":1,"message":' + body + b"}")


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_shortcut_keeps_what_trim_must_keep(role):
    assert encode_text(role, "be kind").keep
    assert not encode_text("user", "be kind").keep


# Refused before anything is written

UNSTORABLE = [
    pytest.param(math.nan, id="nan"),
    pytest.param(math.inf, id="inf"),
    pytest.param(-math.inf, id="-inf"),
    pytest.param(b"bytes", id="bytes"),
    pytest.param(bytearray(b"bytes"), id="bytearray"),
    pytest.param(dt.datetime(2024, 2, 29, tzinfo=dt.UTC), id="datetime"),
    pytest.param(dt.date(2024, 2, 29), id="date"),
    pytest.param((1, 2), id="tuple"),
    pytest.param({1, 2}, id="set"),
    pytest.param(frozenset({"a"}), id="frozenset"),
    pytest.param({1: "one"}, id="int key"),
    pytest.param({None: "none"}, id="None key"),
    pytest.param({("a", "b"): 1}, id="tuple key"),
    pytest.param(1j, id="complex"),
    pytest.param("a\ud800b", id="lone surrogate"),
    pytest.param({"\udfff": 1}, id="lone surrogate in a key"),
]


def innermost(value):
    """The part of a value that an error must show, as it shows it."""
    return repr(next(iter(value)) if isinstance(value, dict) else value)


@pytest.mark.parametrize("value", UNSTORABLE)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"a": [{"b": v}]}])
def test_what_json_would_change_is_refused_and_shown(value, wrap):
    for build in (
        lambda: append.build_tool_call("c", "f", wrap(value), None),
        lambda: append.build_tool_result("c", wrap(value), False, None),
        lambda: append.build_message("user", "x", metadata={"m": wrap(value)}),
        lambda: append.build_messages([{"role": "user", "content": "x", "future": wrap(value)}]),
        lambda: encode_json({"m": wrap(value)}, what="metadata"),
    ):
        with pytest.raises(UsageError) as caught:
            build()
        assert innermost(value) in str(caught.value)


@pytest.mark.parametrize("value", UNSTORABLE)
def test_what_was_put_into_a_message_after_it_was_made_is_refused_too(value):
    message = ChatMessage(
        role="user",
        content=[{"type": "text"}],
        metadata={"list": []},
        tool_calls=[{"id": "c"}],
        future=[1],
    )
    for spoilt in (
        lambda twin: twin.metadata.update(new=value),
        lambda twin: twin.metadata["list"].append(value),
        lambda twin: twin.content[0].update(text=value),
        lambda twin: twin.tool_calls[0].update(args=value),
        lambda twin: twin.future.append(value),
    ):
        twin = message.model_copy(deep=True)
        spoilt(twin)
        with pytest.raises(UsageError) as caught:
            encode(twin)
        assert innermost(value) in str(caught.value)


@pytest.mark.parametrize("name", ["vector", "covers"])
def test_a_field_of_a_message_is_checked_whatever_its_name(name):
    with pytest.raises(UsageError):
        encode(ChatMessage(role="user", content="x", **{name: math.nan}))
    message = ChatMessage(role="user", content="x", **{name: [1]})
    message.model_extra[name].append(b"bytes")
    with pytest.raises(UsageError):
        encode(message)


@pytest.mark.parametrize(
    "update",
    [{"role": ""}, {"role": "x" * 65}, {"content": 5}, {"name": 5}, {"metadata": None}],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_a_copy_that_no_reader_would_take_is_refused(update):
    message = ChatMessage(role="user", content="x").model_copy(update=update)
    with pytest.raises(UsageError):
        encode(message)


def test_metadata_that_contains_itself_is_refused():
    message = ChatMessage(role="user", content="x", metadata={"a": []})
    message.metadata["a"].append(message.metadata)
    with pytest.raises(LimitError) as caught:
        encode(message)
    assert caught.value.limit == JSON_DEPTH_MAX


@pytest.mark.parametrize("levels", [JSON_DEPTH_MAX + 1, 200, 300])
def test_what_is_nested_too_deep_is_refused(levels):
    with pytest.raises(UsageError):
        append.build_tool_call("c", "f", nested(levels), None)
    with pytest.raises(LimitError) as caught:
        encode_json(nested(levels), what="metadata")
    assert caught.value.limit == JSON_DEPTH_MAX
    assert str(JSON_DEPTH_MAX) in str(caught.value)


def test_what_is_nested_deeper_than_python_can_print_is_refused():
    message = ChatMessage(role="user", content="x", metadata={"a": []})
    message.metadata["a"].append(nested(20_000))
    with pytest.raises(LimitError):
        encode(message)
    with pytest.raises(UsageError):
        append.build_tool_call("c", "f", nested(20_000), None)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda bad: encode_text("user", bad), id="text"),
        pytest.param(lambda bad: encode_text(bad, "x"), id="role"),
        pytest.param(lambda bad: append.build_message("user", bad), id="content"),
        pytest.param(lambda bad: append.build_tool_call(bad, "f", None, None), id="call id"),
        pytest.param(lambda bad: append.build_tool_call("c", bad, None, None), id="tool name"),
    ],
)
def test_a_lone_surrogate_is_refused_wherever_it_stands(build):
    with pytest.raises(UsageError) as caught:
        build("half \ud83d emoji")
    assert r"\ud83d" in str(caught.value)


@pytest.mark.parametrize("content", [b"bytes", bytearray(b"bytes"), 5, 1.5, object(), {"a": 1}])
def test_content_that_is_neither_text_nor_blocks_is_refused(content):
    with pytest.raises(UsageError):
        append.build_message("user", content, metadata={})


@pytest.mark.parametrize("value", [None, "text", 5, {"role": "user"}, object()])
def test_only_the_four_kinds_of_entry_can_be_held(value):
    with pytest.raises(UsageError) as caught:
        encode(value)
    assert repr(value)[:20] in str(caught.value)


def test_a_subclass_of_a_message_is_refused_since_it_would_read_back_as_another_class():
    class MyMessage(ChatMessage):
        mood: str = "fine"

    with pytest.raises(UsageError):
        encode(MyMessage(role="user", content="x"))


@given(st.text(st.characters(), max_size=5), OBJECTS)
@settings(deadline=None)
def test_an_error_never_prints_a_page(text, metadata):
    huge = {**metadata, "x": "y" * 100_000, "t": text}
    assert len(codec.format_value(huge)) <= 120


# Vectors


@given(st.lists(SINGLE, max_size=20))
@settings(deadline=None)
def test_a_single_precision_vector_is_stored_in_four_bytes_each_and_reads_back_equal(numbers):
    summary = Summary(text="t", vector=numbers)
    packed = json.loads(encode(summary).envelope)["summary"]["vector"]
    assert list(packed) == ["f32"]
    assert len(base64.b64decode(packed["f32"])) == 4 * len(numbers)
    assert repr(read_back(summary).vector) == repr(tuple(map(float, numbers)))


@given(st.lists(DOUBLE, min_size=1, max_size=20))
@example([0.1])
@example([1e39])
@example([5e-324])
@settings(deadline=None)
def test_a_double_precision_vector_reads_back_with_every_bit(numbers):
    summary = Summary(text="t", vector=[*numbers, 0.1])
    assert list(json.loads(encode(summary).envelope)["summary"]["vector"]) == ["f64"]
    assert repr(read_back(summary).vector) == repr((*numbers, 0.1))


def test_no_vector_and_an_empty_one_are_told_apart():
    assert read_back(Summary(text="t")).vector is None
    assert read_back(Summary(text="t", vector=())).vector == ()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_vector_that_cannot_be_compared_is_refused(number):
    with pytest.raises(UsageError) as caught:
        encode(Summary(text="t", vector=(0.5, number)))
    assert repr(number) in str(caught.value)


@pytest.mark.parametrize(
    "vector",
    [b'{"f32":"AAA="}', b'{"f16":"AAAA"}', b"{}", b"[1.0]", b'{"f32":"AAAAAA==","f64":""}', b"5"],
)
def test_a_damaged_vector_is_a_corrupt_entry(vector):
    envelope = sealed(b'"v":1,"summary":{"text":"t","vector":' + vector + b"}}")
    with pytest.raises(CorruptEntryError):
        decode(Kind.SUMMARY, envelope)


# Damage

SMALL = [
    pytest.param(encode_text("user", "hi"), id="message"),
    pytest.param(encode(ToolCall(call_id="c", name="f", arguments=[1])), id="tool call"),
    pytest.param(encode(ToolResult(call_id="c", content=None)), id="tool result"),
    pytest.param(encode(Summary(text="t", vector=(0.5,), covers=((0, 2),))), id="summary"),
]


def flipped(envelope):
    """Every envelope that differs from this one in one bit."""
    for bit in range(8 * len(envelope)):
        damaged = bytearray(envelope)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(damaged)


@pytest.mark.parametrize("draft", SMALL)
def test_no_flipped_bit_ever_gives_another_value(draft):
    value = read(draft)
    for _, damaged in flipped(draft.envelope):
        with suppress(CorruptEntryError, FormatError):
            assert decode(draft.kind, damaged) == value


@pytest.mark.parametrize("draft", SMALL)
def test_every_flipped_bit_is_noticed(draft):
    unnoticed = []
    for bit, damaged in flipped(draft.envelope):
        try:
            decode(draft.kind, damaged)
        except (CorruptEntryError, FormatError):
            continue
        unnoticed.append(bit)
    assert unnoticed == []


@pytest.mark.parametrize("draft", SMALL)
def test_every_cut_and_every_addition_is_noticed(draft):
    envelope = draft.envelope
    for damaged in (*(envelope[:n] for n in range(len(envelope))), envelope + b" ", envelope * 2):
        with pytest.raises(CorruptEntryError) as caught:
            decode(draft.kind, damaged)
        error = caught.value
        assert (error.session, error.position, error.raw) == ("s", 7, damaged)


@pytest.mark.parametrize("draft", SMALL)
def test_an_entry_is_never_read_as_another_kind(draft):
    for kind in set(Kind) - {draft.kind}:
        with pytest.raises(CorruptEntryError):
            decode(kind, draft.envelope)


@pytest.mark.parametrize("envelope", [b"", SMALL[0].values[0].envelope])
def test_an_entry_of_no_known_kind_is_corrupt(envelope):
    with pytest.raises(CorruptEntryError) as caught:
        decode(None, envelope)
    assert caught.value.raw == envelope


def test_a_newer_envelope_asks_for_an_upgrade():
    for rest in (
        b'"v":2,"message":{"role":"user","content":"x"}}',
        b'"v":99,"thought":"in a form that nobody knows yet"}',
    ):
        with pytest.raises(FormatError, match="newer") as caught:
            decode(Kind.MESSAGE, sealed(rest))
        assert (caught.value.session, caught.value.position) == ("s", 7)


@pytest.mark.parametrize(
    "rest",
    [
        b'"v":0,"message":{"role":"user"}}',
        b'"v":1,"thought":{}}',
        b'"v":"2","message":{"role":"user"}}',
        b'"v":1,"message":{"role":""}}',
        b'"v":1,"message":{"content":"x"}}',
        b'"v":1,"message":[]}',
        b'"v":1,"message":{"role":"user","content":"x"},"more":1}',
        b'"v":1,"message":{"role":"user"',
        b"",
        b"\xff\xfe",
    ],
)
def test_whole_bytes_that_are_no_envelope_of_ours_are_corrupt(rest):
    with pytest.raises(CorruptEntryError):
        decode(Kind.MESSAGE, sealed(rest))


@given(st.binary(max_size=120), st.sampled_from(list(Kind)))
@settings(deadline=None)
def test_foreign_bytes_are_corrupt_and_nothing_else(data, kind):
    with pytest.raises(CorruptEntryError):
        decode(kind, data)
    with pytest.raises(CorruptEntryError):
        decode(kind, sealed(data))


# What trim and the joins must know


def test_the_outline_names_calls_and_answers_in_every_spelling():
    openai = ChatMessage(
        role="assistant", content=None, tool_calls=[{"id": "a"}, {"id": "b"}, {"id": 5}, {}]
    )
    blocks = ChatMessage(
        role="assistant",
        content=[{"type": "tool_use", "id": "c"}, {"type": "text", "id": "no"}, {"id": "no"}],
    )
    answer = ChatMessage(role="tool", content="found", tool_call_id="a")
    block = ChatMessage(role="user", content=[{"type": "tool_result", "tool_use_id": "c"}])
    outlines = [encode(m)[2:5] for m in (openai, blocks, answer, block)]
    assert outlines == [
        (False, ("a", "b"), ()),
        (False, ("c",), ()),
        (False, (), ("a",)),
        (False, (), ("c",)),
    ]
    assert encode(ToolCall(call_id="d", name="f"))[2:5] == (False, ("d",), ())
    assert encode(ToolResult(call_id="d"))[2:5] == (False, (), ("d",))
    assert encode(Summary(text="t"))[2:5] == (True, (), ())


def test_pinned_and_system_messages_are_kept():
    keeps = {
        name: encode(ChatMessage(content="x", **fields)).keep
        for name, fields in {
            "user": {"role": "user"},
            "pinned": {"role": "user", "pinned": True},
            "system": {"role": "system"},
            "developer": {"role": "developer", "metadata": {"a": 1}},
        }.items()
    }
    assert keeps == {"user": False, "pinned": True, "system": True, "developer": True}


@given(OBJECTS)
@settings(deadline=None)
def test_session_metadata_reads_back_equal(metadata):
    again = pydantic_core.from_json(encode_json(metadata, what="metadata"))
    assert repr(again) == repr(metadata)


def a_thousand_rows():
    """Rows of a long session, as an engine gives them."""
    drafts = [encode_text("user", f"message {place}") for place in range(1000)]
    return [StoredEntry(place, each.kind, 0, each.envelope) for place, each in enumerate(drafts)]


def test_many_rows_read_back_in_order():
    values = EntryDecoder("s").decode_all(a_thousand_rows())
    assert [value.content for value in values] == [f"message {place}" for place in range(1000)]


def test_a_row_that_cannot_be_read_is_an_error_that_names_it():
    rows = a_thousand_rows()
    rows[900] = rows[900]._replace(envelope=b"nothing")
    with pytest.raises(CorruptEntryError, match="entry 900"):
        EntryDecoder("s").decode_all(rows)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (5, "content cannot be stored: Input should be a valid string or .* a valid list: 5"),
        (["a"], r"content cannot be stored: .* valid string or .* valid dictionary: \['a'\]"),
    ],
)
def test_what_fits_no_type_of_a_field_is_refused_with_all_of_them(content, why):
    with pytest.raises(UsageError, match=f"^{why}$") as caught:
        append.build_message("user", content)
    assert caught.value.path == "content"
