"""Strange names: every session keeps its own entries, whatever it is called."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from memory_contract.adapter import Message
from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.contents import expect_listed, format_value
from memory_contract.cases.workload import pace
from memory_contract.history import Ids

# Separated by blanks. Read as paths, these stay inside the store's folder.
_HOSTILE: Final = r"""
% %% _ __ * ** ? [a] a[b]c {a} a{b}c ^ $ . a/b a//b ./a a/.. a/../b a~ a\b ..\a C:\a
: a:b a::b a|b a,b a;b a#b a&b=c a%20b a+b ' '' " ` a'b a\'b \ \\ %s %(x)s
Case case CASE ss SS 0 00 1 01 1.0 1e0 -1 true None null nan default sessions messages index con
"""
HOSTILE: Final[tuple[str, ...]] = (
    *_HOSTILE.split(),
    *("a b", " a", "a ", "'; DROP TABLE messages; --", "a\nb", "a\tb", "a\x00b", "a\x00", ""),
    *("\u00e9", "e\u0301", "\u5c71\u7530", "\U0001f41f", "\u202ea", "\u00df", "a" * 1024),
)
# Equal for stores that truncate, join, strip or match by pattern.
_SIMILAR: Final = """
a ab abc a:b a:b:c a::b :a a: a* a? a% a_ ax a[b] a.b a/b a-b A a:messages a:meta a:0
user:1 user:11 user:1: user user_1 userx1 b:c c
"""
SIMILAR: Final[tuple[str, ...]] = (
    *_SIMILAR.split(),
    *("a b", "a ", " a", "x" * 255 + "1", "x" * 255 + "2"),
)
CLEARED: Final = ("a", "a*", "a%", "a_", "a?", "a:b", "user:1", "user_1", "a[b]", "x" * 255 + "1")


@case("edges", catches="a session id that is read as a pattern, a path, a number or a statement")
def hostile_session_ids(context: CaseContext) -> None:
    """Write to sessions with strange names: each keeps its own entries, or is refused at once."""
    store = context.open()
    # Files that a store keeps beside its folder exist after its first append.
    store.append(context.new_session())
    before = _list_beside(context)
    # Paths to the folder around the workspace, which belongs to the kit.
    outside = context.workspace.parent / "escaped-by-an-absolute-path"
    names = ["../escaped", "..", str(outside), *HOSTILE]
    written = _write_each(store, names, before)
    context.open_elsewhere()
    _expect_own(context, written)
    _expect_inside(context, before, "a session id")
    if context.claims("list"):
        expect_listed(store, [*context.sessions, *written])


def _list_beside(context: CaseContext) -> set[str]:
    """What lies beside the workspace, but for files that are named after it."""
    ours, beside = context.workspace.name, context.workspace.parent.iterdir()
    return {path.name for path in beside if not path.name.startswith(ours)}


def _expect_inside(context: CaseContext, before: set[str], name: str) -> None:
    """Hold the store to its own folder, after a write to a session of this name."""
    if found := sorted(_list_beside(context) - before):
        proof = (
            f"{name} was read as a path: {format_value(found[0])} was written outside of the folder"
        )
        context.fail("escapes its workspace", f"{proof} that is the store's own")


@case(
    "edges",
    catches="sessions that collide: one name is a prefix of another, or both form the same key",
)
def similar_session_ids(context: CaseContext) -> None:
    """Write to sessions with similar names; clear some, and the others stay."""
    store = context.open()
    written = _write_each(store, SIMILAR)
    _expect_own(context, written)
    if not context.claims("clear"):
        return
    for session in pace(context, [name for name in CLEARED if name in written], "clears"):
        store.clear(session)
        written[session] = ()
        _expect_own(context, written, f" after {format_value(session)} was cleared")
    context.open_elsewhere()
    _expect_own(context, written, " after some were cleared")


def _write_each(
    store: Client, names: Sequence[str], before: set[str] | None = None
) -> dict[str, Ids]:
    """Two rounds of appends, so that the second finds what the first left."""
    context = store.context
    written: dict[str, Ids] = {}
    refusals: list[str] = []
    for name in pace(context, names, "session ids", least=8):
        try:
            written[name] = store.append(name)
        except Exception as error:  # noqa: BLE001 -- a name may be refused
            refusals.append(f"{format_value(name, 30)} ({format_error(error)[:80]})")
            seen: Sequence[Message] = ()
            with contextlib.suppress(Exception):
                seen = store.get(name)
            proof = (
                f"an append to {format_value(name)} was refused, and it shows {len(seen)} messages"
            )
            context.expect(not seen, "refused and changed", proof, session=name)
        if before is not None:
            _expect_inside(context, before, format_value(name))
    context.expect(bool(written), "every name refused", f"no name was taken; {refusals[:1]}")
    for name in written:
        written[name] += store.append(name)
    if refusals:
        context.note(f"session ids are refused, such as {refusals[0]}; {len(refusals)} in all")
    return written


def _expect_own(context: CaseContext, written: dict[str, Ids], when: str = "") -> None:
    owner = {id_: name for name, ids in written.items() for id_ in ids}
    for session, expected in written.items():
        name = format_value(session)
        for client in context.clients:
            seen = client.read(session)
            foreign = [owner[id_] for id_ in seen if owner.get(id_, session) != session]
            proof = f"{name} shows what was written to {format_value(foreign[:1])}{when}"
            context.expect(not foreign, "cross-session leak", proof, session=session)
            proof = f"{name} shows {len(seen)} entries, {len(expected)} are its own{when}"
            right = seen == context.keep_newest(expected)
            context.expect(right, "wrong history", proof, session=session)
