"""The writer of one process's part of a trace: a bounded buffer, a thread, files that rotate.

A call costs the application the hashes of its messages and one record in a list; lines are made and
written in the background. What cannot be written is dropped and counted, and the trace says how
much. Calls that may remove entries are written before they are made, so that no missing line hides
who removed an entry.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from memory_contract.traces.format import (
    SUFFIX,
    DroppedLines,
    TraceEnd,
    TraceHeader,
    format_line,
    read_boot_id,
)
from memory_contract.traces.recorder.call_records import CallRecord
from memory_contract.traces.recorder.hasher import Hasher, Policy
from memory_contract.version import __version__

log: Final = logging.getLogger("memory_contract.recording")

THREAD: Final = "memory-contract-recording"
# Records and messages in them that wait to be written: some megabytes.
BUFFERED_MAX: Final = 50_000
# The time between two writes; a kill -9 loses the lines of at most this time.
GATHER_S: Final = 0.05
# The longest wait for the last lines at the end of a process.
CLOSE_S_MAX: Final = 5.0
PART_BYTES_MAX: Final = 64 << 20
PARTS_MAX: Final = 64
KEY_BYTES: Final = 32
# Names of threads and tasks that are remembered; beyond that, all get new ones.
NAMES_MAX: Final = 100_000
# The shortest time between two warnings about dropped lines.
WARNING_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How a trace is written."""

    policy: Policy = field(default_factory=Policy)
    # The fields of each header that describe the store.
    header: TraceHeader = field(default_factory=TraceHeader)
    part_bytes_max: int = PART_BYTES_MAX
    parts_max: int = PARTS_MAX


class _Part:
    """One file of a trace."""

    def __init__(self, path: Path, file: int) -> None:
        self.path = path
        self.file = file
        self.size = 0

    def append(self, *lines: str) -> None:
        """Write whole lines, or raise."""
        data = "".join(f"{line}\n" for line in lines).encode("ascii")
        try:
            written = os.write(self.file, data)
        except OSError:
            written = -1
        if written != len(data):
            # Leave no half line behind.
            os.ftruncate(self.file, self.size)
            raise OSError(f"cannot write to {self.path}")
        self.size += written

    def end(self, written: int) -> None:
        """Write that nothing is missing after this, and close."""
        # Without its last line, a part counts as that of a killed process.
        with contextlib.suppress(OSError):
            self.append(format_line(TraceEnd(closed=written)))
        os.close(self.file)


class TraceWriter:
    """Takes records from the application's threads and writes them to files of its own."""

    def __init__(self, path: Path, options: TraceOptions) -> None:
        self.path = path
        self.options = options
        self.written = 0
        self.dropped = 0
        self.hasher = Hasher(options.policy, load_key(path))
        self._stores = 0
        self._open_stores = 0
        self._reset()

    def _reset(self) -> None:
        self._records: list[CallRecord] = []
        self._buffered = 0
        self._lock = threading.Lock()
        self._file_lock = threading.RLock()
        self._has_records = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._part: _Part | None = None
        # Whether this process has tried to begin its file.
        self._begun = False
        # Calls that may add entries and have not come back; those that may remove are announced.
        self._open: set[CallRecord] = set()
        self._paths: list[Path] = []
        self._opened = 0
        self._removed_parts = False
        self._names: dict[tuple[int, int], str] = {}
        self._named = 0
        # Dropped lines that the trace does not mention yet, and those among them of calls that
        # may have removed entries.
        self._missing = 0
        self._missing_changes = 0
        self._warned_at = float("-inf")

    # In the application's threads

    def begin(self, record: CallRecord) -> None:
        """Note that a call begins; begin the file of this process before its first call.

        Its effect may be visible to others before its line is written, or without one if the
        process is killed. The file shows that lines may be missing.
        """
        if not self._begun:
            with self._file_lock:
                if self._part is None:
                    self._write([])
                    _close_with_process()
                self._begun = True
        if record.op != "read" and not record.may_remove:
            self._open.add(record)

    def put(self, record: CallRecord) -> None:
        """Take a record; where the buffer is full, drop and count it."""
        weight = record.weight
        with self._lock:
            self._open.discard(record)
            if self._buffered + weight > BUFFERED_MAX:
                self._missing += 1
            else:
                self._records.append(record)
                self._buffered += weight
        if not self._has_records.is_set():
            self._wake()

    def count_missing(self, record: CallRecord | None = None) -> None:
        """Count a call that could not be recorded."""
        with self._lock:
            if record is not None:
                self._open.discard(record)
            self._missing += 1
        self._wake()

    def announce(self, record: CallRecord) -> None:
        """Write a record before its call is made: a kill must not hide that it may have been."""
        with self._file_lock:
            if not self._write([record]):
                with self._lock:
                    self._missing_changes += 1

    def name_worker(self, store: int, ident: int, kind: str) -> str:
        """Name a caller: the process, the recorded store in it, and a thread or task."""
        if (known := self._names.get((store, ident))) is not None:
            return known
        with self._lock:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            self._named += 1
            name = f"{os.getpid()}.{store}-{kind}{self._named}"
            return self._names.setdefault((store, ident), name)

    def _wake(self) -> None:
        if _exiting.is_set():
            # The thread would be stopped before it has written.
            self.flush()
            return
        self._has_records.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closing.is_set():
                    thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
                    # No thread can be started while the interpreter shuts down.
                    with contextlib.suppress(RuntimeError):
                        thread.start()
                        self._thread = thread

    def enter(self, *, alone: bool) -> int:
        """Count one more recorded store; return its number, 0 for those that share one."""
        with self._lock:
            self._open_stores += 1
            self._stores += alone
            return self._stores if alone else 0

    def leave(self) -> None:
        """Count a store that was closed; with the last one, close the trace."""
        with self._lock:
            self._open_stores -= 1
            last = self._open_stores <= 0
        if last:
            self.close()
        else:
            self.flush()

    def mark_not_fresh(self) -> None:
        """Say in the header of a new part that the store was not empty."""
        header = replace(self.options.header, fresh=False)
        with self._file_lock:
            self.options = replace(self.options, header=header)
            if self._part is not None:
                self._rotate(self._part)

    # In the background

    def _run(self) -> None:
        while not self._closing.is_set():
            self._has_records.wait()
            self._closing.wait(GATHER_S)
            self._has_records.clear()
            self.flush()

    def flush(self) -> None:
        """Write all records so far."""
        with self._file_lock:
            with self._lock:
                records, self._records, self._buffered = self._records, [], 0
            self._write(records)

    def close(self) -> None:
        """Write what is left, and that nothing is missing after it."""
        self._closing.set()
        self._has_records.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_S_MAX)
        with self._lock:
            # What they add may be seen although they never come back.
            self._missing += len(self._open)
            self._open.clear()
        with self._file_lock:
            # A trace that was ended already is begun anew only for what was recorded since.
            if self._part is not None or self._records or self._missing or not self._opened:
                self.flush()
            if self._part is not None:
                self._part.end(self.written)
                self._part = None
            self._begun = False
        # A store that goes on recording begins a new part.
        self._thread = None
        self._closing.clear()
        # Set above, and perhaps not cleared by the thread: the next record must wake a new one.
        self._has_records.clear()
        if self._records:
            self._wake()

    def restart_after_fork(self) -> None:
        """In a child process: the parent writes what the parent recorded."""
        if self._part is not None:
            os.close(self._part.file)
        self._reset()

    def _write(self, records: list[CallRecord]) -> bool:
        """Write records; return False, and count them, if that failed. Nothing is raised."""
        with self._lock:
            missing, self._missing = self._missing, 0
            changes, self._missing_changes = self._missing_changes, 0
        try:
            part = self._part = self._part or self._open_part()
            lines = []
            for record in records:
                try:
                    lines.append(format_line(record.to_line()))
                except Exception:  # noqa: BLE001 -- one strange call must not cost the others
                    missing += 1
            written = len(lines)
            if missing or changes:
                dropped = DroppedLines(dropped=max(missing, changes), changes=changes)
                lines.append(format_line(dropped))
            part.append(*lines)
            self.written += written
            self.dropped += missing
            self._warn(missing, "it could not keep up, or could not describe them")
            if part.size >= self.options.part_bytes_max:
                self._rotate(part)
        except Exception as error:  # noqa: BLE001 -- the application goes on without its trace
            with self._lock:
                self._missing += missing + len(records)
                self._missing_changes += changes
            self._warn(len(records), str(error))
            return False
        return written == len(records)

    def _warn(self, lines: int, why: str) -> None:
        if lines and time.monotonic() - self._warned_at > WARNING_S:
            self._warned_at = time.monotonic()
            log.warning("calls that are not in the trace %s: %d (%s)", self.path, lines, why)

    # Files

    def _open_part(self) -> _Part:
        self._opened += 1
        part = _create_part(self.path, self._opened)
        header = replace(
            self.options.header,
            version=__version__,
            boot=read_boot_id(),
            key_id=self.hasher.key_id,
            pid=os.getpid(),
            wall_ns=time.time_ns(),
            monotonic_ns=time.monotonic_ns(),
            contents=self.options.policy.contents,
            continued=self._removed_parts,
        )
        try:
            part.append(format_line(header))
        except OSError:
            # Lines without a header would be judged as complete.
            os.close(part.file)
            part.path.unlink(missing_ok=True)
            raise
        self._paths.append(part.path)
        return part

    def _rotate(self, full: _Part) -> None:
        """Begin the next file and end this one; remove the oldest ones."""
        while len(self._paths) >= max(1, self.options.parts_max):
            self._removed_parts = True
            self._paths.pop(0).unlink(missing_ok=True)
        self._part = None
        try:
            # First, so that a reader finds a file that is not ended as long as this process lives.
            self._part = self._open_part()
        except OSError:
            os.close(full.file)
        else:
            full.end(self.written)


def _locate(path: Path) -> tuple[Path, str]:
    """Return the folder of a trace, and what its files begin with.

    A trace is a file, or a folder to which many processes write.
    """
    if path.is_dir() or path.suffix != SUFFIX:
        return path, "trace"
    return path.parent, path.stem


def _create_part(path: Path, number: int) -> _Part:
    """Create a file that nobody has yet: the one that was named, or one beside it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    folder, stem = _locate(path)
    folder.mkdir(parents=True, exist_ok=True)
    if folder != path:
        with contextlib.suppress(FileExistsError):
            return _Part(path, os.open(path, flags, 0o600))
    now = f"{time.time_ns() // 1_000_000:x}"
    part = folder / f"{stem}.{now}-{os.getpid()}-{number}{SUFFIX}"
    return _Part(part, os.open(part, flags, 0o600))


def load_key(path: Path) -> bytes:
    """Load the secret of a trace, or create it. All its processes share it; no part holds it."""
    folder, stem = _locate(path)
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{stem}.key"
    if not place.exists():
        fresh = place.with_name(f"{place.name}.{secrets.token_hex(8)}")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, secrets.token_bytes(KEY_BYTES))
        finally:
            os.close(file)
        # The process that comes second uses the first one's.
        with contextlib.suppress(FileExistsError):
            place.hardlink_to(fresh)
        fresh.unlink()
    return place.read_bytes()


_WRITERS: Final[dict[Path, TraceWriter]] = {}
_WRITERS_LOCK = threading.Lock()


def open_trace_writer(path: Path, options: TraceOptions) -> TraceWriter:
    """Return the one writer of this process for a path; the first caller's options hold.

    But a trace of several stores is fresh only if all of them are.
    """
    place = path.absolute()
    with _WRITERS_LOCK:
        if place not in _WRITERS:
            _WRITERS[place] = TraceWriter(place, options)
        writer = _WRITERS[place]
    if writer.options.header.fresh and not options.header.fresh:
        writer.mark_not_fresh()
    return writer


# Set when the process ends: what is recorded after that comes from other exit handlers.
_exiting: Final = threading.Event()


def _close_all() -> None:
    _exiting.set()
    for writer in list(_WRITERS.values()):
        writer.close()


def _close_with_process() -> None:
    """Close all traces with a process of `multiprocessing`, which does not run `atexit`."""
    if "multiprocessing" in sys.modules and sys.modules["multiprocessing"].parent_process():
        from multiprocessing.util import Finalize  # noqa: PLC0415 -- not needed elsewhere

        # After all that may still use the store.
        Finalize(None, _close_all, exitpriority=-100)


def _restart_all() -> None:
    global _WRITERS_LOCK  # noqa: PLW0603 -- another thread may have held it during the fork
    _WRITERS_LOCK = threading.Lock()
    for writer in _WRITERS.values():
        writer.restart_after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_restart_all)
