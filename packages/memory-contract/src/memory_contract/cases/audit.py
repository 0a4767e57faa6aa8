"""Audits: a line for each change of a session, in a chain of keyed hashes.

The chain is edited as somebody would who can write to the database and does not have the key. Each
handle is asked for an audit before anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.interruption import Interruption
from memory_contract.entries import build_messages

Line = dict[str, Any]


def _expect_audit(
    client: Client, session: str, count: int, after: str, head: str | None = None
) -> list[Line]:
    """Expect so many lines, and a chain that holds; the lines."""
    lines: list[Line] = client.ask("audit", session)
    proof = f"after {after}, {session} has {len(lines)} lines instead of {count}: {lines}"
    client.context.expect(len(lines) == count, "wrong audit", proof, session=session)
    holds = client.ask("verify_audit", session, head)
    proof = f"after {after}, the audit of {session} does not hold up to {head}: {lines}"
    client.context.expect(holds, "audit does not hold", proof, session=session)
    return lines


@case("lifecycle", catches="a change that leaves no line, or a chain that breaks", needs=["audit"])
def every_change_leaves_a_line(context: CaseContext) -> None:
    """Change a session from two callers: each change is one line more, and the chain holds."""
    callers, session = [context.open(), context.open_elsewhere()], context.new_session()
    for client in context.clients:
        client.ask("start_audit")
    lines: list[Line] = []
    for number, change in enumerate(_make_changes(context, session, callers)):
        for client in context.clients:
            head = lines[-1]["hash"] if lines else None
            found = _expect_audit(client, session, number + 1, change, head)
            proof = f"after {change}, the lines {lines} became {found}"
            context.expect(found[:number] == lines[:number], "wrong audit", proof, session=session)
            client.read(session)
        lines = found


def _make_changes(context: CaseContext, session: str, callers: list[Client]) -> Iterator[str]:
    """Make every kind of change that is claimed, by turns; its name."""
    one, two = callers
    for client, count in ((one, 1), (two, 2), (one, 2)):
        client.append(session, context.adapter.batch_size(count))
        yield "an append"
    if context.claims("snapshot"):
        taken = two.snapshot(session)
        yield "a snapshot"
    if context.claims("clear"):
        one.clear(session)
        yield "a clear"
    if context.claims("snapshot", "rollback", "clear"):
        two.rollback(session, taken)
        yield "a rollback"
    two.append(session)
    yield "another append"


@case("lifecycle", catches="a line that is removed, changed or moved unseen", needs=["audit"])
def edited_audit_is_noticed(context: CaseContext) -> None:
    """Remove, change and reorder lines up to a hash that was kept: each edit is noticed."""
    store, session = context.open(), context.new_session()
    store.ask("start_audit")
    for _ in range(5):
        store.append(session)
    kept = _expect_audit(store, session, 5, "five appends")
    head = kept[-1]["hash"]
    store.append(session)
    lines = _expect_audit(store, session, 6, "six appends", head)
    proof = f"the audit of {session} does not hold as it is: {lines}"
    context.expect(
        store.ask("verify_audit", session, head, lines),
        "audit does not hold",
        proof,
        session=session,
    )
    for edit, edited in _edit(context, lines, len(kept)):
        proof = f"{edit} of the audit of {session} is not noticed: {edited} instead of {lines}"
        holds = store.ask("verify_audit", session, head, edited)
        context.expect(not holds, "edit not noticed", proof, session=session)


def _edit(context: CaseContext, lines: list[Line], kept: int) -> Iterator[tuple[str, list[Line]]]:
    """Every edit of a line up to the one that was kept, with its name."""
    for at in range(kept):
        yield f"a removal of line {at}", lines[:at] + lines[at + 1 :]
        if at:
            moved = [*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]]
            yield f"an exchange of lines {at - 1} and {at}", moved
        for name, value in lines[at].items():
            if isinstance(value, str) and value:
                place = context.random.randrange(len(value))
                text = value[:place] + chr(ord(value[place]) ^ 1) + value[place + 1 :]
                changed = {**lines[at], name: text}
                yield f"a change of line {at}", [*lines[:at], changed, *lines[at + 1 :]]
    yield "a cut", lines[: kept - 1]


class _InterruptedChange(Interruption):
    """An append to a session with two lines in its audit."""

    def prepare(self, writer: Client) -> str:
        session = self.context.new_session()
        writer.ask("start_audit")
        for _ in range(2):
            writer.append(session)
        return session

    def act(self, writer: Client, name: str) -> None:
        writer.put(name, *build_messages(writer.draw()))

    def judge(self, reader: Client, name: str, acknowledged: bool, after: str) -> None:
        reader.ask("start_audit")
        batch = 2 if self.context.adapter.pairs else 1
        changes = len(reader.get(name)) // batch
        wrong = changes != 3 if acknowledged else changes not in (2, 3)
        proof = f"after {after}, {name} shows {changes} appends"
        self.context.expect(not wrong, "lost append", proof, session=name)
        lines = _expect_audit(reader, name, changes, after)
        self.act(reader, name)
        head = lines[-1]["hash"]
        _expect_audit(reader, name, changes + 1, f"{after} and another append", head)


@case(
    "lifecycle",
    catches="a change without its line, or a line without its change, after a kill",
    needs=["audit"],
    reach="machine",
    modes=("processes",),
)
def audit_agrees_after_a_kill(context: CaseContext) -> None:
    """Kill a process at steps of an append: it and its line are there, or neither."""
    _InterruptedChange(context).kill_at_steps()


@case(
    "lifecycle",
    catches="a change without its line, or a line without its change, when a reply is lost",
    needs=["audit"],
    reach="machine",
)
def audit_agrees_after_a_lost_reply(context: CaseContext) -> None:
    """Lose the reply to each request of an append: it and its line are there, once, or neither."""
    _InterruptedChange(context).lose_replies()
