"""Strange names: every session keeps its own entries, whatever it is called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from memory_contract.calls import format_error
from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.contents import expect_listed, shown
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
    plain = context.new_session()
    first = {plain: store.append(plain)}
    # Paths to the folder around the workspace, which belongs to the kit.
    outside = context.workspace.parent / "escaped-by-an-absolute-path"
    escapes = ["../escaped", "..", str(outside)]
    # Files that a store keeps beside its folder exist by now.
    fence = Fence(context.workspace)
    written = first | _write_each(context, store, [*escapes, *HOSTILE], fence)
    for caller in (store, context.open_elsewhere()):
        _expect_own(context, caller, written)
    fence.hold(context, list(written))
    if context.adapter.claims(["list"]):
        expect_listed(context, store, written)


class Fence:
    """Detects files that are written beside a workspace."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._before = self._beside()

    def _beside(self) -> set[str]:
        # Files named after the workspace are put there on purpose.
        ours, beside = self._workspace.name, self._workspace.parent.iterdir()
        return {path.name for path in beside if not path.name.startswith(ours)}

    def hold(self, context: CaseContext, sessions: Sequence[str]) -> None:
        """Hold the store to its own folder, after a write to these sessions."""
        if found := sorted(self._beside() - self._before):
            by = shown(sessions[0]) if len(sessions) == 1 else "a session id"
            context.fail(
                "escapes its workspace",
                f"{by} was read as a path: {shown(found[0])} was written outside of the folder "
                "that is the store's own",
                session=sessions[0] if len(sessions) == 1 else "",
            )


@case("edges", catches="a session that meets another whose name begins alike or joins alike")
def similar_session_ids(context: CaseContext) -> None:
    """Write to sessions with names that are nearly one; clear some, and the others stay."""
    store = context.open()
    written = _write_each(context, store, SIMILAR)
    _expect_own(context, store, written)
    if not context.adapter.claims(["clear"]):
        return
    for session in pace(context, [name for name in CLEARED if name in written], "clears"):
        store.clear(session)
        written[session] = ()
        _expect_own(context, store, written, f" after {shown(session)} was cleared")
    _expect_own(context, context.open_elsewhere(), written, " after some were cleared")


def _write_each(
    context: CaseContext, store: Client, names: Sequence[str], fence: Fence | None = None
) -> dict[str, Ids]:
    """Two rounds of appends, so that the second finds what the first left."""
    written: dict[str, Ids] = {}
    refusals: list[str] = []
    for name in pace(context, names, "session ids", least=8):
        try:
            written[name] = store.append(name)
        except Exception as error:  # noqa: BLE001 -- a name may be refused
            refusals.append(f"{shown(name, 30)} ({format_error(error)[:80]})")
            _expect_nothing(context, store, name)
        if fence is not None:
            fence.hold(context, [name])
    context.expect(
        bool(written), "every name refused", f"no name was taken; {refusals[0] if refusals else ''}"
    )
    for name in written:
        written[name] += store.append(name)
    if refusals:
        context.note(f"session ids are refused, such as {refusals[0]}; {len(refusals)} in all")
    return written


def _expect_nothing(context: CaseContext, store: Client, session: str) -> None:
    """Expect that a refused session cannot be read, or is empty."""
    try:
        seen = store.get(session)
    except Exception:  # noqa: BLE001 -- a name may be refused
        return
    context.expect(
        not seen,
        "refused and changed",
        f"an append to {shown(session)} was refused, and yet it shows {len(seen)} messages",
        session=session,
    )


def _expect_own(
    context: CaseContext, store: Client, written: dict[str, Ids], when: str = ""
) -> None:
    owner = {id_: name for name, ids in written.items() for id_ in ids}
    for session, expected in written.items():
        seen = store.read(session)
        foreign = [owner[id_] for id_ in seen if owner.get(id_, session) != session]
        context.expect(
            not foreign,
            "cross-session leak",
            f"{shown(session)} shows what was written to {shown(foreign[:1])}{when}",
            session=session,
        )
        context.expect(
            seen == context.keep_newest(expected),
            "wrong history",
            f"{shown(session)} shows {len(seen)} entries, and {len(expected)} are its own{when}",
            session=session,
        )
