"""Messages as they are, for what the checker cannot see: contents that carry no id."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, Client

Spoken = tuple[Any, Any]
# How long to wait for a write that may come late.
LATE_S: Final = 1.0
LOOK_AGAIN_S: Final = 0.01
LATE: Final = "was acknowledged, a read right after it did not show it, and a later one did"
# What is as long as this, and ends too early, was cut off.
CUT: Final = 1000


def build_batch(context: CaseContext, content: Any) -> list[Message]:
    """The smallest batch that the store takes with this content: one message, or one turn."""
    roles = ("user", "assistant") if context.adapter.pairs else ("user",)
    return [{"role": role, "content": content} for role in roles]


def to_spoken(messages: Iterable[Any]) -> list[Spoken]:
    """Role and content of messages, without what a store adds."""
    return [
        (each.get("role"), each.get("content")) if isinstance(each, dict) else ("", each)
        for each in messages
    ]


def expect_there(
    context: CaseContext, store: Client, session: str, expected: Sequence[Message], what: str
) -> None:
    """Expect that what was acknowledged can be read at once."""
    expected = context.keep_newest(expected)
    seen, told = to_spoken(store.get(session)), to_spoken(expected)
    if not is_incomplete(seen, told):
        return
    if appears_late(store, session, expected):
        context.fail("late write", f"{what} {LATE}", session=session)
    context.fail("lost append", f"{what} was acknowledged and does not come back", session=session)


def expect_equal(
    context: CaseContext, store: Client, session: str, expected: Sequence[Message], what: str
) -> None:
    """Expect that a session shows exactly these messages."""
    seen, told = to_spoken(store.get(session)), to_spoken(context.keep_newest(expected))
    if is_same(seen, told):
        return
    if len(seen) < len(told) and appears_late(store, session, context.keep_newest(expected)):
        context.fail("late write", f"{what} {LATE}", session=session)
    if len(seen) != len(told):
        context.fail(
            "lost message" if len(seen) < len(told) else "strange message",
            f"{what}: of {len(told)} acknowledged messages {len(seen)} came back",
            session=session,
        )
    (_, said), (_, back) = next(
        (one, two) for one, two in zip(told, seen, strict=True) if not is_same(one, two)
    )
    is_cut = len(str(back)) >= CUT and str(said).startswith(str(back))
    context.fail(
        "truncated content" if is_cut else "changed content",
        f"{what}: {shown(said)} came back as {shown(back)}",
        session=session,
    )


def expect_listed(context: CaseContext, store: Client, written: Iterable[str]) -> None:
    """Expect that exactly these sessions are listed, each once."""
    written, listed = list(written), list(store.ask("sessions"))
    missing = [name for name in written if name not in listed]
    strange = [name for name in listed if name not in written]
    twice = [name for name in written if listed.count(name) > 1]
    context.expect(
        not missing,
        "unlisted session",
        f"{shown(missing)}: written to, and not among the {len(listed)} listed",
    )
    context.expect(not twice, "listed twice", f"{shown(twice)} stands twice in the list")
    context.expect(
        not strange, "strange session", f"{shown(strange)} is listed; nobody wrote to it"
    )


def is_incomplete(seen: Sequence[Spoken], told: Sequence[Spoken]) -> bool:
    """Whether messages are missing, and nothing else is wrong."""
    rest = iter(told)
    return len(seen) < len(told) and all(any(one == two for two in rest) for one in seen)


def appears_late(store: Client, session: str, expected: Sequence[Message]) -> bool:
    """Whether the expected messages appear after a while."""
    began = time.monotonic()
    while time.monotonic() - began < LATE_S:
        if to_spoken(store.get(session)) == to_spoken(expected):
            return True
        time.sleep(LOOK_AGAIN_S)
    return False


def is_same(one: Any, two: Any) -> bool:
    """Whether two values are equal in value and type, all the way down: True is not 1."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(is_same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(is_same, one, two))
    return bool(one == two)


def try_put(
    context: CaseContext,
    store: Client,
    session: str,
    batch: Sequence[Message],
    what: str,
    **options: Any,
) -> bool:
    """Whether the store took a batch; if it refused, nothing of it may be there."""
    before = store.get(session)
    try:
        store.put(session, *batch, **options)
    except Exception as error:  # noqa: BLE001 -- whatever is raised refuses
        after = store.get(session)
        context.expect(
            to_spoken(after) == to_spoken(before),
            "refused and changed",
            f"{what} was refused ({format_error(error)}), and yet the session shows {len(after)} "
            f"messages where it showed {len(before)}",
            session=session,
        )
        return False
    return True


def shown(value: Any, width: int = 60) -> str:
    """A value for a proof, shortened."""
    text = ascii(value)
    return text if len(text) <= width else f"{text[: width - 20]}... ({len(text)} characters)"


CHANGED: Final = "changed"
# The names under which messages and turns keep their text.
SAID: Final = ("role", "content", "human", "ai")


def scribble(value: Any, seen: set[int] | None = None) -> None:
    """Overwrite a value recursively: lists, dicts, and messages that are objects.

    Immutable objects are left as they are.
    """
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, list | tuple):
        for item in value:
            scribble(item, seen)
        if isinstance(value, list):
            # Add items, whatever they are.
            value += value[:2] or [{"role": "user", "content": "slipped in"}]
    elif isinstance(value, dict):
        _scribble_dict(value, seen)
    elif not isinstance(value, type) and (
        is_dataclass(value) or any(hasattr(value, name) for name in SAID)
    ):
        _scribble_object(value, seen)


def _scribble_dict(value: dict[Any, Any], seen: set[int]) -> None:
    for key, item in list(value.items()):
        if isinstance(item, str):
            value[key] = CHANGED
        else:
            scribble(item, seen)
    value["more"] = CHANGED


def _scribble_object(value: Any, seen: set[int]) -> None:
    for item in list(getattr(value, "__dict__", {}).values()):
        scribble(item, seen)
    for name in SAID:
        if hasattr(value, name):
            with contextlib.suppress(Exception):
                setattr(value, name, CHANGED)
