"""Edited cursors and exports: they are refused, or show nothing that an unedited one would not."""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from memory_contract.case_context import CaseContext, Client
from memory_contract.cases.case import case
from memory_contract.cases.workload import pace
from memory_contract.entries import build_messages, parse_ids
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
    if context.claims("trim"):
        store.trim(mine, TURNS)
        store.append(mine)
    shown = store.read(mine)
    (paged, own), (_, foreign) = _read_pages(store, mine), _read_pages(store, theirs)
    proof = f"{mine} shows [{' '.join(shown)}], and page by page [{' '.join(paged)}]"
    context.expect(paged == shown, "wrong pages", proof, session=mine)
    context.expect(bool(own), "one page", "a session of several pages came as one")
    edits = [*foreign, *_edit_cursors(context.random, own, mine, theirs)]
    for cursor in pace(context, edits, "edited cursors", least=len(foreign)):
        with contextlib.suppress(Exception):
            page, _ = store.ask("page", mine, ALL, cursor)
            _expect_known(context, parse_ids(page), shown, f"the cursor {cursor!r} opened a page")
    context.expect(store.read(mine) == shown, "changed", "reading pages changed the session")


def _expect_known(context: CaseContext, seen: Ids, known: Ids, what: str) -> None:
    strange = [id_ for id_ in seen if id_ not in known]
    proof = f"{what}, and it shows {len(strange)} entries of others, such as {strange[:1]}"
    context.expect(not strange, "foreign entries", proof)


def _read_pages(store: Client, session: str) -> tuple[Ids, list[Any]]:
    """What the pages of a session show, and the cursors that opened all but the first."""
    cursors: list[Any] = []
    page, cursor = store.ask("page", session, PAGE)
    ids = parse_ids(page)
    while cursor is not None:
        cursors.append(cursor)
        page, cursor = store.ask("page", session, PAGE, cursor)
        ids += parse_ids(page)
    return ids, cursors


def _edit_cursors(random: Random, cursors: list[Any], mine: str, theirs: str) -> list[str]:
    texts = [cursor for cursor in cursors if isinstance(cursor, str)]
    edits = [edit for text in texts for edit in _build_edits(text, mine, theirs)]
    for text in texts:
        with contextlib.suppress(ValueError, binascii.Error):
            decoded = base64.urlsafe_b64decode(text).decode()
            again = [edit.encode() for edit in _build_edits(decoded, mine, theirs)]
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


@case("edges", needs=["export"], catches="an import that shows or takes what belongs to others")
def edited_export_stays_inside(context: CaseContext) -> None:
    """Import edited exports beside other sessions: each is refused, or shows its own entries."""
    source, mine = context.open(), context.new_session()
    ids: Ids = ()
    for _ in range(TURNS):
        ids += source.append(mine)
    text = source.ask("export", mine)
    target = context.open(context.create_sibling_workspace())
    theirs, behind, honest = (context.new_session() for _ in range(3))
    target.put(theirs, *build_messages(source.draw()))
    kept = {theirs: target.look(theirs)}
    target.ask("import_session", text.replace(mine, honest))
    right = target.look(honest) == context.keep_newest(ids)
    proof = "an export that nobody edited did not come back as it was"
    context.expect(right, "not imported", proof)
    edits = list(dict.fromkeys(_build_edits(text, "\0", "")))
    edits = context.random.sample(edits, min(EDITS_MAX, len(edits)))
    for edit in pace(context, edits, "edited exports", least=3):
        # Appended right before the import, so that a position past the export's belongs to another.
        target.put(behind, *build_messages(source.draw()))
        kept[behind] = target.look(behind)
        name = context.new_session()
        with contextlib.suppress(Exception):
            target.ask("import_session", edit.replace(mine, name))
            _expect_known(context, target.look(name), ids, "an edited export was imported")
            if context.claims("clear"):
                target.ask("clear", name)
        for session, before in kept.items():
            proof = "an import of an edited export changed another session"
            context.expect(target.look(session) == before, "foreign change", proof)
