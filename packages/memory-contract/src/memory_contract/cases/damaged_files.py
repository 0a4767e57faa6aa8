"""Damage to a file of SQLite is said aloud, or does no harm; nothing comes back silently wrong."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from memory_contract.adapter import Refused
from memory_contract.calls import Call, Log, Program, failed
from memory_contract.case_context import CaseContext, CaseNotClaimed, CaseUnknown
from memory_contract.cases.case import case
from memory_contract.cases.lock_bounds import SQLITE
from memory_contract.cases.verbs import append
from memory_contract.entries import message_of
from memory_contract.faults.vfs.images import Files, files_of, write_files
from memory_contract.history import Ids, Operation
from memory_contract.workers.pool import StoreRaised, WorkerLost

# How many bits a check turns over, and at how many places it cuts a file off; drawn by its seed.
FLIPS: Final = 40
CUTS: Final = 4
TEXTS: Final = 8
APPENDS: Final = 8
WAL: Final = "-wal"


@dataclass(frozen=True, slots=True)
class Damage:
    """Files that are not what they were. If it is `plain`, nobody can open them and not notice."""

    what: str
    files: Files
    plain: bool = False


@case(
    "crash",
    catches="a damaged file that comes back as a shorter, another or an empty history",
    reach="machine",
    modes=("processes",),
)
def damaged_file_is_loud(context: CaseContext) -> None:
    """Flip bits, cut files off, take a log away: reading raises, or shows nothing wrong."""
    look_at_damage(context, FLIPS)


def look_at_damage(context: CaseContext, flips: int) -> int:
    """Hold a store to its word on damaged files; how many there were."""
    told, half, hot, closed = _files(context)
    count = older = changed = 0
    reader = _Reader(context, list(told))
    said = [text_of(id_) for batches in told.values() for batch in batches for id_ in batch]
    for damage in _damages(half, hot, closed, flips, said, context.random):
        count += 1
        began = time.monotonic_ns()
        log = reader.read(damage)
        context.record_fault(damage.what, began, time.monotonic_ns())
        seen = _judge(context, damage, told, log)
        older += seen == "older"
        changed += seen == "changed"
    reader.close()
    if older:
        context.note(
            f"{older} of {count} damaged files showed an older state, and nothing was said"
        )
    if changed:
        context.note(f"{changed} of {count} damaged files came back changed, and nothing was said")
    return count


def _files(context: CaseContext) -> tuple[dict[str, list[Ids]], Files, Files, Files]:
    """What was appended, batch by batch; and the files half-way, at the end, and when closed."""
    writer = context.open_in_process()
    told: dict[str, list[Ids]] = {context.new_session(): [], context.new_session(): []}
    copies = []
    for _ in range(2):
        for turn in range(APPENDS):
            for session, batches in told.items():
                call = append(context, session, 1 + turn % 3)
                writer.make(call)
                batches.append(call.ids)
        copies.append(files_of(context.workspace))
    writer.close()
    closed = files_of(context.workspace)
    if not any(data.startswith(SQLITE) for data in closed.values()):
        raise CaseNotClaimed("the store keeps no SQLite file in its workspace")
    return told, copies[0], copies[1], closed


def text_of(id_: str) -> bytes:
    """What was said, as it stands in a file that keeps it as it is."""
    return str(message_of(id_)["content"]).encode()


def _damages(
    half: Files, hot: Files, closed: Files, flips: int, said: list[bytes], random: Random
) -> Iterator[Damage]:
    for name in [name for name, data in closed.items() if data.startswith(SQLITE)]:
        data = closed[name]
        rubbish = random.randbytes(100) + data[100:]
        yield Damage("the head of the file overwritten", closed | {name: rubbish}, plain=True)
        for _ in range(CUTS):
            size = random.randrange(512, len(data) - 1)
            yield Damage("the file cut off", closed | {name: data[:size]})
            # What lacks whole pages is shorter than its own head says.
            pages = max(1, size // _page_bytes(data)) * _page_bytes(data)
            yield Damage("pages cut off the file", closed | {name: data[:pages]}, plain=True)
        for _ in range(flips):
            yield Damage("a bit turned over", closed | {name: _flipped(data, random)})
        there = [text for text in said if text in data]
        for text in random.choices(there, k=TEXTS if there else 0):
            before, _, after = data.partition(text)
            flipped = before + _flipped(text, random) + after
            yield Damage("a bit of a message turned over", closed | {name: flipped})
        log = name + WAL
        if not hot.get(log):
            continue
        yield Damage("the log taken away", {k: v for k, v in hot.items() if k != log})
        yield Damage("the log cut off", hot | {log: hot[log][: random.randrange(len(hot[log]))]})
        for _ in range(flips // 4):
            yield Damage("a bit of the log turned over", hot | {log: _flipped(hot[log], random)})
        if half.get(log):
            yield Damage("an older log put in its place", hot | {log: half[log]})
            yield Damage("a log left beside a later file", closed | {log: half[log]})


def _page_bytes(data: bytes) -> int:
    """The page size of a database, as its head says; 1 stands for the largest."""
    size = int.from_bytes(data[16:18], "big")
    return 65_536 if size == 1 else size


def _flipped(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


class _Reader:
    """Opens damaged files, each with a handle of its own."""

    def __init__(self, context: CaseContext, sessions: list[str]) -> None:
        self._context = context
        self._worker = context.start_worker()
        self._program = Program("after", tuple(Call(op="read", session=s) for s in sessions))

    def read(self, damage: Damage) -> Log:
        """What the sessions show; a store that cannot be opened failed the first of them."""
        folder, began = self._context.create_sibling_workspace(), time.monotonic_ns()
        write_files(damage.files, folder)
        try:
            self._worker.ask("open", folder, self._context.flavour)
            log: Log = self._worker.ask("run", self._program, self._context.names, 0)
        except (StoreRaised, Refused) as error:
            log = Log()
            log.add(failed("after", self._program.calls[0], began, error), error)
        except WorkerLost as error:
            raise CaseUnknown(f"a process was lost with {damage.what}: {error}") from error
        finally:
            with contextlib.suppress(StoreRaised, Refused, WorkerLost):
                self._worker.ask("close")
            shutil.rmtree(folder, ignore_errors=True)
        return log

    def close(self) -> None:
        """Let the process go."""
        self._worker.kill()


def _judge(context: CaseContext, damage: Damage, told: dict[str, list[Ids]], log: Log) -> str:
    """What was shown without a word, where that cannot be helped: it is `older`, or `changed`."""
    found = ""
    for op in log.operations:
        states = _states(told[op.session])
        if op.outcome != "ok" or op.value == states[-1]:
            context.record(op)
            continue
        known = op.value in states
        # Without checksums, SQLite gives back what it finds, and so does whoever stands on it.
        if damage.plain or (not known and context.adapter.claims(["checksum"])):
            _fail(context, damage, op, states)
        found = "older" if known and found != "changed" else "changed"
    return found


def _states(batches: list[Ids]) -> list[Ids]:
    """What the session showed after each append."""
    states: list[Ids] = [()]
    for batch in batches:
        states.append(states[-1] + batch)
    return states


def _fail(context: CaseContext, damage: Damage, op: Operation, states: list[Ids]) -> None:
    seen = op.value if isinstance(op.value, tuple) else ()
    lost = [id_ for id_ in states[-1] if id_ not in seen]
    more = [id_ for id_ in seen if id_ not in states[-1]]
    wrong = f"lacks [{' '.join(lost)}]" + (f", has [{' '.join(more)}] too much" if more else "")
    context.fail(
        "silent loss" if op.value in states else "silently wrong",
        f"with {damage.what}, a read of {op.session} raises nothing and {wrong}",
        session=op.session,
        ids=tuple(lost + more),
    )
