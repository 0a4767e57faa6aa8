"""A trace of any length, sorted by session, in bounded memory.

Sessions share nothing but forks, so they are judged one by one. A first pass finds out what is
known of the trace and which sessions a fork connects; a second one puts each line into the file of
its session's bucket. Then one bucket at a time fits into memory.
"""

from __future__ import annotations

import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import IO, Final

from memory_contract.history import HistoryError
from memory_contract.traces.diagnosis.history_builder import shift_times
from memory_contract.traces.diagnosis.trace_metadata import TraceMetadata
from memory_contract.traces.format import (
    OtherCall,
    TraceHeader,
    TraceLine,
    TraceOperation,
    format_line,
    list_parts,
    parse_line,
    read_line,
    read_raw_lines,
    strip_fields,
)

# Of a bucket, in bytes of its lines, and of buckets: each is an open file.
BUCKET_BYTES: Final = 4 << 20
BUCKETS_MAX: Final = 200
# How many lines are read between two words about it.
TELLING_LINES: Final = 20_000

Progress = Callable[[str, float], None]
# How a recorder begins the line of a call on a session with a plain name. Any other line is parsed.
_PLAIN: Final = re.compile(rb'\{"session":"([ !#-\[\]-~]*)",')


class TraceSorter:
    """A trace whose lines can be had session by session."""

    def __init__(self, path: str | Path, progress: Progress | None = None) -> None:
        self.parts = list_parts(path)
        self.metadata = TraceMetadata()
        self.operations = 0
        self._progress = progress or _silently
        self._bytes = sum(part.stat().st_size for part in self.parts)
        # What is about every session, with the boot in which it was written.
        self._every: list[tuple[str, TraceOperation | OtherCall]] = []
        self._forks = ForkGroups()
        self._ranges: dict[str, tuple[int, int]] = {}
        self._look()

    # The first pass

    def _look(self) -> None:
        boot = ""
        for part, number, line in self._lines("reading"):
            if number == 1:
                self.metadata.begin_file()
            if _session_of(line) is not None:
                self.operations += 1
                continue
            found = read_line(part, number, line)
            if isinstance(found, TraceHeader):
                boot = found.boot
            if not isinstance(found, TraceOperation | OtherCall):
                self.metadata.note(found)
            elif found.every:
                self._every.append((boot, found))
            else:
                self.operations += 1
                self._connect(found)
        self.metadata.begin_file()

    def _connect(self, line: TraceLine) -> None:
        if isinstance(line, TraceOperation) and line.op == "fork" and line.target is not None:
            self._forks.connect(line.session, line.target)

    def _lines(self, doing: str) -> Iterator[tuple[Path, int, bytes]]:
        done = lines = 0
        for part in self.parts:
            for number, line in read_raw_lines(part):
                yield part, number, line
                done += len(line)
                lines += 1
                if lines % TELLING_LINES == 0:
                    self._progress(doing, done / max(1, self._bytes))

    # The second pass

    def groups(self) -> Iterator[list[TraceOperation | OtherCall]]:
        """The lines of each session, with those of every session that a fork connects it with."""
        every = [shift_times(found, self.metadata.shift_ns(boot)) for boot, found in self._every]
        buckets = max(1, min(BUCKETS_MAX, self._bytes // BUCKET_BYTES))
        with tempfile.TemporaryDirectory(prefix="indelible-explain-") as folder:
            places = [Path(folder) / str(number) for number in range(buckets)]
            self._fill(places)
            for done, place in enumerate(places):
                self._progress("judging", done / buckets)
                yield from (group + every for group in self._opened(place))
                place.unlink()

    def _fill(self, places: list[Path]) -> None:
        with ExitStack() as opened:
            files: list[IO[bytes]] = [opened.enter_context(p.open("wb")) for p in places]
            boot = ""
            for part, number, line in self._lines("sorting"):
                session = _session_of(line)
                if session is None:
                    found = read_line(part, number, line)
                    boot = found.boot if isinstance(found, TraceHeader) else boot
                    if not isinstance(found, TraceOperation | OtherCall) or found.every:
                        continue
                    session = found.session
                    line = format_line(found).encode() + b"\n"  # noqa: PLW2901 -- in one form
                if len(self.metadata.boots) > 1:
                    line = self._at_one_time(part, number, line, boot)  # noqa: PLW2901
                root = self._forks.root(session)
                files[zlib.crc32(root.encode("utf-8", "surrogatepass")) % len(files)].write(line)

    def _at_one_time(self, part: Path, number: int, line: bytes, boot: str) -> bytes:
        """The line with times that can be set beside those of other boots, roughly."""
        found = read_line(part, number, line)
        if not isinstance(found, TraceOperation | OtherCall):
            return b""
        moved = shift_times(found, self.metadata.shift_ns(boot))
        low, high = self._ranges.get(boot, (moved.invoke_ns, moved.invoke_ns))
        end = moved.complete_ns or moved.invoke_ns
        self._ranges[boot] = (min(low, moved.invoke_ns), max(high, end))
        return format_line(moved).encode() + b"\n"

    def _opened(self, place: Path) -> Iterator[list[TraceOperation | OtherCall]]:
        groups: dict[str, list[TraceOperation | OtherCall]] = {}
        for _, raw in read_raw_lines(place):
            for found in self._read(raw):
                groups.setdefault(self._forks.root(found.session), []).append(found)
        yield from groups.values()

    def _read(self, raw: bytes) -> list[TraceOperation | OtherCall]:
        try:
            return _operations(parse_line(raw))
        except HistoryError:
            # Where it stands is worth finding out only now.
            for part, number, line in self._lines("reading"):
                if line == raw:
                    read_line(part, number, line)
            raise

    def clocks_disagree(self, apart_ns: int) -> bool:
        """Whether two machines ran at the same time: then no order of their lines is known."""
        ranges = sorted(self._ranges.values())
        return any(later[0] - earlier[1] < apart_ns for earlier, later in pairwise(ranges))

    # Once more, for some

    def appends_of(self, tokens: set[str]) -> dict[str, TraceOperation]:
        """The first append of each of some hashes, in any session."""
        wanted = re.compile(b"|".join(re.escape(token.encode()) for token in sorted(tokens)))
        likely = (
            read_line(part, number, line)
            for part, number, line in self._lines("looking where it came from")
            if b'"append"' in line and wanted.search(line)
        )
        return find_first_appends(likely, tokens)


def find_first_appends(lines: Iterable[TraceLine], tokens: set[str]) -> dict[str, TraceOperation]:
    """The first append of each of some hashes."""
    found: dict[str, TraceOperation] = {}
    for op in lines:
        if isinstance(op, TraceOperation) and op.op == "append":
            for one in tokens.intersection(map(strip_fields, op.ids)):
                found.setdefault(one, op)
    return found


def group_by_session(
    lines: Sequence[TraceOperation | OtherCall],
) -> list[list[TraceOperation | OtherCall]]:
    """Lines at hand, sorted as those of a file are."""
    forks = ForkGroups()
    for line in lines:
        if isinstance(line, TraceOperation) and line.target is not None:
            forks.connect(line.session, line.target)
    groups: dict[str, list[TraceOperation | OtherCall]] = {}
    every = [line for line in lines if line.every]
    for line in lines:
        if not line.every:
            groups.setdefault(forks.root(line.session), []).append(line)
    return [[*group, *every] for group in groups.values()]


class ForkGroups:
    """Which sessions a fork connects: those have one root."""

    def __init__(self) -> None:
        self._roots: dict[str, str] = {}

    def connect(self, session: str, target: str) -> None:
        """A fork copied from one session to the other."""
        one, two = self.root(session), self.root(target)
        if one != two:
            self._roots[two] = one

    def root(self, session: str) -> str:
        """The same for all sessions that are connected."""
        found = session
        while found in self._roots:
            found = self._roots[found]
        # The next who asks finds it at once: chains of forks may be long.
        while session != found:
            self._roots[session], session = found, self._roots[session]
        return found


def _session_of(line: bytes) -> str | None:
    """The session of a line as most are; None if the whole line must be parsed to know it."""
    found = _PLAIN.match(line)
    if found is None or b"\\" in line or b'"every"' in line or b'"fork"' in line:
        return None
    return found[1].decode("ascii") if line.endswith(b"\n") else None


def _operations(line: TraceLine) -> list[TraceOperation | OtherCall]:
    return [line] if isinstance(line, TraceOperation | OtherCall) else []


def _silently(_: str, __: float) -> None:
    pass
