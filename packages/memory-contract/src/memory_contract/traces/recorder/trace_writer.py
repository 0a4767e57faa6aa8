"""One process's part of a trace: a bounded buffer, a thread that empties it, files that rotate.

Nothing here may hurt the application. A call costs it a note in a list; hashing and writing are
done in the background; what cannot be kept is dropped, counted, and said in the trace. What takes
entries away is written before it is done, so that no loss of lines ever hides who removed them.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from memory_contract.traces.format import (
    SUFFIX,
    DroppedLines,
    TraceEnd,
    TraceHeader,
    TtlRefresh,
    WorkerKind,
    format_line,
)
from memory_contract.traces.recorder.call_records import (
    CallRecord,
    QuickAppend,
    format_call,
    format_quick_append,
)
from memory_contract.traces.recorder.hasher import Hasher, Policy
from memory_contract.version import __version__

log: Final = logging.getLogger("indelible.recording")

# Notes, and entries in them, that wait to be written: some megabytes.
BUFFERED_MAX: Final = 50_000
# How long notes gather before they are written together; what a kill -9 can lose.
GATHERING_S: Final = 0.05
# How long the end of a process waits for its last lines.
ENDING_S_MAX: Final = 5.0
PART_BYTES_MAX: Final = 64 << 20
PARTS_MAX: Final = 64
KEY_BYTES: Final = 32
# Names for threads and tasks; then they are given anew.
NAMES_MAX: Final = 100_000
# How often dropped lines are complained of.
COMPLAINING_S: Final = 60.0
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How a trace is to be written."""

    policy: Policy = field(default_factory=Policy)
    fresh: bool = False
    ttl_s: float | None = None
    ttl_late_s: float = 1.0
    ttl_refreshed_by: TtlRefresh = "append"
    workers: WorkerKind | None = None
    part_bytes_max: int = PART_BYTES_MAX
    parts_max: int = PARTS_MAX
    buffered_max: int = BUFFERED_MAX


class TraceWriter:
    """Takes notes, and writes them to files of its own."""

    def __init__(self, path: Path, how: TraceOptions) -> None:
        self.path = path
        self.how = how
        self.written = 0
        self.dropped = 0
        self.hasher = Hasher(how.policy, load_key(path))
        self._numbered = 0
        self._open_stores = 0
        self._begin()

    def _begin(self) -> None:
        """As in a new process: nothing noted, no file, no thread."""
        self._notes: deque[CallRecord | QuickAppend] = deque()
        self._weight = 0
        self._lock = threading.Lock()
        self._file_lock = threading.RLock()
        self._awake = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._file: int | None = None
        self._size = 0
        self._parts: list[Path] = []
        self._opened = 0
        self._removed = False
        self._names: dict[tuple[int, int], str] = {}
        self._named = 0
        self._untold = 0
        # Of those, calls that may remove entries and could not be announced.
        self._untold_changes = 0
        self._told_at = float("-inf")

    # In the application's thread

    def put(self, note: CallRecord | QuickAppend) -> None:
        """Take a note; where there is no room for it, it is dropped and counted."""
        if type(note) is CallRecord and (weight := note.weight) > 1:
            with self._lock:
                if self._weight + weight > self.how.buffered_max:
                    self._untold += 1
                    return
                self._weight += weight
        if len(self._notes) >= self.how.buffered_max:
            self.miss()
            return
        # Added here and taken away in one thread alone, one by one: that needs no lock.
        self._notes.append(note)
        if not self._awake.is_set():
            self._wake()

    def miss(self) -> None:
        """A call could not be noted."""
        with self._lock:
            self._untold += 1
        self._wake()

    def announce(self, note: CallRecord) -> None:
        """Write a note before its call is made: if we are killed, it is known that it may be."""
        with self._file_lock:
            written = self.written
            self._write([note])
            if self.written == written:
                with self._lock:
                    self._untold_changes += 1

    def worker(self, recorder: int, ident: int, kind: str) -> str:
        """Who calls: the process, the recorded store in it, and a thread or task."""
        known = self._names.get((recorder, ident))
        return known if known is not None else self._named_anew(recorder, ident, kind)

    def _named_anew(self, recorder: int, ident: int, kind: str) -> str:
        with self._lock:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            self._named += 1
            made = f"{os.getpid()}.{recorder}-{kind}{self._named}"
            return self._names.setdefault((recorder, ident), made)

    def _wake(self) -> None:
        self._awake.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._ending.is_set():
                    self._thread = threading.Thread(
                        target=self._work, name="indelible-recording", daemon=True
                    )
                    self._thread.start()

    # In the background

    def _work(self) -> None:
        while not self._ending.is_set():
            self._awake.wait()
            self._ending.wait(GATHERING_S)
            self._awake.clear()
            self.flush()

    def flush(self) -> None:
        """Write what is noted so far."""
        with self._file_lock:
            notes = [self._notes.popleft() for _ in range(len(self._notes))]
            heavy = sum(
                note.weight for note in notes if type(note) is CallRecord and note.weight > 1
            )
            with self._lock:
                self._weight -= heavy
            self._write(notes)

    def enter(self, *, alone: bool) -> int:
        """One more store is recorded here; its number, 0 for those that share one."""
        with self._lock:
            self._open_stores += 1
            self._numbered += alone
            return self._numbered if alone else 0

    def leave(self) -> None:
        """A store was closed; with the last one, so is the trace."""
        with self._lock:
            self._open_stores -= 1
            last = self._open_stores <= 0
        if last:
            self.close()
        else:
            self.flush()

    def close(self) -> None:
        """Write what is left, and that nothing is missing."""
        self._ending.set()
        self._awake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(ENDING_S_MAX)
        with self._file_lock:
            self.flush()
            if self._file is not None:
                self._append(format_line(TraceEnd(closed=self.written)) + "\n")
                os.close(self._file)
                self._file = None
        # Whoever goes on recording begins a new part.
        self._thread = None
        self._ending.clear()

    def forked(self) -> None:
        """In a child: what the parent noted is the parent's to write."""
        if self._file is not None:
            os.close(self._file)
        self._begin()

    def _write(self, notes: Sequence[CallRecord | QuickAppend]) -> None:
        """Write notes; whatever goes wrong is counted, and never raised."""
        lines: list[str] = []
        untold = changes = 0
        try:
            self._open()
            for note in notes:
                try:
                    lines.append(self._text(note))
                except Exception:  # noqa: BLE001 -- one strange call must not cost the others
                    self._untold += 1
            with self._lock:
                untold, self._untold = self._untold, 0
                changes, self._untold_changes = self._untold_changes, 0
            if untold or changes:
                told = DroppedLines(dropped=max(untold, changes), changes=changes)
                lines.append(format_line(told) + "\n")
            if lines:
                self._append("".join(lines))
            self.written += len(lines) - bool(untold or changes)
            self.dropped += untold
            self._complain(untold, "the trace could not keep up")
            if self._size >= self.how.part_bytes_max:
                self._rotate()
        except Exception as error:  # noqa: BLE001 -- the application goes on without its trace
            with self._lock:
                self._untold += untold + len(notes)
                self._untold_changes += changes
            self._complain(len(notes), str(error))

    def _text(self, note: CallRecord | QuickAppend) -> str:
        if isinstance(note, CallRecord):
            return format_call(note, self.hasher)
        recorder, ident, kind = note[:3]
        return format_quick_append(note, self.worker(recorder, ident, kind), self.hasher)

    def _append(self, text: str) -> None:
        assert self._file is not None
        data = text.encode("ascii")
        try:
            written = os.write(self._file, data)
        except OSError:
            written = -1
        if written != len(data):
            # No half lines: what stands there can be read.
            os.ftruncate(self._file, self._size)
            raise OSError(f"cannot write to {self.path}")
        self._size += written

    def _complain(self, lines: int, why: str) -> None:
        if lines and time.monotonic() - self._told_at > COMPLAINING_S:
            self._told_at = time.monotonic()
            log.warning("%d operations are not in the trace %s: %s", lines, self.path, why)

    # Files

    def _open(self) -> None:
        if self._file is not None:
            return
        self._opened += 1
        part, self._file = _new_part(self.path, self._opened)
        self._parts.append(part)
        self._size = 0
        self._append(format_line(self._header()) + "\n")

    def _header(self) -> TraceHeader:
        return TraceHeader(
            version=__version__,
            boot=_boot(),
            pid=os.getpid(),
            wall_ns=time.time_ns(),
            monotonic_ns=time.monotonic_ns(),
            contents=self.how.policy.contents,
            fresh=self.how.fresh,
            ttl_s=self.how.ttl_s,
            ttl_late_s=self.how.ttl_late_s,
            ttl_refreshed_by=self.how.ttl_refreshed_by,
            workers=self.how.workers,
            continued=self._removed,
        )

    def _rotate(self) -> None:
        """End this file in order; the next note begins a new one."""
        assert self._file is not None
        self._append(format_line(TraceEnd(closed=self.written)) + "\n")
        os.close(self._file)
        self._file = None
        while len(self._parts) >= max(1, self.how.parts_max):
            self._removed = True
            self._parts.pop(0).unlink(missing_ok=True)


def _boot() -> str:
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""


def is_folder(path: Path) -> bool:
    """Whether a trace is a folder, which many processes write to, or a file."""
    return path.is_dir() or path.suffix != SUFFIX


def _new_part(path: Path, number: int) -> tuple[Path, int]:
    """A file that nobody has yet: the one that was named, or one beside it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    unique = f"{time.time_ns() // 1_000_000:x}-{os.getpid()}-{number}{SUFFIX}"
    if is_folder(path):
        path.mkdir(parents=True, exist_ok=True)
        return path / unique, os.open(path / unique, flags, 0o600)
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        return path, os.open(path, flags, 0o600)
    beside = path.with_name(f"{path.name.removesuffix(SUFFIX)}.{unique}")
    return beside, os.open(beside, flags, 0o600)


def load_key(path: Path) -> bytes:
    """The secret of a trace, which all its processes share. It is not part of the trace."""
    name = "trace.key" if is_folder(path) else f"{path.name.removesuffix(SUFFIX)}.key"
    place = (path if is_folder(path) else path.parent) / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        fresh = place.with_name(f"{name}.{secrets.token_hex(8)}")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, secrets.token_bytes(KEY_BYTES))
        finally:
            os.close(file)
        # Whoever comes second takes the first one's.
        with contextlib.suppress(FileExistsError):
            place.hardlink_to(fresh)
        fresh.unlink()
    return place.read_bytes()


_WRITERS: Final[dict[Path, TraceWriter]] = {}
_WRITERS_LOCK = threading.Lock()


def open_trace_writer(path: Path, how: TraceOptions) -> TraceWriter:
    """The one writer of this process at a path; the first who asks says how it is written."""
    place = path.absolute()
    with _WRITERS_LOCK:
        if place not in _WRITERS:
            _WRITERS[place] = TraceWriter(place, how)
        return _WRITERS[place]


def _end_all() -> None:
    for writer in list(_WRITERS.values()):
        writer.close()


def _after_fork() -> None:
    global _WRITERS_LOCK  # noqa: PLW0603 -- another thread may have held it
    _WRITERS_LOCK = threading.Lock()
    for writer in _WRITERS.values():
        writer.forked()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_after_fork)
