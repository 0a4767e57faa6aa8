"""Damaged entries and files: reading raises, or shows nothing wrong."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Final

from memory_contract.adapter import Message
from memory_contract.calls import Call, Log, Program
from memory_contract.case_context import CaseContext, CaseNotClaimed
from memory_contract.cases.case import case
from memory_contract.cases.contents import build_batch, expect_there, format_value, to_role_content
from memory_contract.cases.disk_recording import restore_files
from memory_contract.cases.locks import SQLITE
from memory_contract.cases.perturbation import Perturbation
from memory_contract.cases.workload import build_append
from memory_contract.entries import build_message
from memory_contract.faults.vfs.images import Files, read_files
from memory_contract.history import Ids, Operation

ENTRIES: Final = 7
DAMAGED: Final = 3
LOGS: Final = ("-wal", "-journal")
# The first byte is invalid in UTF-8, the second in JSON.
ROTS: Final = (b"\xff", b"\x01")


def _build_text(number: int) -> str:
    # Only letters, which every format stores as they are.
    return f"indelible entry number {number} about to rot " + "keep" * 8


@case("edges", reach="machine", catches="an unreadable entry that makes history shorter or empty")
def damaged_entry_is_loud(context: CaseContext) -> None:
    """Damage one stored entry in its file: reading raises or shows it, and leaves nothing out."""
    # In a process that ends, so that nothing has the file open.
    store, session = context.open_in_process(), context.new_session()
    expected: list[Message] = []
    for number in range(ENTRIES):
        batch = build_batch(context, _build_text(number))
        store.put(session, *batch)
        expected += batch
    store.close()
    reader = context.open_in_process()
    context.require_room(len(expected))
    expect_there(reader, session, expected, "a message")
    reader.close()
    _checkpoint(context.workspace)
    text = _build_text(DAMAGED).encode()
    files = {path: data for path, data in _read_all(context.workspace) if text in data}
    if not files:
        raise CaseNotClaimed("no file of the workspace holds the text of an entry as it is")
    middle = len(text) // 2
    for rot in ROTS:
        for path, data in files.items():
            path.write_bytes(data.replace(text, text[:middle] + rot + text[middle + 1 :]))
        _expect_loud(context, session, expected)


def _expect_loud(context: CaseContext, session: str, expected: list[Message]) -> None:
    try:
        # Always closed: a handle that raised may still hold a lock.
        with contextlib.closing(context.open_in_process()) as reader:
            seen = to_role_content(reader.get(session))
    except Exception:  # noqa: BLE001 -- this is what should happen
        return
    count = f"one of {len(expected)} stored messages was damaged"
    proof = f"{count}, and a read shows {len(seen)} without an error"
    context.expect(len(seen) >= len(expected), "silent loss", proof, session=session)
    whole = [told for told in to_role_content(expected) if told[1] != _build_text(DAMAGED)]
    lost = [told for told in whole if told not in seen]
    proof = f"{count}, and others are gone without an error: {format_value(lost)}"
    context.expect(not lost, "silent loss", proof, session=session)
    if seen == to_role_content(expected):
        context.note("a byte of a stored entry was changed in its file, and it came back unchanged")


def _checkpoint(workspace: Path) -> None:
    """Checkpoint the write-ahead logs that SQLite left.

    A damaged log ends where the damage begins: that is how SQLite reads one that a crash cut off,
    and nothing that a store could tell.
    """
    for log in workspace.rglob("*-wal"):
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(str(log).removesuffix("-wal"))) as connection,
        ):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _read_all(workspace: Path) -> Iterator[tuple[Path, bytes]]:
    for path in workspace.rglob("*"):
        if path.is_file() and not path.is_symlink() and not path.name.endswith(LOGS):
            yield path, path.read_bytes()


# How many bits a check flips, and at how many places it truncates a file; drawn by the seed.
FLIPS: Final = 40
CUTS: Final = 4
TEXTS: Final = 8
APPENDS: Final = 8
WAL: Final = "-wal"


@dataclass(frozen=True, slots=True)
class Damage:
    """Damaged files. If it is `plain`, every store notices when it opens them."""

    what: str
    files: Files
    plain: bool = False


@case(
    "crash",
    catches="a damaged file that comes back as a shorter, another or an empty history",
    modes=("processes",),
)
def damaged_file_is_loud(context: CaseContext) -> None:
    """Flip bits, truncate files, remove a log: reading raises, or shows nothing wrong."""
    DamagedFiles(context, FLIPS).run()


def _read_page_size(data: bytes) -> int:
    """The page size in a database header; 1 means 65536."""
    size = int.from_bytes(data[16:18], "big")
    return 65_536 if size == 1 else size


def _flip_bit(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


class DamagedFiles(Perturbation[Damage]):
    """Opens damaged files, each with a handle of its own."""

    noun = "damaged files"

    def __init__(self, context: CaseContext, flips: int) -> None:
        super().__init__(context)
        self._flips = flips
        # The batches of each session; the files half-way and at the end, and after closing.
        self._appended: dict[str, list[Ids]] = {
            context.new_session(): [],
            context.new_session(): [],
        }
        self._hot: list[Files] = []
        writer = context.open_in_process()
        for _ in range(2):
            for turn in range(APPENDS):
                for session, batches in self._appended.items():
                    call = build_append(context, session, 1 + turn % 3)
                    writer.make(call)
                    batches.append(call.ids)
            self._hot.append(read_files(context.workspace))
        writer.close()
        self._closed = read_files(context.workspace)
        self._program = Program(
            "after", tuple(Call(op="read", session=session) for session in self._appended)
        )
        # Damage that no store on SQLite could notice, by what was shown.
        self._unnoticed: Counter[str] = Counter()

    def list_positions(self) -> Iterator[Damage]:
        """The kinds of damage, at places drawn by the seed."""
        files = [name for name, data in self._closed.items() if data.startswith(SQLITE)]
        if not files:
            raise CaseNotClaimed("the store keeps no SQLite file in its workspace")
        for name in files:
            yield from self._damage_file(name)
            yield from self._damage_log(name + WAL)

    def _damage_file(self, name: str) -> Iterator[Damage]:
        closed, data, random = self._closed, self._closed[name], self.context.random
        garbage = random.randbytes(100) + data[100:]
        yield Damage("the head of the file overwritten", closed | {name: garbage}, plain=True)
        for _ in range(CUTS):
            size = random.randrange(min(512, len(data) // 2), len(data) - 1)
            yield Damage("the file cut off", closed | {name: data[:size]})
            # A file that lacks whole pages is shorter than its header says.
            pages = max(1, size // _read_page_size(data)) * _read_page_size(data)
            yield Damage("pages cut off the file", closed | {name: data[:pages]}, plain=True)
        for _ in range(self._flips):
            yield Damage("a bit turned over", closed | {name: _flip_bit(data, random)})
        ids = [id_ for batches in self._appended.values() for batch in batches for id_ in batch]
        # The contents of messages, as formats store them that do not change them.
        texts = [str(build_message(id_)["content"]).encode() for id_ in ids]
        there = [text for text in texts if text in data]
        for text in random.choices(there, k=TEXTS if there else 0):
            before, _, after = data.partition(text)
            flipped = before + _flip_bit(text, random) + after
            yield Damage("a bit of a message turned over", closed | {name: flipped})

    def _damage_log(self, log: str) -> Iterator[Damage]:
        (half, hot), random = self._hot, self.context.random
        data = hot.get(log)
        if not data:
            return
        yield Damage("the log taken away", {k: v for k, v in hot.items() if k != log})
        yield Damage("the log cut off", hot | {log: data[: random.randrange(len(data))]})
        for _ in range(self._flips // 4):
            yield Damage("a bit of the log turned over", hot | {log: _flip_bit(data, random)})
        if half.get(log):
            yield Damage("an older log put in its place", hot | {log: half[log]})
            yield Damage("a log left beside a later file", self._closed | {log: half[log]})

    def disturb(self, position: Damage) -> None:
        """Read damaged files; a store that cannot be opened fails the first read."""
        self.count += 1
        with (
            restore_files(self.context, position.files) as folder,
            self.context.fault(position.what),
        ):
            log = self.reopen(folder, self._program)
        self._judge(position, log)

    def _judge(self, damage: Damage, log: Log) -> None:
        found = ""
        for op in log.operations:
            grown = accumulate(self._appended[op.session], initial=())
            states = [tuple(self.context.keep_newest(state)) for state in grown]
            if op.outcome != "ok" or op.value == states[-1]:
                self.context.record(op)
                continue
            known = op.value in states
            # Without checksums, SQLite returns what it finds, and so does a store on it.
            if damage.plain or (not known and self.context.claims("checksum")):
                self._fail(damage, op, states)
            found = "older" if known and found != "changed" else "changed"
        self._unnoticed[found] += 1

    def _fail(self, damage: Damage, op: Operation, states: list[Ids]) -> None:
        seen = op.value if isinstance(op.value, tuple) else ()
        lost = [id_ for id_ in states[-1] if id_ not in seen]
        more = [id_ for id_ in seen if id_ not in states[-1]]
        wrong = f"lacks [{' '.join(lost)}]" + (f", has [{' '.join(more)}] too much" if more else "")
        proof = f"with {damage.what}, a read of {op.session} raises nothing and {wrong}"
        name = "silent loss" if op.value in states else "silently wrong"
        self.context.fail(name, proof, session=op.session, ids=tuple(lost + more))

    def summarize(self) -> None:
        """Note the damage that was not noticed."""
        for found, what in (("older", "showed an older state"), ("changed", "came back changed")):
            if number := self._unnoticed[found]:
                files = f"{number} of {self.count} damaged files"
                self.context.note(f"{files} {what}, and nothing was said")
