"""Messages as they are, for what the checker cannot see: contents that carry no id."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from memory_contract.adapter import Message
from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext
from memory_contract.client import Client

Spoken = tuple[Any, Any]
# How long somebody waits to tell what comes late from what never comes.
LATE_S: Final = 1.0
LOOK_AGAIN_S: Final = 0.01


def saying(context: CaseContext, content: Any) -> list[Message]:
    """The smallest batch that the store takes with this content: one message, or one turn."""
    roles = ("user", "assistant") if context.adapter.pairs else ("user",)
    return [{"role": role, "content": content} for role in roles]


def spoken(messages: Iterable[Any]) -> list[Spoken]:
    """Who said what; whatever else a store adds to a message is its own affair."""
    return [_spoken(message) for message in messages]


def _spoken(message: Any) -> Spoken:
    return (
        (message.get("role"), message.get("content"))
        if isinstance(message, dict)
        else ("", message)
    )


def expect_there(
    context: CaseContext, store: Client, session: str, expected: Sequence[Message], what: str
) -> None:
    """Hold a store to this first: what it acknowledged is there at all, and at once."""
    seen, told = spoken(store.get(session)), spoken(expected)
    if not lacks(seen, told):
        return
    if comes_late(store, session, expected):
        proof = (
            f"{what} was acknowledged, a read right after it did not show it, and a later one did"
        )
        context.fail("late write", proof, session=session)
    context.fail("lost append", f"{what} was acknowledged and does not come back", session=session)


def lacks(seen: Sequence[Spoken], told: Sequence[Spoken]) -> bool:
    """Whether some of it is missing, and nothing else is wrong."""
    rest = iter(told)
    return len(seen) < len(told) and all(any(one == two for two in rest) for one in seen)


def comes_late(store: Client, session: str, expected: Sequence[Message]) -> bool:
    """Whether what did not show shows after a while."""
    began = time.monotonic()
    while time.monotonic() - began < LATE_S:
        if spoken(store.get(session)) == spoken(expected):
            return True
        time.sleep(LOOK_AGAIN_S)
    return False


def same(one: Any, two: Any) -> bool:
    """Whether two values are equal in value and type, all the way down: True is not 1."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


def taken(
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
            spoken(after) == spoken(before),
            "refused and changed",
            f"{what} was refused ({format_error(error)}), and yet the session shows {len(after)} "
            f"messages where it showed {len(before)}",
            session=session,
        )
        return False
    return True


def refused(store: Client, method: str, *arguments: Any, **options: Any) -> bool:
    """Whether a call of the handle raises."""
    try:
        store.ask(method, *arguments, **options)
    except Exception:  # noqa: BLE001 -- whatever is raised refuses
        return True
    return False


def shown(value: Any, width: int = 60) -> str:
    """A value in a proof: enough to know it by."""
    text = ascii(value)
    return text if len(text) <= width else f"{text[: width - 20]}... ({len(text)} characters)"
