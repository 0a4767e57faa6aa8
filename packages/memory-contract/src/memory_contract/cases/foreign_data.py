"""Cursors and exports that somebody edited: refused, or what an honest one would have got."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.workload import pace
from memory_contract.entries import ids_of, messages_of
from memory_contract.history import Ids

# Turns of a session; enough for several pages.
TURNS: Final = 6
PAGE: Final = 2
# More than any session here has.
ALL: Final = 100
# Replacements for numbers: nearby ones, and impossible positions.
NUMBERS: Final = ("0", "1", "-1", "-3", "7", "99", str(2**32), str(2**32 + 3), str(2**63), "null")
# The edits that are tried of one cursor or export.
EDITS_MAX: Final = 60
_NUMBER: Final = re.compile(r"(?<![\w.\-])-?\d+(?![\w.])")


@case("edges", needs=["pages"], catches="a cursor that opens another session, or what is hidden")
def edited_cursor_is_refused(context: CaseContext) -> None:
    """Open pages with edited cursors, and with those of another session: refused, or its own."""
    store, mine, theirs = context.open(), context.new_session(), context.new_session()
    for _ in range(TURNS):
        store.append(mine)
        store.append(theirs)
    if context.adapter.claims(["trim"]):
        store.trim(mine, TURNS)
        store.append(mine)
    shown = store.read(mine)
    cursors = {session: _read_cursors(store, session) for session in (mine, theirs)}
    context.expect(bool(cursors[mine]), "one page", "a session of several pages came as one")
    edits = [*cursors[theirs], *_edit_cursors(context.random, cursors[mine], mine, theirs)]
    for cursor in pace(context, edits, "edited cursors", least=len(cursors[theirs])):
        found = _try_call(store, "page", mine, ALL, cursor)
        foreign = [id_ for id_ in ids_of(found[0]) if id_ not in shown] if found else []
        if foreign:
            context.fail(
                "foreign entries",
                f"the cursor {cursor!r} opened a page with {len(foreign)} entries that the session"
                f" does not show, such as {foreign[0]}",
                session=mine,
            )
    context.expect(store.read(mine) == shown, "changed", "reading pages changed the session")


def _read_cursors(store: Client, session: str) -> list[Any]:
    """The cursors of a session's pages, all but the last."""
    found = []
    _, cursor = store.ask("page", session, PAGE)
    while cursor is not None:
        found.append(cursor)
        _, cursor = store.ask("page", session, PAGE, cursor)
    return found


def _edit_cursors(random: Random, cursors: list[Any], mine: str, theirs: str) -> list[str]:
    texts = [cursor for cursor in cursors if isinstance(cursor, str)]
    edits = [edit for text in texts for edit in _build_edits(text, mine, theirs)]
    for text in texts:
        decoded = _decode(text)
        again = [edit.encode() for edit in _build_edits(decoded or "", mine, theirs)]
        edits += [base64.urlsafe_b64encode(edit).decode() for edit in again]
        at = random.randrange(len(text)) if text else 0
        edits += [text[:at], text[:at] + "A" + text[at + 1 :], text + text]
    edits = list(dict.fromkeys(edit for edit in edits if edit not in texts))
    return random.sample(edits, min(EDITS_MAX, len(edits)))


def _build_edits(text: str, mine: str, theirs: str) -> Iterator[str]:
    """A text with each of its numbers replaced, and with another session named."""
    if mine in text:
        yield text.replace(mine, theirs)
    for number in _NUMBER.finditer(text):
        for other in NUMBERS:
            yield text[: number.start()] + other + text[number.end() :]


def _decode(text: str) -> str | None:
    """A decoded cursor, if it is text in base64."""
    try:
        return base64.urlsafe_b64decode(text).decode()
    except (ValueError, binascii.Error):
        return None


@case("edges", needs=["export"], catches="an import that shows or takes what belongs to others")
def edited_export_stays_inside(context: CaseContext) -> None:
    """Import edited exports beside other sessions: each is refused, or shows its own entries."""
    source, mine = context.open(), context.new_session()
    ids: Ids = ()
    for _ in range(TURNS):
        ids += source.append(mine)
    text = source.ask("export", mine)
    target = context.open(context.create_sibling_workspace())
    theirs, behind = context.new_session(), context.new_session()
    kept = {theirs: ids_of(_write_session(source, target, theirs))}
    honest = context.new_session()
    target.ask("import_session", text.replace(mine, honest))
    context.expect(
        ids_of(target.get(honest)) == context.keep_newest(ids),
        "not imported",
        "an export that nobody edited did not come back as it was",
    )
    edits = list(dict.fromkeys(_build_edits(text, "\0", "")))
    edits = context.random.sample(edits, min(EDITS_MAX, len(edits)))
    for edit in pace(context, edits, "edited exports", least=3):
        # Right before the import, so that a position that is a little off is somebody else's.
        kept[behind] = ids_of(_write_session(source, target, behind))
        _import_edited(
            context, target, edit.replace(mine, name := context.new_session()), name, ids
        )
        for session, before in kept.items():
            context.expect(
                ids_of(target.get(session)) == before,
                "foreign change",
                "an import of an edited export changed another session",
            )


def _write_session(source: Client, target: Client, session: str) -> list[Any]:
    """Put entries into a session of the target; what it then shows."""
    target.put(session, *messages_of(source.draw()))
    return target.get(session)


def _import_edited(context: CaseContext, target: Client, text: str, session: str, ids: Ids) -> None:
    """Import what was edited; if it is taken, the session shows nothing but its own."""
    if _try_call(target, "import_session", text) is None:
        return
    shown = _try_call(target, "read", session)
    foreign = [id_ for id_ in ids_of(shown or ()) if id_ not in ids]
    if foreign:
        context.fail(
            "foreign entries",
            f"an edited export was imported, and its session shows {len(foreign)} entries that"
            f" were not in it, such as {foreign[0]}",
        )
    if context.adapter.claims(["clear"]):
        _try_call(target, "clear", session)


def _try_call(store: Client, method: str, *arguments: Any) -> Any:
    """The result of a call; None if it raised, True if it returned nothing."""
    try:
        found = store.ask(method, *arguments)
    except Exception:  # noqa: BLE001 -- every refusal is fine here
        return None
    return True if found is None else found
