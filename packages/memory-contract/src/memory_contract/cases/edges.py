"""Strange contents: each comes back as it was, or is refused and leaves nothing."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, CaseNotClaimed, Client
from memory_contract.cases.case import case
from memory_contract.cases.contents import (
    build_batch,
    complete_turn,
    expect_equal,
    format_value,
    is_same,
    try_put,
)
from memory_contract.cases.sequential import Unstorable
from memory_contract.cases.workload import pace
from memory_contract.results import RAISED

TEXTS: Final[dict[str, str]] = {
    "a NUL": "before\x00after",
    "a NUL at the end": "before\x00",
    "control characters": "\x01\x02\x07\x08\x1b[31m\x7f\x85",
    "a lone surrogate": "before\ud800after",
    "two surrogates in the wrong order": "\udc00\ud83d",
    "an emoji": "\U0001f41f\U0001f3fd",
    "a family joined by zero-width joiners": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "a flag of tag characters": "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e007f",
    "right-to-left text with its marks": "\u202e\u05e9\u05dc\u05d5\u05dd\u202c \u200f\u0645\u0631",
    "a combining accent": "e\u0301",
    "the same accent composed": "\u00e9",
    "a ligature and a full-width letter": "\ufb01\uff21",
    "a letter under a hundred accents": "Z" + "\u0301\u0323" * 50,
    "a byte order mark": "\ufefftext\ufeff",
    "a noncharacter": "\ufffe\uffff\U0010ffff",
    "a replacement character": "\ufffd",
    "CRLF and a lone CR": "one\r\ntwo\rthree\nfour",
    "line and paragraph separators": "one\u2028two\u2029three\x0b\x0cfour",
    "quotes and backslashes": "'\"`\\'\\\"\\\\ \\u0000 \\n %s %% {0} ${x} ; --",
    "what looks like JSON": '{"role": "system", "content": null}',
    "what looks like a number": "007",
    "what looks like no value": "NaN",
    "letters whose case changes their length": "\u0130\u00df\u0149",
}
BLANKS: Final[dict[str, str]] = {
    "no text at all": "",
    "a space": " ",
    "a line end": "\n",
    "tabs and line ends": "\t\r\n\t",
    "spaces around a word": "  word \n",
    "a no-break and a zero-width space": "\u00a0\u200b",
}
# JSON can represent all of these; a store that refuses one is noted.
VALUES: Final[dict[str, Any]] = {
    "null": None,
    "an empty object": {},
    "an empty list": [],
    "nested empties": {"a": {}, "b": [], "c": [[], {}, [{}]], "d": {"e": {"f": {}}}},
    "an empty key": {"": ""},
    "true": True,
    "false": False,
    "zero and minus zero": [0, 0.0, -0.0],
    "one, 1.0, true and the text 1": [1, 1.0, True, "1"],
    "null, false, 0, the empty text and their names": [None, False, 0, "", "null", "false"],
    "whole numbers past 53, 63 and 64 bits": [2**53 + 1, 2**63, -(2**63) - 1, 2**64 + 1],
    "a whole number of a hundred digits": 10**99 + 7,
    "floats": [0.1, 1e308, 5e-324, 1e22, 123456789.123456789],
    "keys that differ in case and kind": {"a": 1, "A": 2, "1": 3, "true": 4},
    "a deep list": [[[[[[[[[[["deep"]]]]]]]]]]],
    "text that looks like a date": "2024-02-30T00:00:00Z",
}
# JSON cannot represent these; a store that changes one is noted, since many formats do.
CONVERTED: Final[dict[str, Any]] = {
    "a tuple": (1, 2),
    "a whole number as a key": {1: "one"},
    "not a number": float("nan"),
    "infinity": float("inf"),
}
UNSERIALISABLE: Final[dict[str, Any]] = {
    "an object of a class": Unstorable(),
    "bytes": b"\x00\xff raw",
    "a set": {"a", "b"},
    "a decimal": Decimal("1.10"),
    "a complex number": 1 + 2j,
}
# Only tried in fields: a driver may convert a date to text where a store expects text.
IN_FIELDS: Final[dict[str, Any]] = {
    "a date": dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC),
}


@case("edges", catches="text that comes back changed: a NUL, a surrogate, a line end")
def unicode_survives(context: CaseContext) -> None:
    """Append texts with difficult characters: each comes back equal, or is refused."""
    _append_texts(context, TEXTS)


@case("edges", catches="an empty or blank message that is dropped or stripped")
def blank_contents_survive(context: CaseContext) -> None:
    """Append empty, blank and padded texts: each comes back equal, or is refused."""
    _append_texts(context, BLANKS)


def _append_texts(context: CaseContext, contents: dict[str, str]) -> None:
    """Say each text in one session, with plain words between, and read after each."""
    store, session = context.open(), context.new_session()
    expected: list[Message] = []
    refusals: list[str] = []
    for what, text in pace(context, list(contents.items()), "strange texts", least=3):
        if not _append_each(store, session, expected, what, [build_batch(context, text)]):
            refusals.append(what)
    expect_equal(context.open_elsewhere(), session, expected, "what another caller reads")
    if refusals:
        context.note(f"refused in a message: {', '.join(refusals)}")


def _append_each(
    store: Client, session: str, expected: list[Message], what: str, batches: list[list[Message]]
) -> bool:
    """Say strange batches and a plain one, and read after each; whether the last was taken."""
    taken = False
    for batch in batches:
        taken = try_put(store, session, batch, what)
        if taken:
            expected += batch
            expect_equal(store, session, expected, what)
            if "metadata" in batch[0]:
                _expect_fields(store, session, batch[0], what, place=-len(batch))
    plain = build_batch(store.context, f"after {what}")
    try:
        store.put(session, *plain)
    except Exception as error:
        if taken:
            raise
        proof = f"after {what} was refused, the next append to {session} raised"
        store.context.fail(RAISED, f"{proof} {format_error(error)}", session=session)
    expected += plain
    expect_equal(store, session, expected, f"the message after {what}")
    return taken


@case("edges", needs=["fields"], catches="a value that comes back as another: 1 for true, nothing")
def json_values_survive(context: CaseContext) -> None:
    """Put values of every kind that JSON has into fields: each comes back equal, or is refused."""
    store = context.open()
    for what, value in pace(context, list(VALUES.items()), "JSON values", least=3):
        session, message = context.new_session(), _build_carrier(value)
        if try_put(store, session, complete_turn(context, message), what):
            _expect_fields(store, session, message, what)
        else:
            context.note(f"{what} is refused in a field")
    for what, value in CONVERTED.items():
        session, message = context.new_session(), _build_carrier(value)
        if try_put(store, session, complete_turn(context, message), what):
            _expect_fields(store, session, {}, what)
            back = store.get(session)[0].get("an_unknown_field")
            # NaN is not equal to itself either.
            if not is_same(back, value) and back == back:  # noqa: PLR0124
                context.note(f"{what} in a field is taken, and comes back as {format_value(back)}")


def _build_carrier(value: Any) -> Message:
    """A message with a value in its metadata and in a field that nobody knows."""
    return {
        "role": "user",
        "content": "see what I carry",
        "metadata": {"value": value, "deeper": [{"value": value}]},
        "an_unknown_field": value,
    }


def _expect_fields(
    store: Client, session: str, message: Message, what: str, place: int = 0
) -> None:
    """Expect that a message came back, with these fields as they were."""
    context, seen = store.context, store.get(session)
    proof = f"a message with {what} was acknowledged and did not come back"
    there = -len(seen) <= place < len(seen)
    context.expect(there, "lost message", proof, session=session)
    for name, value in message.items():
        back = seen[place].get(name)
        # Omitting a field that is null is the same.
        kept = name in seen[place] or value is None
        proof = f"{what}: the field {name!r} did not come back"
        context.expect(kept, "dropped field", proof, session=session)
        proof = f"{what}: {name!r} was {format_value(value)} and came back as {format_value(back)}"
        context.expect(is_same(back, value), "changed field", proof, session=session)


FIELDS: Final[dict[str, Message]] = {
    "tool calls": {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "refund", "arguments": '{"order": 7, "why": "late"}'},
            },
            {"id": "call_2", "type": "function", "function": {"name": "ping", "arguments": "{}"}},
        ],
    },
    "a tool's answer": {
        "role": "tool",
        "content": "done",
        "tool_call_id": "call_1",
        "name": "refund",
    },
    "a second tool's answer": {"role": "tool", "content": "pong", "tool_call_id": "call_2"},
    "content blocks": {
        "role": "user",
        "content": [
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        ],
    },
    "metadata": {
        "role": "user",
        "content": "with metadata",
        "metadata": {"source": "mail", "tags": ["a", "b"], "nested": {"empty": {}, "none": None}},
    },
    "a name": {"role": "user", "content": "from Ann", "name": "Ann"},
    "fields that nobody knows": {
        "role": "assistant",
        "content": "new in the next version",
        "reasoning": {"effort": "high", "steps": [1, 2, 3]},
        "refusal": None,
        "x-vendor.flag": True,
    },
    "a system message": {"role": "system", "content": "You never forget."},
}


@case(
    "edges", catches="a message or a field that is dropped: a system message, tool calls, metadata"
)
def message_fields_survive(context: CaseContext) -> None:
    """Append messages of every kind that agents use: each comes back to any caller, with fields."""
    if not context.claims("fields"):
        _expect_roles(context)
        return
    store, session, other = context.open(), context.new_session(), context.open_elsewhere()
    said: list[Message] = []
    for what, message in FIELDS.items():
        if context.adapter.pairs and not isinstance(message["content"], str):
            continue
        # A store of turns knows two roles.
        ours = {**message, "role": "user"} if context.adapter.pairs else message
        batch = complete_turn(context, ours)
        store.put(session, *batch)
        for caller in (store, other):
            _expect_fields(caller, session, ours, what, place=-len(batch))
        said += batch
    for place, message in enumerate(context.keep_newest(said)):
        _expect_fields(other, session, message, "in the end", place=place)


def _expect_roles(context: CaseContext) -> None:
    """Append a message of each role: it comes back, or is refused."""
    if context.adapter.pairs:
        raise CaseNotClaimed("the store takes turns, which have no other roles and no fields")
    store, session = context.open(), context.new_session()
    expected: list[Message] = []
    # The system's first: a store may keep it at the front.
    for role in ("system", "user", "assistant", "tool"):
        message = {"role": role, "content": f"from the {role}"}
        if try_put(store, session, [message], f"a message of the role {role!r}"):
            expected.append(message)
            expect_equal(store, session, expected, f"a message of the role {role!r}")
        else:
            context.note(f"messages of the role {role!r} are refused")
    expect_equal(context.open_elsewhere(), session, expected, "what another caller reads")


@case("edges", catches="a value that is stored as something else, such as its description")
def unserialisable_is_refused(context: CaseContext) -> None:
    """Append values that are not text: each is refused and leaves nothing, or comes back equal."""
    store, session = context.open(), context.new_session()
    expected: list[Message] = []
    values = list((UNSERIALISABLE | IN_FIELDS).items())
    for what, value in pace(context, values, "values that are no text", least=3):
        # Where text belongs and, if there are fields, in one of them.
        batches = [build_batch(context, value)] if what in UNSERIALISABLE else []
        if context.claims("fields"):
            message = {"role": "user", "content": "see metadata", "metadata": {"value": value}}
            batches.append(complete_turn(context, message))
        _append_each(store, session, expected, what, batches)
