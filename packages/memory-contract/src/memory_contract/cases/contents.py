"""Messages as they are, for what the checker cannot see: contents that carry no id."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from functools import partial
from typing import Any, Final, NoReturn

from memory_contract.adapter import Message
from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, Client
from memory_contract.entries import parse_ids
from memory_contract.history import Ids
from memory_contract.results import RAISED

RoleContent = tuple[Any, Any]
# How long to wait for a write that may come late.
LATE_S: Final = 1.0
LOOK_AGAIN_S: Final = 0.01
# A store may refuse larger limits of a read.
LIMIT_MAX: Final = 100
# Characters of a list of entries in a proof.
PROOF_MAX: Final = 300
# What is as long as this, and ends too early, was cut off.
CUT: Final = 1000


def build_batch(context: CaseContext, content: Any, **fields: Any) -> list[Message]:
    """The smallest batch that the store takes with this content: one message, or one turn."""
    return complete_turn(context, {"role": "user", "content": content, **fields}, content)


def complete_turn(context: CaseContext, message: Message, answer: Any = "I see.") -> list[Message]:
    """The message, with an answer where a store takes only turns."""
    turn = [message, {"role": "assistant", "content": answer}]
    return turn if context.adapter.pairs else [message]


def to_role_content(messages: Iterable[Any]) -> list[RoleContent]:
    """Role and content of messages, without what a store adds."""
    return [
        (each.get("role"), each.get("content")) if isinstance(each, dict) else ("", each)
        for each in messages
    ]


def expect_there(store: Client, session: str, expected: Sequence[Message], what: str) -> None:
    """Expect that what was acknowledged can be read at once."""
    seen, told = (
        to_role_content(store.get(session)),
        to_role_content(store.context.keep_newest(expected)),
    )
    rest = iter(told)
    # Messages are missing, and nothing else is wrong.
    if len(seen) < len(told) and all(any(one == two for two in rest) for one in seen):
        fail_missing(store, session, told, "lost append", f"{what} does not come back")


def fail_missing(
    store: Client, session: str, told: list[RoleContent], name: str, proof: str
) -> NoReturn:
    """Fail because of acknowledged messages that are missing, or that appear after a while."""
    began = time.monotonic()
    while time.monotonic() - began < LATE_S:
        if to_role_content(store.get(session)) == told:
            late = "what was acknowledged is missing in the next read, and there in a later one"
            store.context.fail("late write", f"{late}: {proof}", session=session)
        time.sleep(LOOK_AGAIN_S)
    store.context.fail(name, proof, session=session)


def expect_equal(store: Client, session: str, expected: Sequence[Message], what: str) -> None:
    """Expect that a session shows exactly these messages."""
    context = store.context
    seen, told = to_role_content(store.get(session)), to_role_content(context.keep_newest(expected))
    counts = f"{what}: of {len(told)} acknowledged messages {len(seen)} came back"
    if len(seen) < len(told):
        fail_missing(store, session, told, "lost message", counts)
    context.expect(len(seen) == len(told), "strange message", counts, session=session)
    for one, two in zip(told, seen, strict=True):
        if not is_same(one, two):
            (_, said), (_, back) = one, two
            cut = len(str(back)) >= CUT and str(said).startswith(str(back))
            name = "truncated content" if cut else "changed content"
            proof = f"{what}: {format_value(said)} came back as {format_value(back)}"
            context.fail(name, proof, session=session)


def expect_newest(store: Client, session: str, everything: Ids, limit: int) -> None:
    """Expect that a read with a limit shows the newest entries.

    A limit of nothing, and one that is large, may be refused.
    """
    context = store.context
    try:
        # Not recorded: to the checker, what a limit leaves out wrongly is lost.
        seen = parse_ids(store.get(session, limit=limit))
    except Exception as error:
        if 0 < limit <= LIMIT_MAX:
            raise
        context.note(f"a limit of {limit} is refused ({format_error(error)})")
        return
    expected = everything[max(0, len(everything) - limit) :]
    wanted, back = (format_value(" ".join(ids), PROOF_MAX) for ids in (expected, seen))
    proof = f"the newest {limit} of {len(everything)} entries are {wanted}, and {back} came back"
    context.expect(seen == expected, "wrong limit", proof, session=session)


def expect_listed(store: Client, written: Iterable[str]) -> None:
    """Expect that exactly these sessions are listed, each once."""
    context, written, listed = store.context, list(written), list(store.ask("sessions"))
    missing = format_value([name for name in written if name not in listed])
    strange = format_value([name for name in listed if name not in written])
    twice = format_value([name for name in written if listed.count(name) > 1])
    proof = f"{missing}: written to, and not among the {len(listed)} listed"
    context.expect(missing == "[]", "unlisted session", proof)
    context.expect(twice == "[]", "listed twice", f"{twice} stands twice in the list")
    context.expect(strange == "[]", "strange session", f"{strange} is listed; nobody wrote to it")


def is_same(one: Any, two: Any) -> bool:
    """Whether two values are equal in value and type, all the way down: True is not 1."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(is_same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(is_same, one, two))
    return bool(one == two)


def try_put(store: Client, session: str, batch: Sequence[Message], what: str) -> bool:
    """Whether the store took a batch; if it refused, nothing of it may be there."""
    before = store.get(session)
    try:
        store.put(session, *batch)
    except Exception as error:  # noqa: BLE001 -- whatever is raised refuses
        refused = f"{what} was refused ({format_error(error)}), and "
        try:
            after = store.get(session)
        except Exception as again:  # noqa: BLE001 -- it must not break what comes after
            proof = refused + f"a read of {session} then raised {format_error(again)}"
            store.context.fail(RAISED, proof, session=session)
        proof = refused + f"the session shows {len(after)} messages where it showed {len(before)}"
        kept = to_role_content(after) == to_role_content(before)
        store.context.expect(kept, "refused and changed", proof, session=session)
        return False
    return True


def format_value(value: Any, width: int = 60) -> str:
    """A value for a proof, shortened."""
    text = ascii(value)
    length = len(value if isinstance(value, str) else text)
    return text if len(text) <= width else f"{text[: width - 20]}... ({length} characters)"


CHANGED: Final = "changed"
# The names under which messages and turns keep their text.
SAID: Final = ("role", "content", "human", "ai")


def overwrite_deeply(value: Any, seen: set[int] | None = None) -> None:
    """Overwrite a value recursively: lists, dicts, and messages that are objects.

    Immutable objects are left as they are.
    """
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type):
        return
    seen.add(id(value))
    if isinstance(value, list | tuple):
        for item in value:
            overwrite_deeply(item, seen)
        if isinstance(value, list):
            # Add items, whatever they are.
            value += value[:2] or [{"role": "user", "content": "slipped in"}]
    elif isinstance(value, dict):
        for key, item in list(value.items()):
            overwrite_deeply(item, seen)
            if isinstance(item, str):
                value[key] = CHANGED
        value["more"] = CHANGED
    elif is_dataclass(value) or any(hasattr(value, name) for name in SAID):
        overwrite_deeply(tuple(getattr(value, "__dict__", {}).values()), seen)
        for name in filter(partial(hasattr, value), SAID):
            with contextlib.suppress(Exception):
                setattr(value, name, CHANGED)
