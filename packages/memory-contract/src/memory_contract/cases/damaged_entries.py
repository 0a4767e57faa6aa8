"""A stored entry that was damaged is said aloud, never left out in silence."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

from memory_contract.adapter import Message
from memory_contract.case_context import CaseContext, CaseNotClaimed
from memory_contract.cases.case import case
from memory_contract.cases.contents import expect_there, saying, shown, spoken

ENTRIES: Final = 7
DAMAGED: Final = 3
# The first stands nowhere in UTF-8, the second nowhere in JSON: one breaks the reading of text,
# the other what is made of it.
ROTS: Final = (b"\xff", b"\x01")


def _text(number: int) -> str:
    # One run of letters: no format has a reason to write it otherwise than as it is.
    return f"indelible entry number {number} about to rot " + "keep" * 8


@case("edges", reach="machine", catches="an unreadable entry that makes history shorter or empty")
def damaged_entry_is_loud(context: CaseContext) -> None:
    """Damage one stored entry in its file: reading raises or shows it, and leaves nothing out."""
    # In a process that ends, so that nothing holds the file any more.
    store, session = context.open_in_process(), context.new_session()
    expected: list[Message] = []
    for number in range(ENTRIES):
        batch = saying(context, _text(number))
        store.put(session, *batch)
        expected += batch
    store.close()
    reader = context.open_in_process()
    expect_there(context, reader, session, expected, "a message")
    reader.close()
    _checkpoint(context.workspace)
    files = _holding(context.workspace, _text(DAMAGED).encode())
    if not files:
        raise CaseNotClaimed("no file of the workspace holds the text of an entry as it is")
    for rot in ROTS:
        for path, data in files.items():
            path.write_bytes(_rotten(data, _text(DAMAGED).encode(), rot))
        _expect_loud(context, session, expected)


def _expect_loud(context: CaseContext, session: str, expected: list[Message]) -> None:
    try:
        # Closed in any event: whoever raised may still hold a lock that the next one waits for.
        with contextlib.closing(context.open_in_process()) as reader:
            seen = spoken(reader.get(session))
    except Exception:  # noqa: BLE001 -- this is what should happen
        return
    context.expect(
        len(seen) >= len(expected),
        "silent loss",
        f"one of {len(expected)} stored messages was damaged, and a read shows {len(seen)} "
        "without an error",
        session=session,
    )
    whole = [told for told in spoken(expected) if told[1] != _text(DAMAGED)]
    lost = [told for told in whole if told not in seen]
    context.expect(
        not lost,
        "silent loss",
        f"one stored message was damaged, and others are gone without an error: {shown(lost)}",
        session=session,
    )
    if seen == spoken(expected):
        context.note("a byte of a stored entry was changed in its file, and it came back unchanged")


def _checkpoint(workspace: Path) -> None:
    """Move what SQLite left in its write-ahead logs to where it belongs.

    A damaged log ends where the damage begins: that is how SQLite reads one that a crash cut off,
    and nothing that a store could tell.
    """
    for log in workspace.rglob("*-wal"):
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(str(log).removesuffix("-wal"))) as connection,
        ):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _holding(workspace: Path, text: bytes) -> dict[Path, bytes]:
    """The files that hold the text, with all that they hold."""
    files = [path for path in workspace.rglob("*") if path.is_file() and not path.is_symlink()]
    data = {p: p.read_bytes() for p in files if not p.name.endswith(("-wal", "-journal"))}
    return {path: held for path, held in data.items() if text in held}


def _rotten(data: bytes, text: bytes, rot: bytes) -> bytes:
    """The data, with a byte in the middle of the text overwritten wherever it stands."""
    middle = len(text) // 2
    return data.replace(text, text[:middle] + rot + text[middle + 1 :])
